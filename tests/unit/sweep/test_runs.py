import csv
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import weekly
from tests.unit.sweep.conftest import OPTIONS, Commands, write
from toolkit.digest import digest_file

pytestmark = pytest.mark.slow

LONG = {**OPTIONS, "steps": 4000, "checkpoint-every": 20, "augment": False}
"""A run that is stopped before its end."""

RESUMED = re.compile(r"resumed after step (\d+) of")


def seeds(*seeds: int, **options: object) -> dict[str, Any]:
    return {"dataset": "digits", "options": {**OPTIONS, **options}, "grid": {"seed": list(seeds)}}


def read(folder: Path, pattern: str) -> dict[str, Any]:
    (path,) = folder.glob(f"runs/{pattern}/manifest.json")
    value: dict[str, Any] = json.loads(path.read_text())
    return value


@contextmanager
def starting(commands: Commands, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
    argv = [sys.executable, "-m", "toolkit", "sweep", *arguments]
    environment = {**variables, **commands.variables}
    sweep = subprocess.Popen(argv, cwd=commands.folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield sweep
    finally:
        sweep.terminate()
        sweep.wait()


def wait(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def find_checkpoints(folder: Path) -> list[Path]:
    return list(folder.glob("runs/digits-*/checkpoints/*.json"))


def read_logs(folder: Path) -> str:
    return "".join(log.read_text() for log in folder.glob("runs/sweep-*/logs/*.log"))


def test_a_failed_member_is_named_and_the_others_are_compared(commands: Commands) -> None:
    value = {"dataset": "digits", "options": OPTIONS, "grid": {"learning-rate": [0.05, 99.0], "seed": [0, 1]}}
    value["options"] = {**OPTIONS, "steps": 20}
    done = commands("sweep", write(commands.folder, value), "--slots", "2", "--json")
    assert done.returncode == 7, done.stderr
    shown = json.loads(done.stdout)
    assert [each["status"] for each in shown["members"]] == ["complete", "complete", "failed", "failed"]
    # Which number is the first that is none depends on the processor, with these kernels.
    assert "training diverged" in shown["members"][2]["reason"]
    assert "2 of 4 members failed with exit code 7" in shown["error"]["what"]
    assert "failed   member 3 (learning-rate 99.0, seed 1): exit code 7" in done.stderr
    recorded = read(commands.folder, "sweep-*")
    assert recorded["facts"]["members"] == shown["members"]
    runs = [json.loads(path.read_text()) for path in commands.folder.glob("runs/digits-*/manifest.json")]
    weights = {each["run"]: each["weights_sha256"] for each in shown["members"][:2]}
    assert weights == {f"runs/digits-bc-10-12-{each['config_sha256'][:8]}": each["weights_sha256"] for each in runs}
    folder = commands.folder / shown["sweep"]
    (row,) = csv.DictReader((folder / "table.csv").open())
    accuracies = [each["result"]["test_accuracy"] for each in runs]
    assert float(row["test_accuracy_mean"]) == statistics.fmean(accuracies)
    assert float(row["test_accuracy_deviation"]) == pytest.approx(statistics.stdev(accuracies))
    assert {name: digest_file(folder / name) for name in ("table.csv", "comparison.png")} == recorded["facts"]["files"]
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_command_leaves_complete_members_alone_and_makes_others_again(commands: Commands) -> None:
    file = write(commands.folder, seeds(0, 1))
    assert commands("sweep", file, "--member", "1").returncode == 0
    assert len(list(commands.folder.glob("runs/digits-*"))) == 1
    partial = commands("sweep", file, "--summarise")
    assert partial.returncode == 7
    assert "1 of 2 members are not complete" in partial.stderr
    assert "missing  member 0 (seed 0): it is not complete" in partial.stderr
    first = read(commands.folder, "digits-*")
    assert commands("sweep", file).returncode == 0
    whole = read(commands.folder, "sweep-*")["facts"]["members"]
    assert whole[1]["weights_sha256"] == first["weights_sha256"]
    shutil.rmtree(commands.folder / whole[0]["run"])
    (commands.folder / whole[1]["run"] / "manifest.json").write_text("{")
    done = commands("sweep", file)
    assert done.returncode == 0, done.stderr
    assert "2 members, 0 complete" in done.stderr
    assert read(commands.folder, "sweep-*")["facts"]["members"] == whole
    assert "2 members, 2 complete" in commands("sweep", file).stderr
    assert commands("sweep", file, "--summarise").returncode == 0


@pytest.mark.parametrize("asked", [weekly(signal.SIGTERM), signal.SIGINT])
def test_a_stopped_sweep_leaves_checkpoints_and_goes_on(commands: Commands, asked: signal.Signals) -> None:
    file = write(commands.folder, {"dataset": "digits", "options": LONG, "grid": {"seed": [0, 1, 2]}})
    with starting(commands, file, "--slots", "2") as sweep:
        wait(lambda: len({path.parent for path in find_checkpoints(commands.folder)}) == 2)
        sweep.send_signal(asked)
        said = sweep.communicate(timeout=120)[1]
    assert sweep.returncode == 130, said
    assert "error:" not in said  # the user asked for it
    assert len(list(commands.folder.glob("runs/digits-*"))) == 2, "the third was not started"
    steps = {path.parents[1].name: int(path.stem[5:]) for path in sorted(find_checkpoints(commands.folder))}
    with starting(commands, file, "--slots", "2") as again:
        wait(lambda: len(RESUMED.findall(read_logs(commands.folder))) == 2)
        again.send_signal(asked)
        assert again.wait(120) == 130
    assert sorted(map(int, RESUMED.findall(read_logs(commands.folder)))) == sorted(steps.values())


def test_members_of_a_killed_sweep_end_before_it_goes_on(commands: Commands) -> None:
    options = {**OPTIONS, "steps": 200}
    file = write(commands.folder, seeds(0, 1, **options))
    with starting(commands, file) as sweep:
        wait(lambda: "engine" in read_logs(commands.folder))
        sweep.kill()
    with starting(commands, file) as again:
        said = again.communicate(timeout=120)[1]
    assert again.returncode == 0, said
    assert "waiting for their end" in said
    assert "2 members, 1 complete" in said
    reference = commands(
        "train", "digits", *(f"--{name}={value}" for name, value in options.items()), TOOLKIT_RUNS="other"
    )
    assert reference.returncode == 0, reference.stderr
    (alone,) = commands.folder.glob("other/digits-*/manifest.json")
    members = read(commands.folder, "sweep-*")["facts"]["members"]
    assert members[0]["weights_sha256"] == json.loads(alone.read_text())["weights_sha256"]


def test_a_folder_that_cannot_be_written_is_said_before_a_member_starts(commands: Commands) -> None:
    (commands.folder / "file").write_text("")
    done = commands("sweep", write(commands.folder, seeds(0)), TOOLKIT_RUNS="file")
    assert done.returncode == 4
    assert "cannot write to file/sweep-seeds" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_fails_members_with_one_reason_and_space_heals_them(commands: Commands) -> None:
    runs, file = commands.folder / "runs", write(commands.folder, seeds(0, 1))
    runs.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(runs)]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        full = commands("sweep", file, "--json")
        assert full.returncode == 4, full.stderr
        members = json.loads(full.stdout)["members"]
        assert [each["exit_code"] for each in members] == [4, 4]
        assert all("No space left on device" in each["reason"] for each in members)
        assert not list(runs.glob("sweep-*/manifest.json"))
        subprocess.run(["mount", "-o", "remount,size=9m", str(runs)], check=True)
        assert commands("sweep", file).returncode == 0
    finally:
        subprocess.run(["umount", str(runs)], check=True)
