import json
from pathlib import Path

import numpy as np
import pytest

from tests.tiers import slow
from tests.unit.train import runs
from train.cli import main
from train.command_line import parse
from train.errors import DataError, IntegrityError
from train.model.densenet import build
from train.record import checkpoint, initial
from train.step.state import assign_weights, digest_weights, name_weights
from train.use import network

pytestmark = pytest.mark.usefixtures("no_drawing")

OPTIONS = ("--checkpoint-every", "4")


@pytest.fixture
def source(finished: Path) -> Path:
    return runs.find_folder(finished, *OPTIONS)


def read(folder: Path) -> dict[str, np.ndarray]:
    saved, _ = checkpoint.load(folder / "checkpoints")
    assert saved
    return saved.values


def test_a_run_starts_from_the_weights_of_another(source: Path) -> None:
    config = parse(["digits", "--init-from", str(source)])
    assert (config.model, config.layers) == ("bc-10-12", (1, 1, 1))
    start = initial.load_weights(config)
    model = build(config)
    assert assign_weights(model, start, start.class_names) == "all weights"
    assert digest_weights(name_weights(model)) == runs.read_manifest(source.parent, *OPTIONS)["weights_sha256"]
    trained = network.load(source)
    environment = trained.position.environment
    assert (list(start.mean), list(start.std)) == (environment["mean"], environment["std"])


def test_other_classes_get_a_new_classifier(source: Path) -> None:
    config = parse(["digits", "--init-from", str(source)])
    start, model = initial.load_weights(config), build(config)
    before = {name: variable.numpy() for name, variable in name_weights(model).items()}
    others = tuple(f"other {number}" for number in range(10))
    assert "but the classifier's, for 10 other classes" in assign_weights(model, start, others)
    for name, variable in name_weights(model).items():
        same = before if name.startswith("classifier/") else start.values
        assert np.array_equal(variable.numpy(), same[name])


@pytest.mark.parametrize(
    ("freeze", "kept", "options"),
    [
        ("1", ("stem/", "block1/", "scale1/", "transition1/"), ()),
        slow("1", ("stem/", "block1/", "scale1/", "transition1/"), ("--kernels", "stock")),
        slow("all", ("stem/", "block", "scale", "transition"), ("--optimizer", "adam", "--learning-rate", "0.01")),
    ],
)
def test_frozen_blocks_keep_their_weights_and_averages(
    source: Path, tmp_path: Path, freeze: str, kept: tuple[str, ...], options: tuple[str, ...]
) -> None:
    folder = runs.make(tmp_path, "--init-from", str(source), "--freeze", freeze, "--steps", "2", *options)
    before, after = read(source), read(folder)
    weights = name_weights(build(parse(["digits", "--init-from", str(source)])))
    for name in weights:
        assert np.array_equal(before[name], after[name]) == name.startswith(kept), name
    slots = {name.split("/", 1)[1] for name in after if name.startswith("slots/")}
    assert slots
    assert not any(name.startswith(kept) for name in slots)


def test_running_averages_begin_as_the_weights_of_the_other_run(source: Path, tmp_path: Path) -> None:
    folder = runs.make(tmp_path, "--init-from", str(source), "--freeze", "all", "--ema", "0.9", "--steps", "1")
    before, after = read(source), read(folder)
    np.testing.assert_allclose(after["stem/kernel"], before["stem/kernel"], rtol=1e-6)


def test_a_run_that_starts_from_another_resumes_to_the_bit(source: Path, tmp_path: Path) -> None:
    options = ("--init-from", str(source), "--steps", "4", "--checkpoint-every", "2")
    folder = runs.make(tmp_path, *options)
    expected = runs.read_digest(tmp_path, *options)
    (folder / "manifest.json").unlink()
    for path in (folder / "checkpoints").glob("step-00000004.*"):
        path.unlink()
    assert runs.run(tmp_path, *options) == 0
    manifest = runs.read_manifest(tmp_path, *options)
    assert manifest["resumed_after"] == [2]
    assert manifest["weights_sha256"] == expected
    assert manifest["environment"]["mean"] == network.load(source).position.environment["mean"]


def test_other_weights_than_recorded_are_refused(source: Path, learnt: Path, tmp_path: Path) -> None:
    recorded = tmp_path / "config.yaml"
    recorded.write_text(json.dumps(parse(["digits", "--init-from", str(source)]).as_dict()), encoding="utf-8")
    config = parse(["--config", str(recorded), "--init-from", str(learnt)])
    with pytest.raises(IntegrityError, match="are not those that this run begins with"):
        initial.load_weights(config)


def test_weights_that_do_not_fit_are_refused(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["digits", "--init-from", str(source), "--depth", "16", "--out", str(tmp_path / "out")]
    assert main(argv) == DataError.exit_code
    assert "do not fit the model" in capsys.readouterr().err
    assert main(["digits", "--init-from", str(tmp_path)]) == DataError.exit_code
    assert str(tmp_path) in capsys.readouterr().err
