import json
import shutil
from pathlib import Path

import pytest

from tests.unit.train import runs
from toolkit.engine import container
from toolkit.jobs import training_job
from toolkit.records.run import check_run
from train.cli import main
from train.command_line import parse
from train.errors import DataError, IntegrityError, UsageError
from train.record import checkpoint, initial, reader

SHORT = ("--epochs", "1", "--schedule", "constant", "--ema", "0.5")
LONG = ("--epochs", "2", "--schedule", "constant", "--ema", "0.5")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make(tmp_path_factory.mktemp("short"), *SHORT)


def go_on(source: Path, *options: str) -> tuple[str, ...]:
    return ("--continue", str(source), "--epochs", "2", *options)


@pytest.fixture(scope="module")
def longer(short: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.make(tmp_path_factory.mktemp("longer"), *go_on(short, "--checkpoint-every", "2"))


def test_a_constant_rate_gives_the_weights_of_an_unbroken_run(longer: Path, tmp_path: Path) -> None:
    unbroken, record = runs.make(tmp_path, *LONG), reader.read_record(longer)
    assert record.value["weights_sha256"] == runs.read_digest(tmp_path, *LONG)
    assert runs.read_lines(longer) == runs.read_lines(unbroken), "the records of both runs together"
    assert (record.value["continued_after"], record.resumed) == (runs.STEPS, ())
    assert {finding.state for finding in check_run(record)} <= {"ok", "skipped"}
    assert f"the run that it goes on from | {runs.STEPS} steps" in (longer / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_drawing")
def test_it_resumes_to_the_bit_without_the_first_run(longer: Path, tmp_path: Path) -> None:
    folder = tmp_path / longer.name
    shutil.copytree(longer, folder)
    change_config(folder, "continue_from: /", "continue_from: /gone/")
    (folder / "manifest.json").unlink()
    for path in (folder / "checkpoints").glob(f"step-{2 * runs.STEPS:08}.*"):
        path.unlink()
    assert main(["--config", str(folder / "config.yaml")]) == 0
    before, after = reader.read_record(longer).value, reader.read_record(folder).value
    assert (after["resumed_after"], after["continued_after"]) == ([2 * runs.STEPS - 2], runs.STEPS)
    assert after["weights_sha256"] == before["weights_sha256"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epochs", "1"), "needs a greater --epochs than the 1"),
        ((), "needs a greater --epochs than the 1"),
        (("--steps", str(runs.STEPS)), f"needs a greater --steps than the {runs.STEPS}"),
        (("--epochs", "3", "--mixup", "0.2"), "--mixup 0.2 contradicts the recorded configuration"),
        (("--epochs", "3", "--init-from", "."), "leave one out"),
    ],
)
def test_what_does_not_go_on_is_refused(short: Path, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(["--continue", str(short), *options])
    assert message in str(error.value)


def change_config(folder: Path, old: str, new: str) -> None:
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    assert old in text
    (folder / "config.yaml").write_text(text.replace(old, new), encoding="utf-8")


def test_runs_that_cannot_go_on_are_refused(
    short: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run"
    shutil.copytree(short, place)
    change_config(place, "validation: 0", "validation: 9")
    change_config(place, "best: false", "best: true")
    with pytest.raises(UsageError, match="an epoch that it chose"):
        parse([*go_on(place)])
    change_config(place, "best: true", "best: false")
    (place / "manifest.json").unlink()
    assert main([*go_on(place)]) == IntegrityError.exit_code
    assert "no readable manifest" in capsys.readouterr().err
    shutil.copy(short / "manifest.json", place)
    for path in (place / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="no checkpoint to go on from"):
        parse([*go_on(place)])
    for path in runs.find_folder(finished, "--checkpoint-every", "4").joinpath("checkpoints").iterdir():
        shutil.copy(path, place / "checkpoints")
    with pytest.raises(IntegrityError, match="has other weights than those with which the run ended"):
        parse([*go_on(place)])


def test_another_state_than_recorded_is_refused(short: Path, finished: Path, tmp_path: Path) -> None:
    config = parse([*go_on(short)])
    other = runs.find_folder(finished, "--checkpoint-every", "4")
    argv = ["--config", str(runs_config(tmp_path, config.as_dict())), "--continue", str(other)]
    with pytest.raises(IntegrityError, match="is not what this run goes on from"):
        initial.load_state(parse(argv), tmp_path)
    assert not (tmp_path / "metrics.csv").exists()
    initial.load_state(config, tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == (short / "metrics.csv").read_bytes()


def runs_config(folder: Path, values: dict[str, object]) -> Path:
    path = folder / "config.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_a_run_that_ended_within_an_epoch_is_refused(short: Path) -> None:
    with pytest.raises(UsageError, match="ended within an epoch, after step 7"):
        initial.require_whole_epochs(7, runs.STEPS)
    saved, _ = checkpoint.load(short / "checkpoints")
    assert saved
    initial.require_whole_epochs(saved.position.step, runs.STEPS)


def test_a_container_sees_the_finished_run_read_only(short: Path) -> None:
    arguments = ["digits", *go_on(short)]
    asked = container.describe(training_job.plan(arguments, parse(arguments), None, gpu=False), image="image")
    assert asked.argv[-2:] == ("--continue", "/continued")
    assert (str(short.resolve()), "/continued", True) in asked.mounts
