import os
import re
import signal
import subprocess

from toolkit.errors import IntegrityError

DISK_FULL = re.compile(
    r"(?i:no space left on device|disk quota exceeded|the disk is full)|You don't have enough free space in"
)
"""How the kernel and apt report a full disk."""

OTHER_BYTES = re.compile(
    r"(?i:hash mismatch)|digest mismatch|[Cc]hecksum was \S+ but wanted|DO NOT MATCH THE HASHES|Expected sha256"
)
"""How uv, pip, BuildKit, apt and Bazel report a download that is not the pinned one."""


def stop(process: subprocess.Popen[str], *, grace: float, first: signal.Signals = signal.SIGTERM) -> None:
    """Ask a process that leads its own session, and its children, to stop; kill them after ``grace`` seconds."""
    for signum, patience in ((first, grace), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, signum)
            process.wait(timeout=patience)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            continue
        return


def describe_wrong_package(why: str) -> IntegrityError:
    return IntegrityError(
        "a downloaded package does not have the hash that the lock promises",
        why=why,
        remedy="do not install it: find out which mirror or proxy served it",
    )


def shell_code(returncode: int) -> int:
    """Return the exit code as a shell reports it: 128 + the number of a signal that ended the process."""
    return returncode if returncode >= 0 else 128 - returncode
