"""What a log shows as done already is not advised again, and what finds nothing does nothing."""

import io
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkit import diagnosis
from toolkit.diagnosis import answers, done

HANDLE = "could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR"
NO_DEVICE = "no supported devices found for platform CUDA"
GROWTH = "export TF_FORCE_GPU_ALLOW_GROWTH=true"


def read(log: str) -> diagnosis.Cause:
    (cause,) = diagnosis.diagnose([("", io.BytesIO(log.encode()))]).serious
    return cause


@pytest.mark.parametrize(
    "line",
    [
        "export TF_FORCE_GPU_ALLOW_GROWTH=true",
        "$ TF_FORCE_GPU_ALLOW_GROWTH=true python train.py",
        "user@host:~/x$ export A=1 TF_FORCE_GPU_ALLOW_GROWTH=true",
        "%env TF_FORCE_GPU_ALLOW_GROWTH=true",
        "os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'",
        "docker run -e TF_FORCE_GPU_ALLOW_GROWTH=true --gpus all image",
    ],
)
def test_a_variable_that_the_log_sets_is_not_advised_again(line: str) -> None:
    told = read(f"{line}\n{HANDLE}")
    assert not any("TF_FORCE_GPU_ALLOW_GROWTH" in command for command in told.commands)
    assert "stands in the log already" in told.remedy


@pytest.mark.parametrize(
    "line",
    [
        "",
        "export TF_FORCE_GPU_ALLOW_GROWTH=false",
        "To let memory grow, set TF_FORCE_GPU_ALLOW_GROWTH=true",
        "Try this first:\nexport TF_FORCE_GPU_ALLOW_GROWTH=true",
        "    export TF_FORCE_GPU_ALLOW_GROWTH=true",
    ],
)
def test_a_variable_that_a_program_only_speaks_of_is_advised(line: str) -> None:
    assert any("TF_FORCE_GPU_ALLOW_GROWTH=true" in command for command in read(f"{line}\n{HANDLE}").commands)


@pytest.mark.parametrize(
    ("line", "advised"),
    [
        ("#SBATCH --gpus=1", True),
        ("#SBATCH --gpus-per-task=2", True),
        ("#SBATCH --gpus-per-task=1", False),
        ("srun -n 4 --gpus-per-task=1 python train.py", False),
    ],
)
def test_an_option_that_the_log_gives_is_not_advised_again(line: str, *, advised: bool) -> None:
    assert ("--gpus-per-task=1" in read(f"{line}\n{NO_DEVICE}").remedy) is advised


def test_of_an_answer_that_was_tried_whole_the_next_is_told() -> None:
    tried = diagnosis.table.Answer(cause="x", remedy="Give --frob=1.", commands=("pip install frob",))
    ran = list(done.read("$ pip3 install frob\n$ prog --frob=1"))
    assert done.weigh(tried, ran) is None
    assert done.weigh(tried, list(done.read("$ prog --frob=2"))) == tried
    assert "stands in the log already" not in (told := done.repeat(tried, ran)).remedy
    assert "The log shows `pip install frob` already" in told.remedy
    assert told.commands == ()


def test_what_speaks_against_an_option_of_the_log_stays() -> None:
    tried = diagnosis.table.Answer(cause="x", remedy="Leave out --frob=1. Run it anew.")
    assert done.weigh(tried, ["prog --frob=1"]) == tried


def _list_commands(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for name in ("run", "run_also") if isinstance(text := value.get(name), str))
        yield from (text for each in value.values() for text in _list_commands(each))
    elif isinstance(value, list):
        yield from (text for each in value for text in _list_commands(each))


def _list_all() -> set[str]:
    rows = diagnosis.load().rows.values()
    told = [answer for row in rows for answer in (row, *row.answers, *row.places.values())]
    known = answers.load_knowledge()
    return {command for each in told for command in each.commands} | {
        command for name in known for command in _list_commands(known[name])
    }


UNSAFE = re.compile(r"(?:^|&& |; |sudo )(?:cd|ln|rm|cp|mv) [^&|;]*\$\(|export [^&]*=\S*\$\([^&]*\)[/:]")
FOUND = sorted(each for each in _list_all() if re.search(r"\w=\$\(.*&& ", each))


def test_no_command_works_on_what_it_may_not_have_found() -> None:
    assert FOUND
    assert [command for command in _list_all() if UNSAFE.search(command)] == []


@pytest.mark.parametrize(
    ("command", "answer"),
    [*((each, "exit 1") for each in FOUND), *((each, "echo /nowhere") for each in FOUND if "find " in each)],
)
def test_a_command_that_finds_nothing_fails_and_changes_nothing(command: str, answer: str, tmp_path: Path) -> None:
    home, python = tmp_path / "home", tmp_path / "python"
    home.mkdir()
    python.write_text(f"#!/bin/sh\n{answer}\n")
    python.chmod(0o755)
    variables = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    ended = subprocess.run(["sh", "-c", command], cwd=home, env=variables, capture_output=True, check=False)
    assert ended.returncode != 0
    assert list(home.iterdir()) == []
