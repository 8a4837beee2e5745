import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import loaded
from tests.command import Run
from tests.unit.record import maker
from toolkit import artifacts, keys, project, signing
from toolkit.errors import IntegrityError, PreflightError
from toolkit.record import retraining
from train.record import audit, checkpoint, reader

# The leaves and roots that implementations of RFC 9162's tree are tested with, first those of Certificate Transparency.
LEAVES = ("", "\0", "\x10", " !", "01", "@ABC", "PQRSTUVW", "`abcdefghijklmno")
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
EVERY = 10


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    parent = maker.describe_environment(folder / "state")
    return maker.train(folder / "runs", "--audit-every", str(EVERY), "--log-every", "5", parent=parent)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Train two runs whose learning rates part after half of their 44 steps."""
    folder = tmp_path_factory.mktemp("pair")
    parent = maker.describe_environment(folder / "state")
    options = ("--audit-every", str(EVERY), "--schedule")
    return [maker.train(folder / name, *options, name, parent=parent) for name in ("constant", "steps")]


@pytest.fixture
def run(audited: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(audited, tmp_path / "runs" / audited.name))


@pytest.fixture
def toolkit(tmp_path: Path) -> Run:
    maker.make_environment(tmp_path / "state", loaded.start())
    variables = {"TOOLKIT_STATE": str(tmp_path / "state"), "TOOLKIT_RUNS": str(tmp_path / "runs")}

    class Here(Run):
        def __call__(self, *arguments: str, **environment: str) -> Any:
            return super().__call__(*arguments, **{**variables, **environment})

    return Here(tmp_path)


def rewrite(run: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the leaves, and make the tree anew, as a forger would."""
    leaves = [audit.parse(line) for line in audit.read_lines(run)]
    change(leaves)
    lines = [json.dumps(leaf, sort_keys=True, separators=(",", ":")) for leaf in leaves]
    (run / audit.FILE).write_text("".join(line + "\n" for line in lines))
    said = {"leaves": len(lines), "root": audit.hash_tree(lines)}
    maker.change_json(run / "manifest.json", lambda value: value["audit"].update(said))


def replace_state(run: Path, step: int) -> None:
    """Put another state after a step, with a checkpoint and leaves that fit."""
    saved = checkpoint.read(run, step)
    values = dict(saved.values)
    name = next(name for name in values if name.endswith("kernel"))
    values[name] = np.nextafter(values[name], np.float32(9))
    made = checkpoint.save(run / "forged", values, saved.position, keep=1)  # in its folder it would remove later ones
    for file in (made, made.with_suffix(".json")):
        file.replace(run / "checkpoints" / file.name)
    (run / "forged").rmdir()
    state = reader.read_state(run / "checkpoints" / f"step-{step:08d}.json")
    after = audit.digest_progress(reader.digest_weights(state, everything=True), state.position)

    def change(leaves: list[dict[str, Any]]) -> None:
        for leaf in leaves:
            leaf.update(
                {"after": after} if leaf["last"] == step else {"before": after} if leaf["first"] == step else {}
            )

    rewrite(run, change)


@pytest.mark.parametrize("count", ROOTS)
def test_the_tree_is_that_of_rfc_9162(count: int) -> None:
    assert audit.hash_tree(LEAVES[:count]) == ROOTS[count]


def test_a_node_is_no_leaf() -> None:
    """Two leaves and the one that their hashes would make have different roots."""
    assert audit.hash_tree(["a", "b"]) != audit.hash_tree(["\1" + "a" + "b"])


def test_an_audited_run_has_a_leaf_and_a_checkpoint_for_each_stretch(audited: Path) -> None:
    spans = list(retraining.read_leaves(reader.read_record(audited)))
    assert spans == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 44)]
    kept = {int(file.stem[-8:]) for file in reader.list_checkpoints(audited / "checkpoints")}
    assert kept == {10, 20, 30, 40, 44}  # not 22: an epoch's end, no longer among the newest two
    assert "5 stretches" in audit.check(reader.read_record(audited))


