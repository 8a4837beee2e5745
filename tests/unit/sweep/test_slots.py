import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolkit import processes
from toolkit.errors import PreflightError, UsageError
from toolkit.processes import CommandPool, LoggedCommand


@pytest.fixture
def lock(tmp_path: Path) -> int:
    return os.open(tmp_path, os.O_RDONLY)


def make(tmp_path: Path, lock: int, programs: Sequence[str], ended: list[int]) -> CommandPool:
    commands = {
        number: LoggedCommand(argv=("sh", "-c", program), log=tmp_path / f"{number}.log")
        for number, program in enumerate(programs)
    }
    end = lambda number, _code: ended.append(number)  # noqa: E731
    return CommandPool(commands, variables={"WORD": "x"}, lock=lock, grace=10, begin=lambda *_: None, end=end)


def test_one_that_fails_leaves_the_others_alone(tmp_path: Path, lock: int) -> None:
    ended: list[int] = []
    programs = ["echo $WORD; exit 3", "kill -9 $$", "grep Cpus_allowed_list /proc/self/status", "exit 0"]
    core = min(os.sched_getaffinity(0))
    codes = make(tmp_path, lock, programs, ended).run([[core], [core]])
    assert codes == {0: 3, 1: 137, 2: 0, 3: 0}
    assert sorted(ended) == [0, 1, 2, 3]
    assert (tmp_path / "0.log").read_text() == "x\n"
    assert (tmp_path / "2.log").read_text().split() == ["Cpus_allowed_list:", str(core)]


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_asks_all_to_stop_and_starts_no_other(tmp_path: Path, lock: int) -> None:
    ended: list[int] = []
    program = "trap 'echo saved; exit 130' TERM; echo ready; while :; do sleep 0.05; done"

    def interrupt() -> None:
        logs = [tmp_path / "0.log", tmp_path / "1.log"]
        while not all(log.exists() and log.read_text() for log in logs):
            time.sleep(0.01)
        # Another thread gets it, so that it does not end the wait of the main thread. One that comes just before that
        # wait begins does not end it either.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, lock, [program] * 3, ended).run([sorted(os.sched_getaffinity(0))] * 2)
    assert sorted(ended) == [0, 1]
    assert all((tmp_path / f"{number}.log").read_text().endswith("saved\n") for number in (0, 1))
    assert not (tmp_path / "2.log").exists()


def test_a_log_that_cannot_be_written_ends_all(tmp_path: Path, lock: int) -> None:
    (tmp_path / "1.log").mkdir()
    with pytest.raises(PreflightError, match=r"cannot write .*1\.log"):
        make(tmp_path, lock, ["sleep 60", "true"], []).run([sorted(os.sched_getaffinity(0))] * 2)


def test_slots_have_equal_numbers_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7, 1, 2, 5, 4})
    assert processes.share_cores(1) == [[1, 2, 4, 5, 7]]
    assert processes.share_cores(2) == [[1, 2], [4, 5]]
    with pytest.raises(UsageError, match="more than the 5 cores"):
        processes.share_cores(6)
