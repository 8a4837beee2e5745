"""Nothing that was to run on a GPU runs on the processor in silence. The machines are played by a stand-in for the
driver's program; no real GPU is asked.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.command import Run
from tests.makers.newest import NEWEST
from tests.unit.wheel.maker import CPU_INFO, MEMBER, make_build_info, make_wheel
from toolkit.base.errors import EngineError, GpuError, ToolkitError
from toolkit.base.naming import GPU_VARIABLE
from toolkit.engine import Job, container, gpus
from toolkit.engine.apptainer import ApptainerEngine
from toolkit.engine.client import translating_errors
from toolkit.engine.host import HostEngine

SET = ("--cuda", "12.6.1", "--cudnn", "9.5.0")

Play = Callable[[str], dict[str, str]]


@pytest.fixture
def run_folder(run: Run) -> str:
    from train.command_line import parse

    folder = run.folder / "runs" / "digits-x"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(parse(["digits"]).as_dict()))
    (run.folder / "photo.jpg").write_bytes(b"")
    return "runs/digits-x"


CARDS = pytest.mark.parametrize(
    ("machine", "card", "words", "ran"),
    [
        (
            "t4",
            "Tesla T4 (7.5), driver 560.35.03",
            [NEWEST.choose("").describe(), "minor-version"],
            NEWEST.requirements,
        ),
        ("hopper", "H100 80GB HBM3 (9.0)", ["PTX", "too old to compile"], "toolkit graft --compute-capability=9.0"),
        ("pascal", "GTX 1080 Ti (6.1)", [NEWEST.choose("").describe(), "590 or later"], NEWEST.requirements),
        ("blackwell", "RTX 5090 (12.0), driver 580.65.06", ["only PTX"], "toolkit graft --compute-capability=12.0"),
        ("kepler", "Tesla K80 (3.7)", ["CPU set", "470 is the last branch"], "environment-cpu"),
        ("two", "Tesla T4 (7.5)", ["Tesla K80 (3.7)", "CUDA_VISIBLE_DEVICES=1"], NEWEST.requirements),
        ("old", "Tesla T4 (7.5)", ["CPU set", "too old", "install driver 570.124.06"], "environment-cpu"),
        ("windows", "RTX 2070 (7.5)", ["minor-version", "driver of Windows"], NEWEST.requirements),
        ("broken", "none", ["not loaded", "first:"], "environment-cpu"),
        ("", "none", [], "environment-cpu"),
    ],
)


@CARDS
def test_a_plan_begins_with_what_was_found_and_what_was_decided(
    run: Run, play: Play, monkeypatch: pytest.MonkeyPatch, machine: str, card: str, words: list[str], ran: str
) -> None:
    from toolkit.doctor import reading

    if machine == "windows":
        monkeypatch.setattr(reading, "find_system", lambda _root: "wsl2")
    done = run("up", "digits", "--engine", "host", "--dry-run", **play(machine))
    assert done.returncode == 0, done.stderr
    first, *rest = done.stderr.splitlines()
    assert first.startswith("card")
    assert card in first
    assert all(word in "".join(rest) or word in first for word in words), done.stderr
    assert ran in done.stdout
    assert bool(machine) or not [program for program in run.started if "nvidia" in program]


@pytest.mark.parametrize(
    "command",
    [
        ["up", "digits"],
        ["train", "digits"],
        ["smoke"],
        ["predict", "runs/digits-x", "photo.jpg"],
        ["serve", "runs/digits-x"],
    ],
)
def test_each_command_carries_the_decision_out(run: Run, run_folder: str, play: Play, command: list[str]) -> None:
    assert run_folder in {*command, run_folder}
    variables = {"TOOLKIT_ENGINE": "host", **play("t4")}
    done = run(*command, "--dry-run", **variables)
    assert done.returncode == 0, done.stderr
    assert "Tesla T4 (7.5)" in done.stderr.splitlines()[0]
    assert NEWEST.choose("").describe() in done.stderr
    plain = run(*command, "--dry-run", TOOLKIT_CARD="none", **variables)
    assert plain.returncode == 0, plain.stderr
    assert "Tesla T4" not in plain.stderr
    assert "cuda" not in plain.stdout


@pytest.mark.parametrize(
    ("command", "card"),
    [
        (["train", "digits", "--no-gpu"], ""),
        (["smoke", "--device", "cpu"], ""),
        (["train", "digits", "--card", "none"], ""),
        (["train", "digits", "--card", "RTX 4090"], "RTX 4090 (8.9)"),
        (["launch", "slurm", "digits", "--shards", "8", "--gpus", "4", "--card", "A100"], "A100 (8.0)"),
    ],
)
def test_who_names_a_card_or_none_decides(run: Run, play: Play, command: list[str], card: str) -> None:
    engine = {} if "slurm" in command else {"TOOLKIT_ENGINE": "host"}
    done = run(*command, "--dry-run", **engine, **play("t4"))
    assert done.returncode == 0, done.stderr
    assert "Tesla T4" not in done.stderr
    assert card in done.stderr
    assert (NEWEST.requirements in done.stdout) == bool(card)
    if not card and "train" in command:  # what runs on this machine itself would otherwise see the card
        assert "CUDA_VISIBLE_DEVICES=-1" in done.stdout


@pytest.mark.parametrize("options", [[], ["--gpu"]])
def test_a_card_that_needs_a_graft_is_not_left_unused_in_silence(run: Run, play: Play, options: list[str]) -> None:
    done = run("train", "digits", "--engine", "host", "--dry-run", *options, **play("blackwell"))
    assert done.returncode == 12, done.stderr
    assert "toolkit up" in done.stderr
    assert "toolkit install --into my-env --card 12.0" in done.stderr
    assert "--card none" in done.stderr


@pytest.mark.parametrize(
    ("machine", "words"),
    [("old", "install driver 570.124.06"), ("kepler", "Tesla K80 (3.7)"), ("broken", "not loaded"), ("", "GPU")],
)
def test_a_gpu_that_is_asked_for_and_cannot_be_used_is_an_error(run: Run, play: Play, machine: str, words: str) -> None:
    done = run("train", "digits", "--gpu", "--engine", "host", "--dry-run", **play(machine))
    assert done.returncode == 12, done.stderr
    assert done.stderr.count("error:") == 1
    assert words in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["train", "digits", "--gpu"],
        ["up", "digits", "--gpu"],
        ["smoke", "--device", "gpu"],
        ["predict", "runs/digits-x", "photo.jpg", "--gpu"],
        ["evaluate", "runs/digits-x", "--gpu"],
        ["export", "runs/digits-x", "--gpu"],
        ["serve", "runs/digits-x", "--gpu", "--dry-run"],
        ["launch", "slurm", "digits", "--shards", "8", "--gpus", "4", "--dry-run"],
    ],
)
def test_a_gpu_for_the_cpu_set_is_refused_before_anything_is_made(
    run: Run, run_folder: str, play: Play, command: list[str]
) -> None:
    before = sorted(run.folder.rglob("*"))
    engine = {} if "slurm" in command else {"TOOLKIT_ENGINE": "host"}
    done = run(*command, TOOLKIT_TENSORFLOW="2.20.0", **engine, **play("t4"))
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("error:") == 1
    assert "add --cuda 12.8.1 --cudnn 9.8.0" in done.stderr
    assert sorted(run.folder.rglob("*")) == before
    assert run_folder


@pytest.mark.parametrize(
    ("info", "options", "code", "words"),
    [
        (CPU_INFO, ["--gpu", *SET], 2, "has no code for one"),
        (CPU_INFO, ["--gpu"], 2, "has no code for one"),
        (make_build_info("compute_75"), ["--gpu"], 2, "add --cuda 12.6.1 --cudnn 9.5.0"),
        (make_build_info("compute_75", cuda="12.8.0"), ["--gpu"], 2, "add --cuda 12.8.0 --cudnn"),
        (make_build_info("compute_75", cuda="12.8.1"), ["--gpu"], 2, "of what it was built for"),
        (make_build_info("compute_75"), ["--gpu", *SET], 0, "shows no GPU here"),
        (CPU_INFO, SET, 0, "the wheel is for processors alone"),
        (make_build_info("compute_75"), [], 0, "--cuda 12.6.1 --cudnn 9.5.0 uses it"),
    ],
)
def test_a_wheel_of_the_users_own_is_asked_whether_it_has_gpu_code(
    run: Run, play: Play, info: str, options: list[str], code: int, words: str
) -> None:
    wheel = make_wheel(run.folder, files={MEMBER: info})
    done = run("train", "digits", "--wheel", wheel.name, "--engine", "host", "--dry-run", *options, **play("t4"))
    assert done.returncode == code, done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("options", "granted", "right"), [([], None, "1"), ([], "0", "0"), (["--card", "Tesla T4"], None, "1")]
)
def test_a_card_that_is_left_out_is_hidden_from_what_runs(
    run: Run, play: Play, options: list[str], granted: str | None, right: str
) -> None:
    """What the user has granted stays. By itself, CUDA would count the fastest card first."""
    variables = play("two") | ({"CUDA_VISIBLE_DEVICES": granted} if granted else {})
    done = run("train", "digits", "--gpu", "--engine", "host", "--dry-run", *options, **variables)
    assert done.returncode == 0, done.stderr
    assert f"CUDA_VISIBLE_DEVICES={right} " in done.stdout
    assert ("CUDA_DEVICE_ORDER=PCI_BUS_ID" in done.stdout) == (granted is None)


def test_every_engine_gives_a_job_no_other_gpus_than_were_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")  # what is set below is undone
        monkeypatch.delenv(name)
    gpus.grant("0,2")
    job = Job(title="x", argv=("-c", ""), gpu=True)
    described = container.describe(job, image="i")
    assert described.to_sdk()["device_requests"][0]["DeviceIDs"] == ["0", "2"]
    assert '"device=0,2"' in described.to_command()
    for engine in (ApptainerEngine(Path(), ""), HostEngine(Path())):
        (command,) = engine.commands("e", job)
        assert {"CUDA_VISIBLE_DEVICES=0,2", "CUDA_DEVICE_ORDER=PCI_BUS_ID"} <= {*command}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', GpuError),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", GpuError),
        ("unresolvable CDI devices nvidia.com/gpu=all", GpuError),
        ("no space left on device", EngineError),
    ],
)
def test_a_container_without_a_gpu_has_the_exit_code_of_the_job(said: str, kind: type[ToolkitError]) -> None:
    from docker.errors import DockerException

    with pytest.raises(kind), translating_errors("running train"):
        raise DockerException(said)


def test_the_script_of_slurm_asks_its_job_to_find_a_gpu(run: Run) -> None:
    options = ("launch", "slurm", "digits", "--shards", "8", "--dry-run")
    done = run(*options, "--gpus", "4", *SET)
    assert done.returncode == 0, done.stderr
    assert f"{GPU_VARIABLE}=1 " in done.stdout
    assert "environment-cuda-12.6.1" in done.stdout
    own = run(*options, "--gpus", "4", "--interpreter", "/opt/python")
    assert own.returncode == 0, own.stderr
    assert f"{GPU_VARIABLE}=1 " in own.stdout
    idle = run(*options, *SET)
    assert "--gpus N asks" in idle.stderr
    assert GPU_VARIABLE not in idle.stdout
