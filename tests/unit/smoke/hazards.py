"""A worker whose checks hang, crash and print, as native libraries do: ``python -m tests.unit.smoke.hazards``."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from toolkit.checks.check import Check, Evidence, Expectation, Fail
from toolkit.checks.supervisor import serve

LOADED: list[int] = []


def ground(_: Expectation) -> Evidence:
    LOADED.append(os.getpid())
    return {"pid": os.getpid()}


def ground_is_laid(_: Expectation) -> Evidence:
    if not LOADED:
        raise Fail("the needed check did not run in this process")
    return {"pid": os.getpid()}


def ground_gives_way(_: Expectation) -> Evidence:
    raise Fail("as planned")


def ground_holds_once(_: Expectation) -> Evidence:
    Path(os.environ["HAZARDS_MARK"]).touch(exist_ok=False)
    return {}


def segfault(_: Expectation) -> Evidence:
    print("about to read address zero", file=sys.stderr)
    return {"never": ctypes.string_at(0)}


def abort(_: Expectation) -> Evidence:
    os.abort()


def old_ptx(_: Expectation) -> Evidence:
    print("LLVM ERROR: PTX version 8.5 does not support target 'sm_120'. Minimum is 8.7", file=sys.stderr)
    os.abort()


def illegal(_: Expectation) -> Evidence:
    os.kill(os.getpid(), signal.SIGILL)
    return {}


def killed(_: Expectation) -> Evidence:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def leave(_: Expectation) -> Evidence:
    os._exit(3)


def hang(_: Expectation) -> Evidence:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child {child.pid}", file=sys.stderr, flush=True)
    time.sleep(600)
    return {}


def toil(_: Expectation) -> Evidence:
    end = time.process_time() + 1.5
    while time.process_time() < end:
        pass
    return {}


def deaf(_: Expectation) -> Evidence:
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    time.sleep(600)
    return {}


def talk(_: Expectation) -> Evidence:
    os.system("echo noise on descriptor one")  # noqa: S605 - a library that prints
    print("and from Python")
    return {"text": "one line of JSON, with \n in it"}


GROUND = "ground.laid"
HAZARDS = (
    Check(GROUND, "the ground", ground, 20),
    Check("ground.once", "holds in the first worker alone", ground_holds_once, 20),
    Check("crash.segfault", "reads address zero", segfault, 20, (GROUND,)),
    Check("after.segfault", "finds its ground again", ground_is_laid, 20, (GROUND,)),
    Check("after.once", "is not reached", talk, 20, ("ground.once",)),
    Check("crash.abort", "aborts", abort, 20),
    Check("crash.ptx", "is ended by LLVM", old_ptx, 20),
    Check("crash.illegal", "lacks an instruction", illegal, 20),
    Check("crash.killed", "is killed", killed, 20),
    Check("crash.leave", "calls _exit", leave, 20),
    Check("hang.sleep", "sleeps, with a child", hang, 0.6, (GROUND,)),
    Check("hang.deaf", "does not hear SIGABRT", deaf, 0.6, (GROUND,)),
    Check("after.hang", "finds its ground again", ground_is_laid, 20, (GROUND,)),
    Check("slow.works", "computes beyond its deadline", toil, 0.4, (), slow=True),
    Check("slow.sleeps", "sleeps beyond its deadline", hang, 0.4, (), slow=True),
    Check("talk.loud", "prints", talk, 20),
    Check("ground.false", "fails", ground_gives_way, 20),
    Check("after.false", "is not reached", ground_is_laid, 20, ("ground.false",)),
)

if __name__ == "__main__":
    serve(HAZARDS, Expectation())
