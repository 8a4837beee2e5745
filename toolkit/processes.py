"""Child processes: each in its own session, so that it can be stopped with all that it started."""

import os
import signal
import subprocess


def stop(process: subprocess.Popen[str], *, grace: float, first: signal.Signals = signal.SIGTERM) -> None:
    """Ask a process and all its children to stop, wait, and kill what is still there.

    Args:
        process: started with ``start_new_session=True``.
        grace: seconds between asking and killing.
        first: the signal that asks.
    """
    for signum, patience in ((first, grace), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, signum)
            process.wait(timeout=patience)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            continue
        return


def shell_code(returncode: int) -> int:
    """Exit code as a shell reports it: 128 + number for a process that a signal ended."""
    return returncode if returncode >= 0 else 128 - returncode
