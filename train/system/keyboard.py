"""Lets a Ctrl-C end a program by the signal until the program listens. It loads no file, because it comes first."""

import _signal  # type: ignore[import-not-found]  # built into Python, unlike `signal`


def settle() -> None:
    """End by SIGINT itself from now on, without Python's traceback. Where the signal is ignored, it stays so."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
