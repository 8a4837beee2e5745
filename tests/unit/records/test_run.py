import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records import maker
from toolkit.base.errors import CheckError
from toolkit.base.findings import require
from toolkit.records import Run, compare
from train.errors import IntegrityError

OWN = ["manifest", "config", "checkpoint", "weights", "environment", "metrics", "confusion", "pictures", "drawn"]
CHAIN = ["parent", *(f"environment.{name}" for name in ("manifest", "wheel", "packages", "files", "content", "lock"))]


def states(run: Path, state: Path) -> dict[str, str]:
    return {item.id: item.state for item in compare(Run(folder=run, state=state)).list_findings()}


WITHOUT = {"weights": "skipped", "environment": "skipped"}
"""What cannot be checked without a checkpoint."""


def others(run: Path, state: Path) -> dict[str, str]:
    return {
        name: found
        for name, found in states(run, state).items()
        if found != "ok" and name not in {"others", "wheel.inspection"}
    }


def test_a_whole_run_and_its_chain_hold(run: Path, state: Path) -> None:
    findings = compare(Run(folder=run, state=state)).list_findings()
    assert [item.id for item in findings] == [*OWN, "others", *CHAIN]
    assert {item.state for item in findings if item.id != "others"} == {"ok"}
    require(findings, remedy="", strict=True)


def edit_manifest(**parts: Any) -> Callable[[Path], None]:
    def change(value: dict[str, Any]) -> None:
        for keys, new in parts.items():
            *outer, last = keys.split("__")
            inner = value
            for key in outer:
                inner = inner[key]
            inner[last] = new

    return lambda run: maker.change_json(run / "manifest.json", change)


def edit_text(name: str, edit: Callable[[str], str]) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        path = run / name
        text = path.read_text()
        assert edit(text) != text
        path.write_text(edit(text))

    return spoil


