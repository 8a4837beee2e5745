"""An installation, and its undoing, may be killed at any moment: the same command completes it."""

import fcntl
import os
from pathlib import Path

import pytest

from tests import interrupted
from tests.makers.kills import is_done, kill, make_variables
from tests.unit.install.conftest import take_stock
from tests.unit.install.index import Index
from toolkit.base.console import Console
from toolkit.install import installation, undo
from toolkit.install.target import Target


@pytest.mark.weekly
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("undone", [False, True], ids=["done", "undone"])
def test_an_installation(index: Index, target: Target, undone: bool, tmp_path: Path) -> None:
    """In its downloads, in the change, and while it is undone."""
    index.add("tensorflow", "2.21.0", "numpy>=2", scripts=["toco"])
    index.add("numpy", "2.4.6", scripts=["f2py"])
    index.add("numpy", "1.24.0", scripts=["f2py-old"], lock=False)
    index.fill(target, "numpy==1.24.0")
    folder, quiet = target.folder, Console(verbosity=-1)
    before = take_stock(folder)

    def install() -> None:
        installation.recover(target, quiet)
        installation.install(index.plan(target), quiet)

    def revert() -> None:
        if undo.find(target.python):
            installation.revert(target, quiet)

    install()
    after = take_stock(folder)

    def reset() -> None:
        revert()
        assert take_stock(folder) == before
        if undone:
            install()

    def judge(ended: interrupted.Ended) -> None:
        if is_done(ended):
            assert take_stock(folder) == (before if undone else after)

    def run(moment: int, number: int) -> interrupted.Ended:
        ended = interrupted.fork(
            revert if undone else install, ["install"], tmp_path, make_variables(tmp_path), moment, number
        )
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)  # which a uv that outlives its parent holds
        os.close(handle)
        return ended

    kill(run, reset, judge)
