import json
from pathlib import Path

import pytest

from tests.command import Run
from tests.unit.records import maker


@pytest.fixture
def toolkit(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_run_and_its_environment(toolkit: Run, run: Path, state: Path) -> None:
    variables = {"TOOLKIT_STATE": str(state)}
    for place in (run, run / "manifest.json"):
        done = toolkit("verify", str(place), "--strict", **variables)
        assert done.returncode == 0, done.stderr
        assert f"run {run.name[-8:]} of digits, test accuracy " in done.stderr
        assert ": verified by its records alone: 16 of 17 findings hold, 1 skipped" in done.stdout
    done = toolkit("verify", str(maker.plan_environment(state).folder), "--json", **variables)
    value = json.loads(done.stdout)
    assert (done.returncode, value["kind"]) == (0, "environment")
    assert {item["state"] for item in value["findings"]} == {"ok"}


def test_a_file_that_the_toolkit_does_not_write_is_named_and_an_error_only_when_asked(
    toolkit: Run, run: Path, state: Path
) -> None:
    for name in ("tb/events", "export/model.onnx", "report.html"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).touch()
    assert toolkit("verify", str(run), "--strict", TOOLKIT_STATE=str(state)).returncode == 0
    (run / "extra.txt").touch()
    done = toolkit("verify", str(run), TOOLKIT_STATE=str(state))
    assert done.returncode == 0, done.stderr
    assert "16 of 18 findings hold, 1 skipped, 1 warning; not covered by the record: extra.txt\n" in done.stdout
    strict = toolkit("verify", str(run), "--strict", TOOLKIT_STATE=str(state))
    assert strict.returncode == 7
    assert "ask who added them, or remove them" in strict.stderr


def test_the_table_fits_the_terminal_and_breaks_no_digest(toolkit: Run, run: Path, state: Path) -> None:
    weights = json.loads((run / "manifest.json").read_text())["weights_sha256"]
    for columns, shown in (("80", f"{weights[:12]}…"), ("120", weights)):
        said = toolkit("verify", str(run), TOOLKIT_STATE=str(state), COLUMNS=columns).stderr
        assert shown in said
        assert max(len(line) for line in said.splitlines()) <= min(100, int(columns))


def test_what_fails_is_named_and_the_code_is_7(toolkit: Run, run: Path, state: Path) -> None:
    maker.change_json(run / "manifest.json", lambda value: value.update(weights_sha256="0" * 64))
    done = toolkit("verify", str(run), "--json", TOOLKIT_STATE=str(state))
    value = json.loads(done.stdout)
    assert done.returncode == value["error"]["code"] == 7
    assert [item["id"] for item in value["findings"] if item["state"] == "fail"] == ["weights"]
    assert value["error"]["why"].startswith("weights: ")
    assert value["error"]["what"] == "1 of 17 findings does not hold"
    assert "not verified: 15 of 17 findings hold" in toolkit("verify", str(run), TOOLKIT_STATE=str(state)).stdout


def test_a_run_that_was_stopped_says_how_it_goes_on(toolkit: Run, run: Path) -> None:
    (run / "manifest.json").unlink()
    done = toolkit("verify", str(run))
    assert done.returncode == 7
    assert f"or `toolkit train --config {run}/config.yaml --out {run.parent}`" in done.stderr
    assert "not verified: 1 finding does not hold" in done.stdout


def test_a_run_is_no_wheel_to_push(toolkit: Run, run: Path) -> None:
    done = toolkit("push", str(run), "localhost:5000/wheels")
    assert (done.returncode, f"{run} has no wheel" in done.stderr) == (2, True)


def test_what_is_not_here_is_an_error_only_when_asked(toolkit: Run, run: Path) -> None:
    maker.change_json(run / "manifest.json", lambda value: value["parent"].update(reference="gone"))
    done = toolkit("verify", str(run))
    assert done.returncode == 0
    assert "alone, except the environment behind it, which cannot be checked here: 9 of 11 findings hold" in done.stdout
    strict = toolkit("verify", str(run), "--strict")
    assert strict.returncode == 7
    assert "verify it where it was trained, or fetch that environment" in strict.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "there is no nowhere"),
        (["."], 8, "holds no wheel"),
        (["toolkit/train:none"], 5, "container engine"),
    ],
)
def test_bad_targets_get_one_message_and_their_code(
    toolkit: Run, arguments: list[str], code: int, message: str
) -> None:
    done = toolkit("verify", *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
