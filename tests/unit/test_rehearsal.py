import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.graft import maker
from toolkit import project, rehearsal
from toolkit.console import Console
from toolkit.engine import Environment, host
from toolkit.engine.host import HostEngine
from toolkit.errors import JobError, ToolkitError, UnsupportedError, UsageError
from toolkit.pipeline import make_host_engine
from toolkit.settings import Settings, resolve
from toolkit.versions import load_table


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
    words = command[command.index("-P") :]
    assert words[:5] == ("-P", "-m", "rehearsal", "digits", "--gpu")
    assert command[-2:] == ("--library-cache", f"{planned.reference}/rehearsal")


@pytest.mark.parametrize(
    ("flags", "error"),
    [({"engine": "docker"}, UsageError), ({"tensorflow": "2.18.0"}, UnsupportedError)],
)
def test_what_cannot_be_rehearsed_is_refused(flags: dict[str, str], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        rehearsal.choose_spec(settle(tmp_path, **flags))


@pytest.mark.parametrize(
    ("version", "flags", "requirements"),
    [
        ("2.21.0", {}, "cuda-2.21.0-12.8.1-9.10.2"),
        ("2.20.0", {}, "cuda-2.20.0-12.8.1-9.8.0"),
        ("2.19.0", {"cuda": "12.6.1", "cudnn": "9.5.0"}, "cuda-12.6.1"),
    ],
)
def test_a_wheel_gets_the_set_of_its_version_without_nvidias_libraries(
    version: str, flags: dict[str, str], requirements: str, tmp_path: Path
) -> None:
    wheel = maker.make_tensorflow(tmp_path, version=version)
    settings = settle(tmp_path, **flags)
    spec = rehearsal.choose_spec(settings, wheel)
    assert (spec.requirements, spec.wheel, spec.emulated) == (requirements, wheel, True)
    named = host.omit_libraries(host.omit_tensorflow(spec.locked.read_text()))
    kept = [line.split("==")[0] for line in named.splitlines() if "==" in line]
    assert [name for name in kept if name.startswith("nvidia-")] == ["nvidia-cuda-nvcc-cu12"]
    assert "tensorflow" not in kept
    assert "numpy" in kept
    real = make_host_engine(settings).plan(replace(spec, emulated=False))
    assert make_host_engine(settings).plan(spec).digest != real.digest


@pytest.mark.parametrize(
    ("version", "flags", "message"),
    [
        ("2.18.0", {}, "no locked CUDA set is for TensorFlow 2.18.0"),
        ("2.21.0", {"tensorflow": "2.20.0"}, "is TensorFlow 2.21.0, not 2.20.0"),
        ("2.21.0", {"engine": "docker"}, "runs on the host"),
    ],
)
def test_a_wheel_that_cannot_be_rehearsed_is_refused(
    version: str, flags: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolkitError, match=message):
        rehearsal.choose_spec(settle(tmp_path, **flags), maker.make_tensorflow(tmp_path, version=version))


def test_machine_code_is_required_where_the_wheel_names_it(tmp_path: Path) -> None:
    wheel = maker.make_tensorflow(tmp_path)
    console, settings = Console(verbosity=-1), settle(tmp_path)
    for gpu, promised in (("l4", True), ("rtx5090", False)):
        _, rehearsed = rehearsal.plan_tasks(["digits", "--gpu", gpu], settings, console, wheel)
        assert ("--require-machine-code" in rehearsed.step.commands[0]) == promised


def test_a_wrong_argument_is_refused_before_anything_is_made() -> None:
    with pytest.raises(UsageError):
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
