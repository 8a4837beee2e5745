import fcntl
import os
import pty
import struct
import termios
from unittest import mock

import pytest

from train.run import progress


def draw(columns: int) -> str:
    """Return what a terminal of this width gets in a redraw; 0: it does not know its width."""
    controller, terminal = pty.openpty()
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with os.fdopen(terminal, "w") as stream, mock.patch.object(progress.time, "monotonic") as clock:
            clock.return_value = 100.0
            display = progress.Display("auto", 64, stream=stream)
            for step in (1, 400):
                clock.return_value += step / 10
                display.show_step(step, 460, 17, 0.1234, 0.9876)
                said = os.read(controller, 1 << 12).decode()
    finally:
        os.close(controller)
    assert "\n" not in said
    return said.removeprefix("\r\033[K")


@pytest.mark.parametrize("columns", [1, 2, 20, 60, 80, 90, 400])
def test_progress_is_one_line_of_any_terminal(columns: int) -> None:
    assert len(draw(columns)) < columns


def test_a_narrow_terminal_loses_the_bar_before_the_numbers() -> None:
    assert draw(400) == draw(0)
    assert "[####" in draw(400)
    narrow = draw(80)
    assert "[" not in narrow
    assert all(word in narrow for word in ("epoch 17 400/460", "loss 0.1234", "left"))
