import shlex

import pytest

from train import member
from train.errors import UsageError

MEMBERS = ("digits --seed=0", shlex.join(["digits", "--data-dir=a folder", "--seed=1"]))


@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes"])
def test_a_job_runs_the_member_of_its_number(scheduler: str) -> None:
    variable = member.VARIABLES[scheduler]
    assert member.pick(scheduler, MEMBERS, {variable: "0"}) == ["digits", "--seed=0"]
    assert member.pick(scheduler, MEMBERS, {variable: "1"}) == ["digits", "--data-dir=a folder", "--seed=1"]


@pytest.mark.parametrize(
    ("scheduler", "variables", "message"),
    [
        ("kubernetes", {"SLURM_ARRAY_TASK_ID": "0"}, "JOB_COMPLETION_INDEX is not set"),
        ("kubernetes", {"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX is 2, and there is no member 2"),
        ("slurm", {}, "SLURM_ARRAY_TASK_ID is not set"),
        ("slurm", {"SLURM_ARRAY_TASK_ID": "-1"}, "SLURM_ARRAY_TASK_ID is '-1', and not a whole number"),
        ("", {}, "the first argument is none of slurm, kubernetes"),
    ],
)
def test_a_job_without_a_number_of_a_member_says_so(
    scheduler: str,
    variables: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in member.VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert member.main([scheduler, *MEMBERS] if scheduler else []) == UsageError.exit_code
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_an_option_that_the_job_does_not_have_is_refused_by_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    assert member.main(["kubernetes", "digits --sed=0"]) == UsageError.exit_code
    assert "No such option" in capsys.readouterr().err
