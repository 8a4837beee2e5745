import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import loaded
from tests.command import Run
from tests.native import needs_native
from tests.tiers import slow
from tests.unit.records import maker
from toolkit.base.console import Console
from toolkit.base.errors import InterruptionError
from toolkit.jobs import choice, reproduction, training_job
from toolkit.versions.settings import resolve
from train.command_line import parse
from train.config.configuration import digest_fields
from train.native import library

ZERO = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def state(tmp_path: Path) -> Path:
    maker.make_environment(tmp_path / "state", loaded.start())
    return tmp_path / "state"


@pytest.fixture
def toolkit(tmp_path: Path) -> Run:
    return Run(tmp_path, TOOLKIT_STATE=str(tmp_path / "state"), TOOLKIT_RUNS=str(tmp_path / "runs"))


def names(run: Path) -> list[str]:
    return sorted(path.name for path in run.parent.iterdir())


def test_a_run_gives_its_weights_again_and_leaves_nothing(toolkit: Run, run: Path) -> None:
    before = names(run)
    done = toolkit("reproduce", str(run), "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["level"] == "R4"
    assert value["comparison"]["equal"]
    assert value["comparison"]["compared"] == 10
    assert value["comparison"]["first"] is None
    assert {link["state"] for link in value["links"]} == {"same"}
    assert value["kept"] is None
    assert names(run) == before


def claim_another_seed(run: Path) -> None:
    def change(value: dict[str, Any]) -> None:
        value["config"]["seed"] = 4
        value["config_sha256"] = digest_fields(value["config"])

    maker.change_json(run / "manifest.json", change)
    digest = json.loads((run / "manifest.json").read_text())["config_sha256"]
    maker.change_checkpoint(run, lambda facts, _: facts["position"].update(config_sha256=digest))
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("seed: 3", "seed: 4"))


def test_other_weights_are_kept_and_where_they_part_is_said(toolkit: Run, run: Path) -> None:
    claim_another_seed(run)
    done = toolkit("reproduce", str(run / "manifest.json"), "--json")
    assert done.returncode == 7, done.stderr
    value = json.loads(done.stdout)
    assert value["level"] == "R3"
    first = value["comparison"]["first"]
    assert (first["kind"], first["step"], first["name"]) == ("step", 5, "loss")
    assert "loss of step 5" in value["error"]["why"]
    kept = Path(value["kept"])
    assert kept.parent.name == f"{run.name}-again-1"
    assert json.loads((kept / "manifest.json").read_text())["weights_sha256"] == value["comparison"]["found"]
    assert names(run) == sorted([run.name, kept.parent.name])