def test_an_honest_run_holds_and_leaves_nothing_behind(toolkit: Run, run: Path) -> None:
    before = sorted(path.name for path in run.parent.iterdir())
    keys.make(run.parent.parent / "second")
    key = str(run.parent.parent / "second")
    done = toolkit("reproduce", str(run), "--stretches", "9", "--seed", "beacon", "--json", "--sign", key)
    assert done.returncode == 0, done.stderr
    (record,) = signing.list_comments(run, "replay")
    _, stated = signing.read(record, "replay", artifacts.read_policy([Path(f"{key}.pub")]))
    assert (stated.predicate["result"], stated.predicate["stretches"], stated.predicate["seed"]) == (
        "PASSED",
        9,
        "beacon",
    )
    value = json.loads(done.stdout)["replay"]
    assert (value["seed"], value["stretches"], len(value["repeated"])) == ("beacon", 5, 5)
    assert {item["state"] for item in value["repeated"]} == {"ok"}
    assert value["missed"]["1"] == 0
    assert sorted(path.name for path in run.parent.iterdir()) == before


def test_what_was_not_trained_again_is_not_signed(toolkit: Run, run: Path) -> None:
    keys.make(run.parent.parent / "second")
    maker.change_json(run / "manifest.json", lambda value: value.update(weights_sha256="0" * 64))
    words = ("--stretches", "1", "--sign", str(run.parent.parent / "second"))
    done = toolkit("reproduce", str(run), *words)
    assert done.returncode == 7, done.stderr
    assert list(signing.list_comments(run, "replay")) == []


def test_a_run_that_changes_meanwhile_is_not_signed(run: Path) -> None:
    keys.make(run.parent.parent / "second")
    before = retraining.Audit(
        seed="", asked=1, stretches=5, subjects={"manifest.json": "other"}, findings=(), misses={}
    )
    with pytest.raises(IntegrityError, match="has changed"):
        retraining.sign(run, before, keys.load(str(run.parent.parent / "second")))
    assert list(signing.list_comments(run, "replay")) == []


def test_a_state_from_elsewhere_is_found_by_the_stretches_beside_it(toolkit: Run, run: Path) -> None:
    replace_state(run, 20)
    assert "5 stretches" in audit.check(reader.read_record(run))  # the records fit
    done = toolkit("reproduce", str(run), "--stretches", "5", "--json")
    assert done.returncode == 7, done.stderr
    value = json.loads(done.stdout)
    wrong = [item["facts"]["first"] for item in value["replay"]["repeated"] if item["state"] == "fail"]
    assert wrong == [10, 20]
    assert len(value["replay"]["seed"]) == 32
    assert "steps 11 to 20: another after" in value["error"]["why"]


def edit_metrics(run: Path) -> None:
    def change(leaves: list[dict[str, Any]]) -> None:
        leaves[1]["metrics"][0]["loss"] /= 2

    rewrite(run, change)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    next(line for line in lines if line["step"] == 15)["loss"] /= 2
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_an_edited_loss_is_found_by_its_stretch(toolkit: Run, run: Path) -> None:
    edit_metrics(run)
    done = toolkit("reproduce", str(run), "--stretches", "5")
    assert done.returncode == 7, done.stderr
    assert "1 of 5 findings do not hold" in done.stderr
    assert "steps 11 to 20: another metrics" in done.stderr


def begin_late(run: Path) -> None:
    rewrite(run, lambda leaves: leaves.pop(0))
    maker.change_json(run / "manifest.json", lambda value: value.update(continued_after=10))


def drop_leaf(run: Path) -> None:
    rewrite(run, lambda leaves: leaves.pop(2))


def drop_end(run: Path) -> None:
    rewrite(run, lambda leaves: leaves.pop())


def change_before(run: Path) -> None:
    rewrite(run, lambda leaves: leaves[2].update(before="0" * 64))


def change_config(run: Path) -> None:
    rewrite(run, lambda leaves: leaves[2].update(config="0" * 64))


def change_data(run: Path) -> None:
    rewrite(run, lambda leaves: leaves[0].update(data="0" * 64))


def change_last(run: Path) -> None:
    rewrite(run, lambda leaves: leaves[-1].update(after="0" * 64))


def change_leaf(run: Path) -> None:
    text = (run / audit.FILE).read_text()
    (run / audit.FILE).write_text(text.replace('"last":20', '"last":21'))


