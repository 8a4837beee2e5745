"""Stretches of runs of many kinds, trained again from their kept checkpoints."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiers import slow, weekly
from tests.unit.train import runs
from train.cli import parse
from train.errors import IntegrityError, PreflightError
from train.record import audit, checkpoint, reader
from train.run.job import replay

pytestmark = pytest.mark.usefixtures("no_drawing")

EVERY = 4
AUDITED = ("--audit-every", str(EVERY))
SPANS = [(0, 4), (4, 8), (8, 12), (12, 15)]


def repeat(folder: Path, *options: str, spans: list[tuple[int, int]] = SPANS, every: int = 0) -> list[list[str]]:
    """Return the leaves of stretches, the last first, so that none begins where the one before it has ended."""
    config = parse([*runs.ARGUMENTS, *options, "--out", str(folder.parent.parent / "again")])
    config = replace(config, audit_every=every, keep=1)
    return list(replay(config, reader.read_record(folder), spans[::-1]))[::-1]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train an audited run, and return its folder; a test that changes it must copy it."""
    return runs.make(tmp_path_factory.mktemp("audited"), *AUDITED)


@pytest.fixture
def copied(audited: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(audited, tmp_path / "first" / audited.name))


def check_leaves(folder: Path, *options: str) -> None:
    recorded = audit.read_lines(folder)
    spans = [(leaf["first"], leaf["last"]) for leaf in map(audit.parse, recorded)]
    assert spans[:2] == SPANS[:2]
    assert repeat(folder, *options, spans=spans) == [[line] for line in recorded]
    assert audit.check(reader.read_record(folder))


def test_each_stretch_of_a_run_gives_its_leaf_again_and_the_audit_changes_no_weights(
    copied: Path, unbroken: str
) -> None:
    assert reader.read_record(copied).value["weights_sha256"] == unbroken
    check_leaves(copied)


@pytest.mark.parametrize(
    "options",
    [
        slow(("--best", "--validation", "200")),
        weekly(("--patience", "1", "--validation", "200")),
        slow(("--ema", "0.9", "--optimizer", "adamw")),
        slow(("--shards", "2")),
        weekly(("--precision", "mixed_float16", "--kernels", "stock")),
        slow(("--mixup", "0.2", "--cutout", "3", "--randaugment", "1")),
        slow(("--loop", "fit")),
    ],
    ids=lambda options: "-".join(options).replace("--", ""),
)
def test_each_stretch_of_other_runs_gives_its_leaf_again(tmp_path: Path, options: tuple[str, ...]) -> None:
    check_leaves(runs.make(tmp_path / "first", *AUDITED, *options), *options)


def test_an_interrupted_run_has_the_leaves_of_an_unbroken_one(tmp_path: Path) -> None:
    options = (*AUDITED, "--checkpoint-every", "3", "--keep", "9")
    whole, parts = runs.make(tmp_path / "whole", *options), runs.make(tmp_path / "parts", *options)
    for path in (parts / "checkpoints").glob("step-*"):
        if int(path.stem[-8:]) > 10:
            path.unlink()
    (parts / "manifest.json").unlink()
    runs.make(tmp_path / "parts", *options)
    assert runs.read_manifest(tmp_path / "parts", *options)["resumed_after"] == [10]
    assert audit.read_lines(parts) == audit.read_lines(whole)


@pytest.mark.slow
def test_a_run_that_goes_on_is_audited_from_there(tmp_path: Path) -> None:
    first = runs.make(tmp_path / "first")
    options = ("--continue", str(first), "--epochs", "5")
    folder = runs.make(tmp_path / "second", *AUDITED, *options)
    recorded = audit.read_lines(folder)
    assert [audit.parse(line)["first"] for line in recorded] == [15, 16, 20, 24]
    spans = [(leaf["first"], leaf["last"]) for leaf in map(audit.parse, recorded)]
    assert repeat(folder, *options, spans=spans) == [[line] for line in recorded]


@pytest.mark.slow
def test_a_run_that_began_with_other_weights_is_audited(tmp_path: Path) -> None:
    options = ("--init-from", str(runs.make(tmp_path / "first")), "--seed", "5")
    folder = runs.make(tmp_path / "second", *AUDITED, *options)
    assert repeat(folder, *options) == [[line] for line in audit.read_lines(folder)]


def test_a_trace_has_a_leaf_and_a_state_for_each_step(copied: Path, tmp_path: Path) -> None:
    (lines,) = repeat(copied, spans=[(4, 8)], every=1)
    leaves, recorded = [audit.parse(line) for line in lines], audit.parse(audit.read_lines(copied)[1])
    assert [leaf["last"] for leaf in leaves] == [5, 6, 7, 8]
    assert (leaves[0]["before"], leaves[-1]["after"]) == (recorded["before"], recorded["after"])
    assert len(list((tmp_path / "again").glob("*/4-8/checkpoints/*.npz"))) == 4


def test_a_damaged_checkpoint_and_one_of_another_step_are_refused(copied: Path) -> None:
    places = copied / "checkpoints"
    for end in ("json", "npz"):
        (places / f"step-00000004.{end}").write_bytes((places / f"step-00000008.{end}").read_bytes())
    with pytest.raises(IntegrityError, match="is of step 8, not of step 4"):
        repeat(copied, spans=[(4, 8)])
    (places / "step-00000004.npz").write_bytes(b"torn")
    with pytest.raises(IntegrityError, match="cannot be read"):
        repeat(copied, spans=[(4, 8)])


def test_a_planted_first_state_is_not_used(copied: Path, tmp_path: Path) -> None:
    saved = checkpoint.read(copied, 4)
    checkpoint.save(tmp_path / "planted", saved.values, replace(saved.position, step=0), keep=1)
    for file in (tmp_path / "planted").iterdir():
        file.replace(copied / "checkpoints" / file.name)
    assert repeat(copied, spans=[(0, 4)]) == [[audit.read_lines(copied)[0]]]


def test_the_digest_of_a_state_covers_the_sums_of_its_epoch() -> None:
    position = {"loss_sum": 1.5, "correct": 3, "seen": 4, "best": []}
    changes: tuple[dict[str, object], ...] = ({}, {"loss_sum": 2.0}, {"correct": 2}, {"seen": 5}, {"best": [1]})
    assert len({audit.digest_progress("0" * 64, {**position, **each}) for each in changes}) == 5


def test_other_data_is_refused_before_training(copied: Path) -> None:
    text = (copied / "manifest.json").read_text()
    digest = json.loads(text)["environment"]["data_sha256"]
    (copied / "manifest.json").write_text(text.replace(digest, "0" * 64))
    with pytest.raises(PreflightError, match="cannot give the same bits here"):
        repeat(copied)
