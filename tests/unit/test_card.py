"""The test of a card, on machines that a stand-in for the driver's program plays; no real GPU is asked."""

import getpass
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import NOWHERE, Run
from tests.makers.newest import CPU, NEWEST
from tests.makers.publication import seal
from tests.unit.wheel.maker import MEMBER, make_build_info, make_wheel
from toolkit.base import privacy
from toolkit.base.console import Console
from toolkit.base.errors import CheckError
from toolkit.graft import graft_plan
from toolkit.jobs import card_test
from toolkit.versions.settings import resolve
from toolkit.versions.table import load_table

Play = Callable[[str], dict[str, str]]


def make_graft(folder: Path) -> None:
    """Make the folder of a graft for an RTX 5090, with this user's seal, as `toolkit graft` leaves it."""
    request = graft_plan.GraftRequest(cards=("12.0",))
    settings = resolve(NEWEST.choose("").named(), environment={})
    planned = graft_plan.plan_graft(load_table(), settings, request)
    target = folder / "dist" / planned.name
    target.mkdir(parents=True)
    wheel = make_wheel(
        target, version=f"{NEWEST.tensorflow}+sm120", files={MEMBER: make_build_info("sm_120", cuda="12.5.1")}
    )
    seal(wheel, "sm_90", "sm_120", plan=planned.digest, lock=planned.lock.describe())


@pytest.mark.parametrize(
    ("machine", "requirements", "devices"),
    [
        ("", CPU.requirements, ["processor"]),
        ("t4", NEWEST.requirements, ["processor", "card"]),
        ("a100", NEWEST.requirements, ["processor", "card"]),
        ("blackwell", NEWEST.requirements, ["processor", "card"]),
        ("old", CPU.requirements, ["processor"]),
    ],
)
def test_the_plan_goes_as_far_as_the_card(
    run: Run, play: Play, machine: str, requirements: str, devices: list[str]
) -> None:
    if machine == "blackwell":
        make_graft(run.folder)
    done = run("test-card", "--dry-run", **play(machine))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("at most 15 minutes and 8 GB, in card-test;")
    assert f"/environment-{requirements}-" in done.stdout
    assert (f"{NEWEST.tensorflow}+sm120" in done.stdout) == (machine == "blackwell")
    trained = re.findall(r"-m train digits (?:--profile 10:10 )?--out card-test/(\S+)", done.stdout)
    assert trained == [f"{device}-{name}" for device in devices for name in ("first", "again")]
    assert re.findall(r"--json --device (\w+)", done.stdout) == ["cpu", "gpu"][: len(devices)]
    assert not (run.folder / card_test.REPORT).exists()


def test_a_card_that_needs_a_graft_gets_it_first(run: Run, play: Play) -> None:
    done = run("test-card", "--dry-run", **play("blackwell"))
    assert done.returncode == 0, done.stderr
    assert "toolkit graft --compute-capability=12.0" in done.stdout


@pytest.mark.parametrize(("machine", "card"), [("t4", "Tesla T4 (7.5), driver 560.35.03"), ("", "none")])
def test_the_report_says_what_failed_and_goes_as_far_as_it_can(run: Run, play: Play, machine: str, card: str) -> None:
    home = run.folder / "home" / "ada"
    home.mkdir(parents=True)
    nothing = {**NOWHERE, **dict.fromkeys(("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_FIND_LINKS"), "")}
    nothing |= {"UV_DEFAULT_INDEX": NOWHERE["PIP_INDEX_URL"], "UV_CACHE_DIR": str(home / "cache")}
    done = run("test-card", HOME=str(home), LOGNAME="ada", **nothing, **play(machine))
    assert done.returncode == 7, done.stderr
    text = (run.folder / card_test.REPORT).read_text()
    assert text.splitlines()[0] == "# worked: machine, packages; failed: environment"
    assert f"- card: {card}\n" in text
    assert "| environment | failed |" in text
    assert not re.search(rf"{re.escape(str(run.folder))}|\bada\b|\b{re.escape(socket.gethostname())}\b", text)


def test_a_report_has_no_person_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "loom.example")
    monkeypatch.chdir(tmp_path)
    said = f"{tmp_path}/ada/venv on loom.example (loom) by ada, canada stays, in {tmp_path}/card-test"
    assert privacy.leave_out_persons(said) == "./ada/venv on HOST (HOST) by USER, canada stays, in ./card-test".replace(
        "./ada", "./USER"
    )


def write_steps(folder: Path, *, minutes: float = 0) -> card_test.CardReport:
    report = card_test.CardReport(path=folder / "report.md", console=Console(verbosity=-1))
    report.began -= minutes * 60

    def fail() -> str:
        raise CheckError("it | broke", why="two\nlines")

    report.attempt("first", fail, str)
    report.attempt("second", lambda: 3, lambda number: f"{number} images/s")
    return report


def test_a_step_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    write_steps(tmp_path)
    first, *_, failed, worked = (tmp_path / "report.md").read_text().splitlines()
    assert first == "# worked: second; failed: first"
    assert failed == "| first | failed | it / broke why: two lines | 0 |"
    assert worked == "| second | worked | 3 images/s | 0 |"


def test_no_step_begins_after_the_time_that_was_promised(tmp_path: Path) -> None:
    assert write_steps(tmp_path, minutes=card_test.MINUTES + 1).list_titles("left out") == ["first", "second"]


def test_other_bits_and_a_missing_profile_are_failures(tmp_path: Path) -> None:
    numbers = {"test_accuracy": 1, "epochs": 1, "steps": 11, "train_seconds": 3, "first_step_seconds": 1}
    value: dict[str, Any] = {
        "result": {**numbers, "process_peak_bytes": 1e6, "device_peak_bytes": 2e6},
        "environment": {"batch_size": 64},
        "hardware": {"devices": ["Tesla T4"]},
        "weights_sha256": "a" * 64,
    }
    with pytest.raises(CheckError, match="gave other weights"):
        card_test._compare_runs(value, tmp_path, {**value, "weights_sha256": "b" * 64})
    with pytest.raises(CheckError, match="profile of a step is missing"):
        card_test._compare_runs(value, tmp_path, value)
    (tmp_path / "host.xplane.pb").touch()
    assert card_test._compare_runs(value, tmp_path, value) == (
        "the same bits; 100.00% after 1 epoch on Tesla T4, 320 images/s, 1 MB of the process, 2 MB of the device, "
        "weights aaaaaaaa"
    )


@pytest.mark.parametrize(
    ("machine", "code", "failed"),
    [
        pytest.param("", 12, "", marks=pytest.mark.slow),
        pytest.param("t4", 7, "; failed: checks on the card, digits on the card", marks=pytest.mark.weekly),
    ],
)
def test_everything_before_the_card_works(run: Run, play: Play, machine: str, code: int, failed: str) -> None:
    """What is played has no driver: the checks on the card say so."""
    done = run("test-card", **play(machine))
    assert done.returncode == code, done.stderr
    first, *lines = (run.folder / card_test.REPORT).read_text().splitlines()
    worked = "checks on the processor, digits on the processor, again and profiled on the processor"
    assert first == f"# worked: machine, packages, environment, {worked}{failed}"
    assert any("the same bits; 99.72%" in line for line in lines)
    assert any("libcuda.so.1" in line for line in lines) == bool(failed)