@pytest.mark.slow
def test_a_run_without_an_environment_is_repeated_by_the_settings(toolkit: Run, run: Path) -> None:
    """An interrupted run is also repeated, without a break, and --keep keeps an equal second run."""
    maker.change_json(run / "manifest.json", lambda value: value.update(parent=None, resumed_after=[22]))
    done = toolkit("reproduce", str(run), "--engine", "host", "--keep", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["level"] == "R4"
    assert {link["state"] for link in value["links"]} == {"same", "unknown"}
    assert (Path(value["kept"]) / "curves.png").exists()
    assert "the run names no environment" in done.stderr


def move(run: Path, name: str, value: object) -> None:
    """Change a fact of the environment throughout the record: it stays consistent, but names another machine."""
    maker.change_json(run / "manifest.json", lambda record: record["environment"].update({name: value}))
    maker.change_checkpoint(run, lambda facts, _: facts["position"]["environment"].update({name: value}))


@pytest.mark.parametrize(("name", "value"), [("devices", ["another processor"]), slow("tensorflow", "2.18.0")])
def test_another_machine_or_version_is_refused_before_training(
    toolkit: Run, run: Path, name: str, value: object
) -> None:
    move(run, name, value)
    before = names(run)
    done = toolkit("reproduce", str(run))
    assert done.returncode == 4, done.stderr
    assert "cannot give the same bits here" in done.stderr
    assert f"{name} is " in done.stderr
    assert "first step" not in done.stderr
    assert names(run) == before


@needs_native
def test_a_run_of_native_kernels_is_repeated_on_another_machine(toolkit: Run, tmp_path: Path, state: Path) -> None:
    environment = maker.describe_environment(state)
    run = maker.train(tmp_path / "runs", "--epochs", "1", kernels=("--kernels", "native"), parent=environment)
    move(run, "devices", ["another processor"])
    move(run, "threads", 7)
    done = toolkit("reproduce", str(run), "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert (value["level"], value["comparison"]["equal"], value["comparison"]["first"]) == ("R5", True, None)
    move(run, "kernels", "0" * 64)
    done = toolkit("reproduce", str(run))
    assert done.returncode == 4, done.stderr
    assert f"kernels is {library.digest_source()}, was {'0' * 64}" in done.stderr


@pytest.mark.slow
def test_other_data_is_refused_before_training(toolkit: Run, run: Path) -> None:
    move(run, "data_sha256", "0" * 64)
    maker.change_json(run / "manifest.json", lambda value: value["data"].update(sha256="0" * 64))
    done = toolkit("reproduce", str(run))
    assert done.returncode == 4, done.stderr
    assert "data_sha256 is " in done.stderr


def test_other_software_is_refused(toolkit: Run, run: Path) -> None:
    def change(value: dict[str, Any]) -> None:
        value["parent"].update(digest=ZERO, parent={"kind": "wheel", "name": "w", "digest": ZERO})

    maker.change_json(run / "manifest.json", change)
    done = toolkit("reproduce", str(run))
    assert done.returncode == 4, done.stderr
    assert "not the software that the run was made with" in done.stderr


@pytest.mark.slow
def test_the_same_wheel_in_another_environment_will_do(toolkit: Run, run: Path) -> None:
    maker.change_json(run / "manifest.json", lambda value: value["parent"].update(digest=ZERO, code=ZERO))
    done = toolkit("reproduce", str(run), "--json")
    assert done.returncode == 0, done.stderr
    states = {link["name"]: link["state"] for link in json.loads(done.stdout)["links"]}
    assert (states["environment"], states["wheel"], states["training job"]) == ("other", "same", "other")
    assert f"the same wheel {maker.WHEEL_DIGEST}" in done.stderr


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda run: maker.change_json(run / "manifest.json", change)


def go_on_elsewhere(run: Path) -> None:
    maker.change_json(run / "manifest.json", lambda value: value.update(resumed_after=[22]))
    maker.change_checkpoint(run, lambda facts, _: facts["position"]["environment"].update(threads=1))


def upgrade_environment(run: Path) -> None:
    folder = maker.plan_environment(run.parent.parent / "state").folder
    maker.change_json(folder / "packages.json", lambda value: value["packages"]["tensorflow-cpu"].update(version="0"))


@pytest.mark.parametrize(
    ("spoil", "code", "message"),
    [
        (go_on_elsewhere, 4, "more than one environment"),
        (lambda run: (run / "manifest.json").unlink(), 7, "its newest checkpoint is of step 44"),
        (edit(lambda value: value.update(weights_sha256="0" * 64)), 7, "weights: "),
        (edit(lambda value: value["config"].update(data_dir="/nowhere")), 2, "--data-dir"),
        (edit(lambda value: value["config"].update(init_from="/init")), 2, "--source"),
        (upgrade_environment, 7, "packages: "),
        (edit(lambda value: value["parent"].update(kind="image")), 5, "container engine"),
    ],
)
def test_what_cannot_be_repeated_is_refused_at_once(
    toolkit: Run, run: Path, spoil: Any, code: int, message: str
) -> None:
    spoil(run)
    done = toolkit("reproduce", str(run))
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not list(run.parent.glob("*again*"))


def test_a_dry_run_prints_the_question_and_the_job(toolkit: Run, run: Path) -> None:
    before = names(run)
    done = toolkit("reproduce", str(run), "--dry-run")
    assert done.returncode == 0, done.stderr
    question, job = (shlex.split(line) for line in done.stdout.splitlines())
    assert question[question.index("-P") + 1] == str(reproduction.PROBE)
    assert question[question.index("-P") + 2 :] == job[job.index("-P") + 3 :]
    assert job[job.index("-P") + 1 :][:3] == ["-m", "train", "digits"]
    config, record = parse(job[job.index("digits") :]), json.loads((run / "manifest.json").read_text())
    assert (config.digest, config.log_every) == (record["config_sha256"], 5)
    assert job[job.index("--config") + 1] == str(run / "config.yaml")
    assert job[job.index("--out") + 1] == str(run.parent / f"{run.name}-again-1")
    assert names(run) == before


def test_a_run_whose_environment_is_not_here_gets_one_of_its_own_tensorflow(toolkit: Run, run: Path) -> None:
    path = run / "manifest.json"
    value = json.loads(path.read_text())
    path.write_text(
        json.dumps({**value, "software": {**value["software"], "tensorflow": "2.20.0", "tensorflow-cpu": ""}})
    )
    done = toolkit("reproduce", str(run), "--engine", "host", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "environment-cpu-2.20.0" in done.stdout


def test_an_interrupt_leaves_nothing_and_says_that_nothing_goes_on(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = run.with_name(".0123456789ab.aaaaaaaa")
    killed.mkdir()
    during = []

    def stop(*_: object, **__: object) -> None:
        during.extend(names(run))
        raise KeyboardInterrupt

    settings = resolve({}, environment={"TOOLKIT_STATE": str(tmp_path / "state"), "TOOLKIT_RUNS": str(run.parent)})
    console = Console(verbosity=-1)
    found = reproduction.plan(run, choice.Wishes(settings=settings), choice.Manner(console=console), data_dir="")
    monkeypatch.setattr(reproduction, "probe", lambda *_: found.record.environment)
    monkeypatch.setattr(training_job, "run", stop)
    with pytest.raises(InterruptionError) as caught:
        reproduction.repeat(found, console, keep=True)
    assert "from the beginning" in caught.value.remedy
    assert names(run) == [run.name]
    # Until the second run is finished its folder is hidden; one that a killed command left is removed.
    hidden, own = during
    assert (hidden[0], own) == (".", run.name)
    assert hidden != killed.name