def change_metrics(run: Path) -> None:
    text = (run / "metrics.jsonl").read_text().splitlines()
    text[0] = json.dumps({**json.loads(text[0]), "loss": 0.5})
    (run / "metrics.jsonl").write_text("\n".join(text) + "\n")


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (change_leaf, "the manifest another"),
        (begin_late, "its configuration names none"),
        (drop_leaf, "does not begin where the one before it ends"),
        (change_before, "does not begin where the one before it ends"),
        (drop_end, "the leaves end with step 40, and the run with 44"),
        (change_config, "is of another configuration or of other data"),
        (change_data, "is of another configuration or of other data"),
        (change_metrics, "the records of steps 1 to 10 are not those of their leaf"),
        (change_last, "does not hold the state of the last leaf"),
    ],
)
def test_a_record_that_contradicts_itself_needs_no_training(
    run: Path, forge: Callable[[Path], None], message: str
) -> None:
    forge(run)
    with pytest.raises(IntegrityError, match=message):
        audit.check(reader.read_record(run))


def test_verify_names_what_contradicts_itself(toolkit: Run, run: Path) -> None:
    change_leaf(run)
    done = toolkit("reproduce", str(run), "--stretches", "5")
    assert done.returncode == 7
    assert "audit: audit.jsonl has 5 leaves" in done.stderr
    assert "trained again" not in done.stdout


def remove_audit(run: Path) -> None:
    maker.change_json(run / "manifest.json", lambda value: value.pop("audit"))


def remove_checkpoint(run: Path) -> None:
    (run / "checkpoints" / "step-00000020.npz").unlink()


