import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from toolkit.base.errors import IntegrityError
from toolkit.engine import EnvironmentSpec, bundle
from toolkit.engine.client import BaseImage
from toolkit.engine.docker import plan_image

SAVED = b"layers and configurations" * 100
PACKAGE = b"a wheel" * 300


@dataclass
class Images:
    """The images of an engine, which learns those of a file by loading it."""

    brings: dict[str, str]
    present: dict[str, str] = field(default_factory=dict)
    error: str = ""
    loaded: int = 0

    def get(self, name: str) -> Any:
        if name not in self.present:
            raise ImageNotFound(name)
        return type("Image", (), {"id": self.present[name]})

    def load(self, stream: Any) -> None:
        if self.error:
            raise APIError(self.error)
        assert stream.read() == SAVED
        self.loaded += 1
        self.present |= self.brings


class Client:
    def __init__(self, images: Images) -> None:
        self.images = images


@pytest.fixture
def carried(tmp_path: Path) -> bundle.Bundle:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/a.whl").write_bytes(PACKAGE)
    (tmp_path / "images.tar").write_bytes(SAVED)
    value = {
        "schema": 1,
        "lock": {"spec": {}, "pins": {}},
        "base": {"base": "python:3.11", "digest": "sha256:0", "pinned": "", "distribution": "trixie"},
        "bazel": {},
        "names": {"base": "toolkit/offline:base-1", "uv": "toolkit/offline:uv-1"},
        "ids": {"base": "sha256:1", "uv": "sha256:2"},
        "images": hashlib.sha256(SAVED).hexdigest(),
        "packages": {"a.whl": hashlib.sha256(PACKAGE).hexdigest()},
    }
    (tmp_path / bundle.FILE).write_text(json.dumps(value))
    found = bundle.read(tmp_path)
    assert found
    return found


@pytest.fixture
def images() -> Images:
    return Images({"toolkit/offline:base-1": "sha256:1", "toolkit/offline:uv-1": "sha256:2"})


def load(carried: bundle.Bundle, images: Images) -> None:
    bundle.load(carried, Client(images), carried.folder / "state")  # type: ignore[arg-type]


def test_images_are_loaded_once_and_stand_for_stages(carried: bundle.Bundle, images: Images) -> None:
    load(carried, images)
    load(carried, images)
    assert images.loaded == 1
    assert carried.contexts == {
        "base": "docker-image://toolkit/offline:base-1",
        "uv": "docker-image://toolkit/offline:uv-1",
    }


def test_an_image_of_the_same_name_that_is_another_is_replaced(carried: bundle.Bundle, images: Images) -> None:
    images.present = {"toolkit/offline:base-1": "sha256:9", "toolkit/offline:uv-1": "sha256:2"}
    load(carried, images)
    assert images.loaded == 1


@pytest.mark.parametrize("name", ["images.tar", "packages/a.whl"])
@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
def test_a_damaged_folder_is_refused_before_anything_is_loaded(
    carried: bundle.Bundle, images: Images, name: str, how: str
) -> None:
    path = carried.folder / name
    content = bytearray(path.read_bytes())
    path.unlink()
    if how == "flipped":
        content[7] ^= 1
        path.write_bytes(content)
    elif how == "truncated":
        path.write_bytes(content[:-1])
    with pytest.raises(IntegrityError, match="is missing" if how == "missing" else "is damaged"):
        load(carried, images)
    assert images.loaded == 0


def test_an_image_is_built_from_the_folder_alone(carried: bundle.Bundle, tmp_path: Path) -> None:
    spec, base = EnvironmentSpec(tensorflow="2.19.0", python="3.11"), BaseImage(reference="python", identity="sha256:0")
    alone = plan_image(spec, base, state=tmp_path, carried=carried)
    online = plan_image(spec, base, state=tmp_path)
    (command,) = alone.commands
    assert command[command.index("--network") + 1] == "none"
    contexts = [command[at + 1] for at, word in enumerate(command) if word == "--build-context"]
    assert contexts == [*(f"{name}={value}" for name, value in carried.contexts.items()), f"downloads={tmp_path}"]
    assert "--network" not in online.commands[0]
    assert (alone.digest, alone.reference) == (online.digest, online.reference), "it is the same image"


def test_a_file_without_the_images_that_are_named_is_refused(carried: bundle.Bundle, images: Images) -> None:
    images.brings = {"toolkit/offline:base-1": "sha256:1"}
    with pytest.raises(IntegrityError, match="does not have the images"):
        load(carried, images)
