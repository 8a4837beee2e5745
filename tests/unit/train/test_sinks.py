import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import slow
from tests.unit.train import runs
from train.command_line import parse
from train.run import sinks

SECRET = "hunter2"  # noqa: S105
STEPS = ("--steps", "4", "--log-every", "1")
PYTHON = os.environ.get("TOOLKIT_MLFLOW_PYTHON", "")
"""A Python that has MLflow and Weights & Biases, and finds what this one has."""

needs_mlflow = pytest.mark.skipif(not PYTHON, reason="TOOLKIT_MLFLOW_PYTHON names no Python with MLflow and wandb")


class Notebook:
    run = "a-run"

    def __init__(self) -> None:
        self.records: list[tuple[int, Mapping[str, float]]] = []
        self.files: list[str] = []
        self.ends: list[bool] = []

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.records.append((step, values))

    def keep(self, file: Path) -> None:
        assert file.exists()
        self.files.append(file.name)

    def end(self, *, complete: bool) -> None:
        self.ends.append(complete)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("without")
    runs.make(out, *STEPS)
    return runs.read_digest(out, *STEPS)


def test_a_sink_gets_every_record_and_changes_nothing(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = Notebook()
    monkeypatch.setattr(sinks, "_open", lambda *_: notebook)
    folder = runs.make(tmp_path, *STEPS, "--log-to", "mlflow")
    assert folder.name == runs.find_folder(tmp_path, *STEPS).name, "where records are sent does not decide a run"
    manifest = runs.read_manifest(tmp_path, *STEPS)
    assert manifest["weights_sha256"] == expected
    steps = [(step, values["step/loss"]) for step, values in notebook.records if "step/loss" in values]
    lines = [(line["step"], line["loss"]) for line in runs.read_lines(folder) if line["kind"] == "step"]
    assert steps == lines
    (last,) = [values for _, values in notebook.records if "result/test_accuracy" in values]
    assert last["result/test_accuracy"] == manifest["result"]["test_accuracy"]
    assert {"README.md", "samples.png", "mistakes.png"} <= set(notebook.files)
    assert notebook.ends == [True]


@pytest.mark.parametrize("when", ["open", slow("log"), "keep", "end"])
def test_a_sink_that_fails_costs_one_warning(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ConnectionError(f"https://someone:{SECRET}@server refused")

    notebook = Notebook()
    if when == "open":
        monkeypatch.setattr(sinks, "_open", fail)
    else:
        monkeypatch.setattr(notebook, when, fail)
        monkeypatch.setattr(sinks, "_open", lambda *_: notebook)
    if when in {"open", "log"}:
        folder = runs.make(tmp_path, *STEPS, "--log-to", "mlflow")
        assert runs.read_digest(tmp_path, *STEPS) == expected
        assert not any(SECRET in path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
    else:
        from train.run.display import Display

        with sinks.sending(parse(["digits", "--log-to", "mlflow"]), tmp_path, Display("plain")) as sent:
            sent.finish({"steps": 1}, [tmp_path])
    said = capsys.readouterr().err
    assert said.count("warning: mlflow gets no more records: ConnectionError; the run itself goes on") == 1
    assert SECRET not in said


def test_the_end_of_a_run_does_not_wait_for_a_sink_that_hangs() -> None:
    ended, said = threading.Event(), []

    def hang() -> Any:
        ended.wait(60)

    worker = sinks.Worker("wandb", hang, said.append)
    worker.put(lambda sink: sink.log({}, 1))
    worker.close(0.1)
    ended.set()
    assert said == ["wandb gets no more records: it did not answer within 0 seconds; the run itself goes on"]


def find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    port, place = find_port(), tmp_path / "server"
    place.mkdir()
    store = ["--backend-store-uri", f"sqlite:///{place}/runs.db", "--artifacts-destination", str(place / "files")]
    command = [PYTHON, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", *store]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place, start_new_session=True)
        try:
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None, (place / "log").read_text()
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, 15)
            process.wait(60)


READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient()
experiment = client.get_experiment_by_name("digits")
(run,) = client.search_runs([experiment.experiment_id])
history = client.get_metric_history(run.info.run_id, "step/loss")
print(json.dumps({
    "name": run.info.run_name, "status": run.info.status, "parameters": run.data.params, "metrics": run.data.metrics,
    "losses": [[each.step, each.value] for each in history],
    "files": sorted(each.path for each in client.list_artifacts(run.info.run_id)),
}))
"""


@pytest.mark.weekly
@needs_mlflow
def test_a_real_server_and_an_offline_folder_get_a_run(expected: str, tmp_path: Path, server: str) -> None:
    """The run is resumed once: both sinks must go on with the run that they have."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_"))}
    variables |= {"MLFLOW_TRACKING_URI": server, "MLFLOW_TRACKING_TOKEN": SECRET, "HOME": str(tmp_path)}
    options = [*runs.ARGUMENTS, *STEPS, "--checkpoint-every", "2", "--out", str(tmp_path / "runs"), "--json"]
    command = [PYTHON, "-m", "train", *options, "--log-to", "mlflow,wandb"]
    for again in (False, True):
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "gets no more records" not in done.stderr
        assert json.loads(done.stdout)["weights_sha256"] == expected
        folder = parse(options).run_dir
        if not again:
            (folder / "manifest.json").unlink()
            for path in (folder / "checkpoints").glob("step-00000004.*"):
                path.unlink()
    found = json.loads(subprocess.check_output([PYTHON, "-c", READ], env=variables, text=True))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["resumed_after"] == [2]
    assert (found["name"], found["status"]) == (folder.name, "FINISHED")
    assert found["parameters"]["config_sha256"] == manifest["config_sha256"]
    assert "out" not in found["parameters"]
    lines = [[line["step"], line["loss"]] for line in runs.read_lines(folder) if line["kind"] == "step"]
    assert [pair for pair in found["losses"] if pair in lines][: len(lines)] != []
    assert sorted(found["losses"]) == sorted([*lines, *lines[2:]]), "steps that were done again are there twice"
    assert found["metrics"]["result/test_accuracy"] == manifest["result"]["test_accuracy"]
    assert {"README.md", "samples.png", "mistakes.png", "curves.png"} <= set(found["files"])
    offline = list((folder / "wandb").glob("offline-run-*/*.wandb"))
    assert len(offline) == 2, "one for each part of the run"
    name = (folder / "wandb.id").read_text(encoding="utf-8").strip()
    assert all(name in path.name and path.stat().st_size > 1000 for path in offline)
    for path in folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.weekly
@needs_mlflow
def test_a_server_that_is_gone_does_not_end_a_run(expected: str, tmp_path: Path) -> None:
    address = f"http://someone:{SECRET}@127.0.0.1:{find_port()}"
    variables = os.environ | {"MLFLOW_TRACKING_URI": address, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    options = [*runs.ARGUMENTS, *STEPS, "--out", str(tmp_path), "--log-to", "mlflow"]
    done = subprocess.run([PYTHON, "-m", "train", *options], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.count("warning: mlflow gets no more records") == 1
    assert SECRET not in done.stderr + done.stdout
    assert runs.read_digest(tmp_path, *STEPS) == expected