@pytest.mark.parametrize(
    ("spoil", "message"), [(remove_audit, "has no audit data"), (remove_checkpoint, "is not whole")]
)
def test_what_cannot_be_audited_is_refused(run: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(run)
    with pytest.raises(PreflightError, match=message):
        retraining.read_leaves(reader.read_record(run))


def test_a_run_of_kernels_of_another_processor_is_refused(toolkit: Run, run: Path) -> None:
    def move(environment: dict[str, Any]) -> None:
        environment["devices"] = ["another processor"]

    maker.change_json(run / "manifest.json", lambda value: move(value["environment"]))
    maker.change_checkpoint(run, lambda facts, _: move(facts["position"]["environment"]))
    done = toolkit("reproduce", str(run), "--stretches", "1")
    assert done.returncode == 4, done.stderr
    assert "cannot give the same bits here" in done.stderr
    assert "--kernels native" in done.stderr


def test_an_environment_without_replay_says_what_to_do(toolkit: Run, run: Path) -> None:
    """The training job of an older revision, as an image keeps it, has no function that repeats stretches."""
    old = run.parent.parent / "old" / "train"
    shutil.copytree(project.ROOT / "train", old, ignore=shutil.ignore_patterns("__pycache__"))
    job = old / "run" / "job.py"
    job.write_text(job.read_text().replace("def replay(", "def unknown("))
    (python,) = (run.parent.parent / "state").glob("*/venv/bin/python")
    python.unlink()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{old.parent}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    maker.finish(python.parents[2])
    done = toolkit("reproduce", str(run), "--stretches", "1")
    assert done.returncode == 3, done.stderr
    assert "cannot train parts of a run again" in done.stderr
    assert f"toolkit reproduce {run} --engine host" in done.stderr


def test_the_seed_alone_chooses() -> None:
    assert retraining.choose(22, 5, "7") == retraining.choose(22, 5, "7") != retraining.choose(22, 5, "8")
    assert retraining.choose(3, 5, "7") == [0, 1, 2]


@pytest.mark.parametrize(("count", "number", "forged"), [(22, 5, 1), (22, 5, 4), (100, 10, 7)])
def test_the_chance_to_miss_is_that_of_the_formula(count: int, number: int, forged: int) -> None:
    tries = 4000
    bad = set(range(0, 3 * forged, 3))
    missed = sum(not bad & set(retraining.choose(count, number, str(seed))) for seed in range(tries))
    expected = retraining.miss(count, number, forged)
    assert abs(missed / tries - expected) < 4 * math.sqrt(expected * (1 - expected) / tries)


def test_the_chance_to_miss_falls_to_nothing() -> None:
    assert retraining.describe_misses(22, 5) == pytest.approx(
        {1: 17 / 22, 2: 0.588745, 3: 0.441558, 11: 0.017544}, rel=1e-4
    )
    assert retraining.miss(22, 22, 1) == 0
    assert retraining.miss(10**5, 500, 10**4) < 1e-22


def test_a_torn_line_and_leaves_of_later_steps_are_left_out(tmp_path: Path, audited: Path) -> None:
    lines = audit.read_lines(audited)
    (tmp_path / audit.FILE).write_text("\n".join([*lines[:3], lines[3][:50]]))
    position = dict.fromkeys(audit.SUMS, 0) | {"step": 25}
    going = audit.Audit(tmp_path, EVERY)
    going.begin("0" * 64, position)
    assert going.lines == audit.read_lines(tmp_path) == lines[:2]


def test_two_runs_part_in_a_step_and_an_element(toolkit: Run, pair: list[Path]) -> None:
    done = toolkit("compare-runs", *map(str, pair), "--json")
    assert done.returncode == 7, done.stderr
    value = json.loads(done.stdout)
    assert (value["parting"]["equal"], value["parting"]["step"]) == (22, 23)
    assert [item["id"] for item in value["differences"]] == ["config.schedule", "weights"]
    assert value["differences"][0]["evidence"] == "steps, was constant"
    element = value["parting"]["element"]
    assert element["tensor"].startswith("block1/layer1")
    assert element["values"][0] != element["values"][1]
    assert f"the states part in step 23, first in {element['tensor']}{element['index']}: " in value["error"]["why"]


def test_equal_runs_do_not_part(toolkit: Run, run: Path, audited: Path) -> None:
    done = toolkit("compare-runs", str(audited), str(run))
    assert done.returncode == 0, done.stderr
    assert "the states are the same to the bit up to step 44" in done.stdout


@pytest.mark.slow
def test_runs_of_other_seeds_differ_before_the_first_step(toolkit: Run, audited: Path, tmp_path: Path) -> None:
    other = maker.train(tmp_path / "other", "--audit-every", "15", "--seed", "1")
    done = toolkit("compare-runs", str(audited), str(other), "--json", TOOLKIT_ENGINE="host")
    assert done.returncode == 7, done.stderr
    assert "the states differ before the first step, first in " in json.loads(done.stdout)["error"]["why"]


def change_end(run: Path) -> None:
    """Claim other states from step 20 on."""

    def change(leaves: list[dict[str, Any]]) -> None:
        leaves[1]["after"] = leaves[2]["before"] = "0" * 64

    rewrite(run, change)


@pytest.mark.slow
def test_what_two_runs_only_claim_is_told_apart(toolkit: Run, run: Path, audited: Path) -> None:
    change_end(run)
    done = toolkit("compare-runs", str(audited), str(run))
    assert done.returncode == 7, done.stderr
    assert "steps 11 to 20 of both, trained again, give the same" in done.stderr
    shutil.copytree(audited / "checkpoints", run / "checkpoints", dirs_exist_ok=True)
    for end in ("json", "npz"):
        shutil.copy(run / "checkpoints" / f"step-00000030.{end}", run / "checkpoints" / f"step-00000010.{end}")
    assert toolkit("compare-runs", str(audited), str(run)).returncode == 8


def state(tmp_path: Path, step: int, /, **arrays: Any) -> reader.SavedState:
    made = checkpoint.save(tmp_path / str(step), arrays, checkpoint.Position(step=step), keep=1)
    return reader.read_state(made.with_suffix(".json"))


def test_the_first_element_is_that_of_the_first_layer(tmp_path: Path) -> None:
    def make(step: int, /, **changed: Any) -> reader.SavedState:
        zeros = {name: np.zeros((2, 3), np.float32) for name in ("layer10/kernel", "layer9/kernel", "slots/a/0")}
        return state(tmp_path, step, **(zeros | {"step": np.array(7)} | changed))

    other = np.zeros((2, 3), np.float32)
    other[1, 2], other[1, 1] = 4, 0.5
    assert retraining._find_element(make(1), make(2)) is None
    found = retraining._find_element(make(1), make(3, **dict.fromkeys(("layer10/kernel", "layer9/kernel"), other)))
    assert found == retraining.Element(tensor="layer9/kernel", index=(1, 1), values=("0.0", "0.5"), tensors=2)
    found = retraining._find_element(make(1), make(4, **{"slots/a/0": other[:1], "step": np.array(8)}))
    assert found
    assert (found.tensor, found.values) == ("slots/a/0", ("<f4 (2, 3)", "<f4 (1, 3)"))
    found = retraining._find_element(make(1), make(5, step=np.array(8)))
    assert found == retraining.Element(tensor="step", index=(0,), values=("7", "8"), tensors=1)
    half = [np.array([1, 2], np.float16).view("V2"), np.array([1, 3], np.float16).view("V2")]
    found = retraining._find_element(*(state(tmp_path, 6 + number, a=each) for number, each in enumerate(half)))
    assert found
    assert (found.index, found.values) == ((1,), ("0040", "0042"))
