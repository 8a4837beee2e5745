"""Second builds of a wheel."""

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.makers.publication import PLAN, finish_build, publish
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.engine import buildx
from toolkit.records import open_wheel, rebuild, second_build
from toolkit.versions.settings import resolve
from toolkit.wheel import wheel_folder
from toolkit.wheel.build_plan import BuildPlan


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("builders")
    publish(finish_build(root / "staging"), root / PLAN.name)
    return root


@pytest.fixture
def wheel(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "place")) / PLAN.name


@pytest.mark.parametrize("swapped", [False, True])
def test_a_wheel_that_was_swapped_during_the_second_build_is_named(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: bool
) -> None:
    def copy_wheel(command: list[str], **_: object) -> None:
        shutil.copytree(wheel, Path(command[0]), dirs_exist_ok=True)
        if swapped:
            wheel_folder.find_wheel(wheel).write_bytes(wheel_folder.find_wheel(wheel).read_bytes() + b"x")

    monkeypatch.setattr(second_build, "require_inputs", lambda plan: None)
    monkeypatch.setattr(BuildPlan, "command", lambda plan, place: [str(place)])
    monkeypatch.setattr(buildx, "build", copy_wheel)
    monkeypatch.setattr(buildx, "removing_caches", lambda *_: nullcontext())
    settings = resolve({"state": str(tmp_path / "state")})
    if swapped:
        with pytest.raises(IntegrityError, match="has changed while it was built again"):
            rebuild.rebuild(open_wheel(wheel), settings, bazelrc="", console=Console())
    else:
        found = rebuild.rebuild(open_wheel(wheel), settings, bazelrc="", console=Console())
        assert (found.level, found.wheel) == ("R3", open_wheel(wheel).read_record().digest)
