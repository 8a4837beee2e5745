import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.small_engine import SmallEngine, start
from toolkit.base import manifest, naming, ownership, seals
from toolkit.base.manifest import Manifest
from toolkit.engine import custody

pytestmark = pytest.mark.engine


def _docker(*argv: str, check: bool = True) -> str:
    return subprocess.run(["docker", *argv], check=check, capture_output=True, text=True).stdout.strip()


class Clone:
    """A folder in which the toolkit is used, by the same user as the other one."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.state = folder, folder / ".toolkit"
        folder.mkdir()
        self.variables = os.environ | {"PYTHONPATH": str(stages.ROOT), "XDG_CACHE_HOME": str(cache), "NO_COLOR": "1"}

    def call(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "toolkit", *arguments]
        options = {"cwd": self.folder, "env": self.variables, "stdin": subprocess.DEVNULL}
        return subprocess.run(argv, **options, capture_output=True, text=True, check=False)  # type: ignore[call-overload,no-any-return]

    def clean(self) -> dict[str, list[str]]:
        done = self.call("clean", "--yes", "--json")
        assert done.returncode == 0, done.stderr
        value: dict[str, list[str]] = json.loads(done.stdout)
        return value

    def record(self, image: "Image") -> None:
        """Use an image, as `toolkit build-image` does."""
        ownership.claim(self.state)
        facts = {"tag": image.name, "plan": image.plan, "engine": "docker"}
        folder = self.state / f"image-{image.name.partition('/')[2].replace(':', '-')}"
        manifest.write(folder, Manifest(kind="image", digest=image.id, facts=facts))
        seals.make_key()
        custody.seal(folder, image.id)


@dataclass
class Image:
    name: str
    id: str
    plan: str


@pytest.fixture
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Clone, Clone]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Clone(tmp_path / "one", tmp_path / "cache"), Clone(tmp_path / "two", tmp_path / "cache")


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    word = uuid.uuid4().hex[:12]
    name, plan = f"toolkit/train:cpu-{word}", f"sha256:{word}{'0' * 52}"
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f'FROM scratch\nCOPY Dockerfile /file\nCMD ["{word}"]\n')
    options = [part for label in _label(plan) for part in ("--label", label)]
    _docker("buildx", "build", "--load", "--tag", name, *options, str(context))
    yield Image(name=name, id=_docker("image", "inspect", "--format", "{{.Id}}", name), plan=plan)
    _docker("rmi", "--force", name, check=False)


def _label(plan: str) -> tuple[str, str]:
    return f"{naming.OWNER_LABEL}=toolkit", f"{naming.PLAN_LABEL}={plan}"


@pytest.fixture
def derived(image: Image, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """An image of another user, built on the toolkit's, so that it inherits the labels; one name ends as ours do."""
    word = image.plan[7:19]
    names = (f"somebody/app:{word}", f"toolkit/train:mine-{word}")
    (tmp_path / "derived").mkdir()
    (tmp_path / "derived/Dockerfile").write_text(f"FROM {image.name}\nENV MINE=1\n")
    _docker("buildx", "build", "--load", "--tag", names[0], "--tag", names[1], str(tmp_path / "derived"))
    container = f"somebody-{word}"
    _docker("create", "--name", container, names[0])
    yield (*names, container)
    _docker("rm", "--force", container, check=False)
    _docker("rmi", "--force", *names, check=False)


def test_an_empty_folder_owns_nothing(clones: tuple[Clone, Clone], image: Image, derived: tuple[str, ...]) -> None:
    one, two = clones
    one.record(image)
    stopped = _docker("create", *(f"--label={key}={each}" for key, each in _labels(one).items()), image.name)
    volume = _docker("volume", "create", f"--label={naming.OWNER_LABEL}=toolkit")
    try:
        value = two.clean()
        assert value["removed"] == [], "what two made is nothing"
        assert any(line.startswith(f"image {image.name}: it is used by {one.state}") for line in value["left"])
        assert any(line.startswith("container ") and str(one.state) in line for line in value["left"])
        assert any(line.startswith(f"volume {volume}: it has data") for line in value["left"])
        assert not (two.folder / ".toolkit").exists()

        listed = json.loads(two.call("ls", "--kind", "image", "--kind", "volume", "--json").stdout)["items"]
        seen = {item["name"]: (item["cleaned"], item["owner"]) for item in listed}
        assert seen[image.name] == (False, str(one.state))
        assert seen[volume] == (False, "all state folders")

        removed = one.clean()["removed"]
        assert f"image {image.name}" in removed
        assert [line for line in removed if line.startswith("container ")]
        assert not [line for line in removed if line.startswith("volume ")]
        assert _docker("ps", "--all", "--quiet", "--filter", f"id={stopped}") == ""
    finally:
        _docker("rm", "--force", stopped, check=False)
        _docker("volume", "rm", volume, check=False)
    for name in derived[:2]:
        assert _docker("image", "inspect", "--format", "{{.Id}}", name)
    assert _docker("inspect", "--format", "{{.Name}}", derived[2])


def _labels(clone: Clone) -> dict[str, str]:
    ownership.claim(clone.state)
    return {**ownership.label(clone.state), naming.JOB_LABEL: "test"}


@pytest.fixture
def bare_engine() -> Iterator[SmallEngine]:
    """Start an engine that has only the base image: this test removes everything of the toolkit in its engine."""
    with tempfile.TemporaryDirectory() as folder, start(Path(folder), gib=1) as engine:
        engine.load(stages.STANDIN)
        yield engine


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have an engine of its own")
@pytest.mark.timeout(600)
def test_caches_of_bazel_are_named_and_removed(bare_engine: SmallEngine, tmp_path: Path) -> None:
    """The test has its own engine, because a cache removed by mistake would cost hours."""
    (tmp_path / "Dockerfile").write_text(
        "ARG BASE\nFROM ${BASE}\nARG NAME\n"
        f"RUN --mount=type=cache,id={naming.BAZEL_MOUNT}${{NAME}},target=/cache head -c 3000000 /dev/zero >/cache/x\n"
        "RUN --mount=type=cache,id=stranger,target=/cache head -c 1000 /dev/zero >/cache/x\n"
    )
    variables = os.environ | bare_engine.variables
    for name in ("tensorflow", "verify-0123456789ab"):
        argv = ["docker", "buildx", "build", "--build-arg", f"BASE={stages.STANDIN}", "--build-arg", f"NAME={name}"]
        subprocess.run([*argv, str(tmp_path)], env=variables, capture_output=True, check=True)

    def run(*arguments: str) -> dict[str, list[str]]:
        argv = [sys.executable, "-m", "toolkit", "clean", "--yes", "--json", *arguments]
        workspace = variables | {"PYTHONPATH": str(stages.ROOT), "XDG_CACHE_HOME": str(tmp_path / "user")}
        done = subprocess.run(argv, cwd=tmp_path, env=workspace, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        value: dict[str, list[str]] = json.loads(done.stdout)
        return value

    cleaned = run()
    assert "cache verify-0123456789ab (3MB)" in cleaned["removed"]
    (left,) = [line for line in cleaned["left"] if line.startswith("cache ")]
    assert left.startswith("cache tensorflow (3MB): --with-cache")
    assert "cache tensorflow (3MB)" in run("--with-cache")["removed"]
    du = ["docker", "buildx", "du", "--verbose", "--filter", "type=exec.cachemount"]
    rest = subprocess.run(du, env=variables, capture_output=True, text=True, check=True).stdout
    assert naming.BAZEL_MOUNT not in rest
    assert 'with id "/stranger"' in rest, "what is not ours stays"