def flip_byte(run: Path) -> None:
    path = max((run / "checkpoints").glob("*.npz"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_weight(facts: dict[str, Any], content: bytearray) -> None:
    name = next(name for name in facts["names"] if name.endswith("kernel") and not name.startswith("slots/"))
    member = f"{facts['names'].index(name):05d}.npy"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {each: bytearray(archive.read(each)) for each in archive.namelist()}
    members[member][-1] ^= 1
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for each, data in members.items():
            archive.writestr(each, bytes(data))
    content[:] = written.getvalue()


def flip_inside(facts: dict[str, Any], content: bytearray) -> None:
    """Flip a bit in an array of the optimizer; the archive keeps its old checksum."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        slots = {f"{index:05d}.npy" for index, name in enumerate(facts["names"]) if name.startswith("slots/")}
        largest = max((info for info in archive.infolist() if info.filename in slots), key=lambda info: info.file_size)
    content[largest.header_offset + largest.file_size // 2] ^= 1


def rename_slots(facts: dict[str, Any], content: bytearray) -> None:
    facts["names"] = [name.replace("slots/", "weights/", 1) for name in facts["names"]]


def tamper(change: Callable[[dict[str, Any], bytearray], object]) -> Callable[[Path], None]:
    return lambda run: maker.change_checkpoint(run, change)


def move_on(facts: dict[str, Any], content: bytearray) -> None:
    facts["position"]["environment"]["devices"] = ["another processor"]


def step_back(run: Path) -> None:
    for path in (run / "checkpoints").glob("step-00000044.*"):
        path.unlink()


ZERO = "0" * 64
LOST = {"checkpoint": "fail", "weights": "skipped"}


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (flip_byte, {**WITHOUT, "checkpoint": "fail"}),
        (tamper(change_weight), {"weights": "fail"}),
        (tamper(flip_inside), {"weights": "fail"}),
        (tamper(rename_slots), {"weights": "fail"}),
        (edit_manifest(weights_sha256=ZERO), {"weights": "fail"}),
        (step_back, LOST),
        (tamper(lambda facts, _: facts["position"].update(config_sha256=ZERO)), LOST),
        (tamper(move_on), {"environment": "fail"}),
        (edit_manifest(data__sha256=ZERO), {"environment": "fail"}),
        (edit_manifest(config__seed=1), {"config": "fail"}),
        (edit_text("config.yaml", lambda text: text.replace("seed: 3", "seed: 1")), {"config": "fail"}),
        (edit_manifest(status="running"), {"manifest": "fail"}),
        (edit_manifest(result__test_accuracy=1.0), {"metrics": "fail", "confusion": "fail"}),
        (edit_manifest(result__test_loss=0.0), {"metrics": "fail"}),
        (edit_manifest(result__per_class_accuracy=[1.0] * 10), {"confusion": "fail"}),
        (edit_text("metrics.csv", lambda text: text.replace("\n2,", "\n3,")), {"metrics": "fail"}),
        (edit_text("metrics.jsonl", lambda text: text.replace('"epoch": 1', '"epoch": 7')), {"metrics": "fail"}),
        (edit_text("confusion.csv", lambda text: text.replace("\n0,", "\n0,1")), {"confusion": "fail"}),
        (edit_manifest(parent__digest="sha256:" + ZERO), {"parent": "fail"}),
        (edit_manifest(parent=None), {"parent": "absent"}),
        (edit_manifest(environment__tensorflow="2.18.0"), {"environment": "fail", "parent": "fail"}),
        (
            lambda run: shutil.rmtree(run / "checkpoints"),
            {"checkpoint": "absent", "weights": "skipped", "environment": "skipped"},
        ),
        (lambda run: (run / "samples.png").write_bytes(b"another"), {"pictures": "fail"}),
        (lambda run: (run / "confusion.png").write_bytes(b"better"), {"drawn": "fail"}),
    ],
)
def test_what_was_changed_is_found_by_its_name(
    run: Path, state: Path, spoil: Callable[[Path], object], found: dict[str, str]
) -> None:
    # The shared run names its parent by another path; here the parent is in this test's folder.
    edit_manifest(parent__reference=str(maker.plan_environment(state).folder))(run)
    spoil(run)
    assert others(run, state) == found


def test_an_environment_in_another_ones_place_is_found(run: Path, state: Path) -> None:
    folder = maker.plan_environment(state).folder
    edit_manifest(parent__reference=str(folder))(run)
    maker.change_json(folder / "manifest.json", lambda value: value.update(digest="sha256:" + ZERO))
    assert others(run, state) == {"parent": "fail"}


def test_what_is_not_on_this_machine_is_neither_right_nor_wrong(run: Path, tmp_path: Path) -> None:
    edit_manifest(parent__reference=str(tmp_path / "gone"))(run)
    findings = compare(Run(folder=run, state=tmp_path / "nowhere")).list_findings()
    assert {item.id: item.state for item in findings if item.state not in {"ok", "skipped"}} == {"parent": "absent"}
    require(findings, remedy="")
    with pytest.raises(CheckError, match="1 of 11"):
        require(findings, remedy="", strict=True)


def name_others(run: Path, state: Path) -> str:
    found = {item.id: item.evidence for item in compare(Run(folder=run, state=state)).list_findings()}
    return f"{found['others']}; {found.get('added')}"


def test_files_that_no_record_covers_are_named(run: Path, state: Path) -> None:
    (run / "report.html").write_text("100 %")
    (run / "tb").mkdir(exist_ok=True)
    (run / "tb" / "events").touch()
    (run / "step-1").symlink_to("checkpoints")
    for name in ("report.html", "tb/", "step-1", "README.md", "curves.png"):
        assert name in name_others(run, state)
    assert "checkpoints/ (2 files)" in name_others(run, state), "those before the last one"
    for name in ("confusion.png", "model.txt", "samples.png", "metrics.csv"):
        assert name not in name_others(run, state)


def test_an_image_is_not_looked_for_without_an_engine(run: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    edit_manifest(parent__kind="image")(run)
    assert others(run, state) == {"parent": "absent"}


def test_a_run_that_went_on_elsewhere_says_so(run: Path, state: Path) -> None:
    maker.change_checkpoint(run, move_on)
    edit_manifest(resumed_after=[22])(run)
    findings = {item.id: item for item in compare(Run(folder=run, state=state)).list_findings()}
    assert findings["environment"].state == "ok"
    assert "resumed after step 22 where devices is" in findings["environment"].evidence


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": 2, "kind": "run"}', '{"schema": 1, "kind": "run"}'])
def test_a_manifest_of_another_schema_is_not_read(run: Path, state: Path, text: str) -> None:
    (run / "manifest.json").write_text(text)
    with pytest.raises(IntegrityError):
        compare(Run(folder=run, state=state)).list_findings()


def test_a_parent_that_is_no_object_is_damage(run: Path, state: Path) -> None:
    maker.change_json(run / "manifest.json", lambda value: value.update(parent="x"))
    with pytest.raises(IntegrityError, match="a parent that is an object"):
        compare(Run(folder=run, state=state)).list_findings()


@pytest.mark.parametrize("value", ["**", "/"])
def test_a_parent_without_a_digest_is_not_found(run: Path, state: Path, value: object) -> None:
    maker.change_json(run / "manifest.json", lambda record: record["parent"].update(digest=value))
    assert others(run, state)["parent"] in {"absent", "fail"}
