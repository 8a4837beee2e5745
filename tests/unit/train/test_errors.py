from collections.abc import Callable

import pytest

from train import errors
from train.errors import InterruptionError, ToolkitError
from train.system.program import explain_errors

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ToolkitError) and kind is not InterruptionError
]


def fail(error: BaseException) -> Callable[[], int]:
    @explain_errors
    def program() -> int:
        raise error

    return program


@pytest.mark.parametrize("kind", KINDS)
def test_a_known_error_ends_with_its_message_and_exit_code(
    kind: type[ToolkitError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(kind("it failed", why="a reason", remedy="a remedy"))() == kind.exit_code != 0
    assert capsys.readouterr() == ("", "error: it failed\n  why: a reason\n  try: a remedy\n")


def test_an_interrupt_ends_with_the_exit_code_of_a_signal(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(KeyboardInterrupt())() == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize("error", [ValueError("a defect"), SystemExit(3)])
def test_another_exception_is_not_hidden(error: BaseException) -> None:
    with pytest.raises(type(error)):
        fail(error)()
