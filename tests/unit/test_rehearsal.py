import json
from pathlib import Path

import pytest

from toolkit import project, rehearsal
from toolkit.console import Console
from toolkit.engine import Environment
from toolkit.engine.host import HostEngine
from toolkit.errors import JobError, UnsupportedError, UsageError
from toolkit.pipeline import make_host_engine
from toolkit.settings import Settings, resolve
from toolkit.versions import load_table
from train.errors import UsageError as TrainUsageError


def settle(tmp_path: Path, **flags: str) -> Settings:
    return resolve({"state": str(tmp_path), **flags}, environment={})


def test_the_set_has_the_cuda_build_and_none_of_nvidias_libraries() -> None:
    item = load_table().rehearsal
    locked = project.locate(f"docker/requirements/{item.requirements}.txt").read_text()
    named = [line.split("==")[0] for line in locked.splitlines() if "==" in line]
    assert f"tensorflow=={item.tensorflow}" in locked
    assert [name for name in named if name.startswith("nvidia-")] == ["nvidia-cuda-nvcc-cu12"]


def test_the_job_is_pasteable_and_keeps_its_library_in_the_environment(tmp_path: Path) -> None:
    settings = settle(tmp_path)
    engine, spec = make_host_engine(settings), rehearsal.choose_spec(settings)
    planned = engine.plan(spec)
    assert "environment-rehearse-" in planned.reference
    (command,) = engine.commands(planned.reference, rehearsal.plan_job(["digits", "--gpu", "l4"], planned.reference))
    assert command[4:9] == ("-P", "-m", "train.rehearsal", "digits", "--gpu")
    assert command[-2:] == ("--library-cache", f"{planned.reference}/rehearsal")


@pytest.mark.parametrize(
    ("flags", "error"),
    [({"engine": "docker"}, UsageError), ({"tensorflow": "2.18.0"}, UnsupportedError)],
)
def test_what_cannot_be_rehearsed_is_refused(flags: dict[str, str], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        rehearsal.choose_spec(settle(tmp_path, **flags))


def test_a_wrong_argument_is_refused_before_anything_is_made() -> None:
    with pytest.raises(TrainUsageError):
        rehearsal.plan_job(["digits", "--gpu", "voodoo"], "environment")


@pytest.mark.parametrize(("code", "lines"), [(0, ['{"passed":', " true}"]), (7, ['{"passed": false}']), (4, [])])
def test_a_report_is_passed_on_with_its_exit_code(
    code: int, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: HostEngine, environment: Environment, job: object, listener: object) -> int:
        for line in lines:
            listener(line)  # type: ignore[operator]
        return code

    monkeypatch.setattr(HostEngine, "run", run)
    environment = Environment(kind="environment", digest="d", reference="r", folder=tmp_path, reused=True)
    console = Console(json=True)
    if code:
        with pytest.raises(JobError) as caught:
            rehearsal.run(HostEngine(tmp_path), environment, ["digits"], console)
        assert (caught.value.exit_code, caught.value.reported) == (code, True)
    else:
        rehearsal.run(HostEngine(tmp_path), environment, ["digits"], console)
    console.close()
    assert json.loads(capsys.readouterr().out) == (json.loads("".join(lines)) if lines else {})
