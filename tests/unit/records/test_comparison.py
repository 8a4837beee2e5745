import json
from pathlib import Path
from typing import Any

import pytest

from toolkit.base.findings import Finding
from toolkit.records import comparison
from train.record.reader import RunRecord

LINES = [
    {"kind": "step", "step": 10, "loss": 2.0, "seconds": 1.0},
    {"kind": "step", "step": 20, "loss": 1.0, "seconds": 2.0},
    {"kind": "epoch", "step": 22, "epoch": 1, "test_loss": 0.5, "seconds": 2.5, "images_per_second": 9.0},
]
RESULT = {"test_accuracy": 0.5, "steps": 22, "train_seconds": 1.0}


def make(folder: Path, lines: list[dict[str, Any]] | None = None, weights: str = "a", **result: Any) -> RunRecord:
    folder.mkdir()
    if lines is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    value = {"weights_sha256": weights, "result": {**RESULT, **result}}
    return RunRecord(folder=folder, value=value)


@pytest.mark.parametrize(
    ("index", "name", "said"),
    [
        (1, "loss", "loss of step 20: 7, was 1.0"),
        (2, "test_loss", "test_loss of the epoch that ends with step 22: 7, was 0.5"),
    ],
)
def test_the_first_number_that_differs_is_named(tmp_path: Path, index: int, name: str, said: str) -> None:
    lines = [dict(line) for line in LINES]
    lines[index][name] = 7
    found = comparison.compare(make(tmp_path / "a", LINES), make(tmp_path / "b", lines, weights="b"))
    assert not found.equal
    assert str(found.first) == said


def test_a_missing_record_and_another_end_are_differences(tmp_path: Path) -> None:
    found = comparison.compare(make(tmp_path / "a", LINES), make(tmp_path / "b", LINES[:2], weights="b"))
    assert str(found.first) == "record of the epoch that ends with step 22: missing, was there"
    found = comparison.compare(make(tmp_path / "c"), make(tmp_path / "d", LINES, weights="b", test_accuracy=0.25))
    assert str(found.first) == "test_accuracy of the result: 0.25, was 0.5"


def test_equal_weights_beside_other_numbers_do_not_hold(tmp_path: Path) -> None:
    changed = [{**LINES[0], "loss": 0.1}, *LINES[1:]]
    found = comparison.compare(make(tmp_path / "a", changed), make(tmp_path / "b", LINES))
    assert found.equal
    assert not found.holds


def walk(equal: bool, then: dict[str, Any] | None, now: dict[str, Any], **software: str) -> list[Finding]:
    found = comparison.Comparison(equal=equal, recorded="a", found="a" if equal else "b", first=None, compared=0)
    records = [
        RunRecord(folder=Path(), value={"parent": parent, "software": packages, "environment": {"threads": 2}})
        for parent, packages in ((then, {"keras": "3"}), (now, {"keras": "3"} | software))
    ]
    return comparison.walk(records[0], records[1], found)


LOCK = {"kind": "lock", "name": "cpu.txt", "digest": "sha256:l"}
WHEEL = {"kind": "wheel", "name": "w", "digest": "sha256:w", "parent": LOCK}
HOST = {"kind": "environment", "digest": "sha256:e", "parent": WHEEL, "code": "sha256:c"}
IMAGE = {"kind": "image", "digest": "sha256:i", "parent": LOCK, "code": None}


def test_each_link_is_compared_and_the_highest_that_is_the_same_is_the_level() -> None:
    links = walk(True, HOST, HOST)
    assert [link.id for link in links] == ["weights", "training job", "environment", "wheel", "lock", "packages"]
    assert {link.state for link in links} == {"ok"}
    assert comparison.rank(links) == "R4"
    assert comparison.rank(walk(False, HOST, HOST)) == "R3"
    assert comparison.rank(walk(False, HOST, {**HOST, "parent": {**WHEEL, "digest": "x"}})) == "R1"
    assert comparison.rank(walk(False, IMAGE, {**IMAGE, "digest": "x"}, keras="4")) == "R0"
    assert comparison.rank(walk(False, None, HOST, keras="4")) == "below R0"
