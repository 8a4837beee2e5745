"""Second builds of a wheel."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.makers.publication import PLAN, finish_build, publish
from toolkit import records, report
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.engine import buildx
from toolkit.records import BuiltWheel, open_wheel, rebuild
from toolkit.records.artifact import Facts
from toolkit.report.chain import PageContext
from toolkit.versions.settings import Settings, resolve
from toolkit.wheel import build, wheel_folder
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

    monkeypatch.setattr(build, "require_inputs", lambda plan: None)
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


@dataclass(frozen=True, kw_only=True)
class Copied(BuiltWheel):
    """A kind of wheel that only these tests know."""

    noun = "copy"
    title = "Copied wheel"
    made = "copied"

    def describe_making(self, facts: Mapping[str, Any]) -> Facts:
        return Facts(id="copy", title="How it was copied", caption="The copy", values={"Program": "cp"})

    @contextmanager
    def making_again(self, settings: Settings, console: Console, *, bazelrc: str) -> Iterator[Path]:
        yield Path(shutil.copytree(self.folder, Path(settings.state) / "again"))


def test_a_kind_of_wheel_says_how_it_is_made_again_and_what_its_page_tells(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "KINDS", (*records.KINDS, Copied))
    settings = resolve({"state": str(tmp_path / "state")})
    assert rebuild.rebuild(open_wheel(wheel), settings, bazelrc="", console=Console()).level == "R3"
    page, html = report.compose([str(wheel)], PageContext(state=tmp_path, compared="nothing"))
    assert page.kind == "Copied wheel"
    assert "How it was copied" in html
    assert "TensorFlow, copied here." in html
