"""Signed statements of second builds, and how many builders stand for a wheel."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.unit.record.maker import change_json
from tests.unit.wheel.test_publication import PLAN, finish_build, publish
from toolkit import artifacts, keys, report, signing
from toolkit.artifacts import BuiltWheel, find, open_wheel
from toolkit.artifacts.artifact import Facts
from toolkit.cli import app
from toolkit.console import Console
from toolkit.engine import buildx
from toolkit.errors import IntegrityError
from toolkit.findings import Finding
from toolkit.record import attestation, rebuild
from toolkit.record.rebuild import Comparison, Difference, Level, rank
from toolkit.report.chain import PageContext
from toolkit.settings import Settings, resolve
from toolkit.wheel import build, wheel_folder
from toolkit.wheel.build_plan import BuildPlan

NAMES = ("builder", "second", "third", "stranger")
CODE = Difference(name="tensorflow/libtensorflow_cc.so.2", kind="content", detail="machine code: 1 of 9 bytes")
SAME = Comparison(wheel="", level="R3", differences=(), inputs=(), seconds=1)
OTHER = Comparison(wheel="", level=rank([CODE]), differences=(CODE,), inputs=("bash=5.3",), seconds=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("builders")
    publish(finish_build(root / "staging"), root / PLAN.name)
    for name in NAMES:
        keys.make(root / name)
    attestation.sign(find(str(root / PLAN.name), root), keys.load(str(root / "builder")), fresh=True)
    may = {"builder": ["wheel", "rebuild"], "second": ["rebuild"], "third": ["wheel"]}
    entries = [{"name": name, "key": f"{name}.pub", "may": kinds} for name, kinds in may.items()]
    (root / "policy.yaml").write_text(yaml.safe_dump({"signers": entries}))
    return root


@pytest.fixture
def wheel(made: Path, tmp_path: Path) -> Path:
    """Return the folder of a signed wheel. Keys and policy are in the folder above."""
    return Path(shutil.copytree(made, tmp_path / "place")) / PLAN.name


def state(wheel: Path, who: str, comparison: Comparison = SAME) -> Path:
    compared = replace(comparison, wheel=open_wheel(wheel).read_record().digest)
    return rebuild.sign(open_wheel(wheel), compared, keys.load(str(wheel.parent / who)))


def count(wheel: Path, accepted: Level = "R2") -> Finding:
    return rebuild.count_builders(open_wheel(wheel), artifacts.read_policy([wheel.parent / "policy.yaml"]), accepted)


def test_each_trusted_key_counts_once(wheel: Path) -> None:
    assert count(wheel).evidence == "1 independent: builder"
    state(wheel, "builder")
    assert count(wheel).evidence.startswith("1 independent: builder; builder again: R3")
    state(wheel, "second")
    state(wheel, "second")
    found = count(wheel)
    assert found.state == "ok"
    assert "2 independent" in found.evidence
    assert "second again: R3, the same wheel, to the byte" in found.evidence
    assert len(found.facts["keys"]) == 2
    wheel_folder.check_sums(wheel)


def test_a_second_build_that_differs_fails_unless_accepted(wheel: Path) -> None:
    state(wheel, "second", OTHER)
    found = count(wheel)
    assert found.state == "fail"
    assert (
        "second again: R1, the same file list; some contents differ; tensorflow/libtensorflow_cc.so.2" in found.evidence
    )
    assert found.evidence.startswith("1 independent")
    assert count(wheel, "R1").evidence.startswith("2 independent")


def test_all_signatures_of_a_statement_are_one_build(wheel: Path) -> None:
    second = state(wheel, "second")
    attestation.sign(find(str(wheel), wheel.parent), keys.load(str(wheel.parent / "third")))
    assert count(wheel).evidence.startswith("2 independent: builder, also signed by third; second again: R3")
    second.unlink()
    assert count(wheel).evidence == "1 independent: builder, also signed by third"


def replay(wheel: Path) -> None:
    publish(finish_build(wheel.parent / "again", "compute_75"), wheel.parent / "other")
    change_json(wheel.parent / "other" / "manifest.json", lambda value: value.update(digest="sha256:" + "0" * 64))
    shutil.copy(state(wheel.parent / "other", "second"), wheel)


def rename(wheel: Path) -> None:
    path = state(wheel, "second")
    path.rename(path.with_name("attestation-rebuild-00000000.dsse.json"))


FORGERIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "unknown key": (lambda wheel: state(wheel, "stranger"), "which is not trusted"),
    "key for wheels": (lambda wheel: state(wheel, "third"), "third may sign wheel: not rebuild"),
    "another wheel": (replay, "a statement is of another wheel"),
    "statement changed": (
        lambda wheel: change_json(
            state(wheel, "second"), lambda value: value.update(payload=value["payload"][:-4] + "fQo=")
        ),
        "the signature is not that of second",
    ),
    "link": (
        lambda wheel: (wheel / "attestation-rebuild-00000000.dsse.json").symlink_to(state(wheel, "stranger")),
        "is no regular file",
    ),
    "signature of the wheel": (
        lambda wheel: shutil.copy(wheel / signing.ENVELOPE, wheel / "attestation-rebuild-00000000.dsse.json"),
        "a statement is of another wheel",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_no_trusted_key_signed_is_not_counted(wheel: Path, name: str) -> None:
    forge, why = FORGERIES[name]
    forge(wheel)
    found = count(wheel)
    assert found.evidence.startswith("1 independent: builder; not counted: ")
    assert why in found.evidence


def test_a_statement_under_another_name_counts_once(wheel: Path) -> None:
    rename(wheel)
    state(wheel, "second")
    assert count(wheel).evidence.startswith("2 independent")


def test_a_wheel_other_than_the_one_that_was_compared_is_not_signed(wheel: Path) -> None:
    compared = replace(SAME, wheel=open_wheel(wheel).read_record().digest)
    change_json(wheel / "manifest.json", lambda value: value.update(digest="sha256:" + "e" * 64))
    with pytest.raises(IntegrityError, match="is of another wheel than was compared"):
        rebuild.sign(open_wheel(wheel), compared, keys.load(str(wheel.parent / "second")))
    assert not list(wheel.glob("attestation-rebuild-*"))


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
    monkeypatch.setattr(artifacts, "KINDS", (*artifacts.KINDS, Copied))
    settings = resolve({"state": str(tmp_path / "state")})
    assert rebuild.rebuild(open_wheel(wheel), settings, bazelrc="", console=Console()).level == "R3"
    page, html = report.compose([str(wheel)], PageContext(state=tmp_path, compared="nothing"))
    assert page.kind == "Copied wheel"
    assert "How it was copied" in html
    assert "TensorFlow, copied here." in html


def test_the_command_writes_a_statement_and_counts_it(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(wheel.parent)
    compared = replace(OTHER, wheel=open_wheel(wheel).read_record().digest)
    monkeypatch.setattr(rebuild, "rebuild", lambda *_, **__: compared)
    done = CliRunner().invoke(app, ["reproduce", wheel.name, "--sign", "second"])
    assert done.exit_code == 7, done.output
    assert "signed: " in done.output
    words = ["verify", wheel.name, "--trust", "policy.yaml"]
    differs = CliRunner().invoke(app, words)
    assert differs.exit_code == 7, differs.output
    assert "builders: 1 independent" in differs.output
    accepted = CliRunner().invoke(app, [*words, "--accept", "R1"])
    assert accepted.exit_code == 0, accepted.output
    assert "2 independent" in accepted.output
