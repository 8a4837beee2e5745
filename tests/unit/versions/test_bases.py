from typing import Any

import pytest

from tests.makers.sets import choose
from toolkit.base.errors import EngineError, UnsupportedError
from toolkit.engine import client
from toolkit.versions.settings import resolve
from toolkit.versions.table import load_table
from toolkit.wheel.build_inputs import choose_wheel_versions

TABLE = load_table()


@pytest.mark.parametrize(
    ("reference", "codename"),
    [
        ("python:3.11-slim-trixie", "trixie"),
        ("python:3.11-slim-bookworm@sha256:00", "bookworm"),
        ("toolkit/base:python3.11-bookworm", "bookworm"),
        ("debian:12.5-slim", "bookworm"),
        ("registry.example:5000/ubuntu:22.04", "jammy"),
        ("python:3.11", None),
        ("trixiesque/base:1", None),
    ],
)
def test_a_reference_names_its_distribution(reference: str, codename: str | None) -> None:
    found = TABLE.find_base(reference)
    assert (found.codename if found else None) == codename


@pytest.mark.parametrize(
    ("base", "changes", "why"),
    [
        ("jammy", {}, "ubuntu:22.04 packages none that can, and this set is compiled by clang 17, 18"),
        (
            "noble",
            {"tensorflow": "2.21.0", "cuda": "12.8.1", "capabilities": ["12.0"]},
            "ubuntu:24.04 packages clang 17 and 18, and this set is compiled by clang 22",
        ),
    ],
)
def test_a_base_without_the_compiler_is_refused(base: str, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        choose(TABLE, base=base, **changes)
    assert why in caught.value.what
    assert caught.value.remedy == f"--base-image {TABLE.default.base_image}"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"os-release": b'NAME="x"\nVERSION_CODENAME=bookworm\n'}, "bookworm"),
        ({"os-release": b'VERSION_CODENAME="noble"\n'}, "noble"),
        ({"os-release": b"NAME=alpine\n"}, ""),
        ({}, ""),
        (EngineError("no such file"), ""),
    ],
)
def test_an_image_of_another_name_is_read(
    files: dict[str, bytes] | EngineError, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> dict[str, bytes]:
        if isinstance(files, EngineError):
            raise files
        return files

    monkeypatch.setattr(client, "read_files", read)
    own: Any = None
    base = client.BaseImage(reference="company/python:1", identity="sha256:0")
    assert client.find_distribution(own, base) == expected
    assert client.find_distribution(own, client.BaseImage(reference="debian:12", identity="")) == "bookworm"


def test_a_distribution_that_the_table_lacks_is_refused() -> None:
    settings = resolve({"base_image": "company/python:1"})
    assert choose_wheel_versions(settings, ()).gcc == "14"
    assert choose_wheel_versions(settings, (), "bookworm").gcc == "12"
    with pytest.raises(UnsupportedError, match="whose distribution is alpine") as caught:
        choose_wheel_versions(settings, (), "alpine")
    assert "bookworm" in caught.value.why
