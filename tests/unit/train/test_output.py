import json
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.console import Console
from toolkit.base.errors import UsageError
from train.errors import DataError
from train.run.display import Display
from train.system import output
from train.use.prediction import Prediction, describe

NAMES = [
    "\x1b[31mred\x1b]0;title\x07",
    "a\rb",
    "\x9b31m",
    "\u202egpj.exe",
    "\u2066\u2069\u200e\u200f\u061c",
    "\udcff\ud800",
    "\u2028\u2029",
    "\x7f\x00",
]

PRINTERS: dict[str, Callable[[str], None]] = {
    "say": output.say,
    "show": output.show,
    "display": lambda name: Display("plain").say(f"cannot read {name}"),
    "warning": lambda name: Display("plain").warn(f"cannot read {name}"),
    "event": lambda name: Display("plain", form="json").warn(f"cannot read {name}"),
    "console": lambda name: Console().say(name),
    "heading": lambda name: Console().heading("step", name),
    "detail": lambda name: Console(verbosity=1).detail(name),
    "failure": lambda name: Console().fail(name),
    "result": lambda name: Console().result({}, name),
    "value": lambda name: output.show_json({name: name}),
    "error": lambda name: output.say(f"error: {DataError(name, why=name)}"),
    "prediction": lambda name: output.show(describe(Prediction(name, problem=name), 10)),
}


def is_harmless(text: str) -> bool:
    return all(
        letter in "\t\n" or unicodedata.category(letter) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for letter in text
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("printer", PRINTERS)
def test_no_name_reaches_the_terminal_as_a_command(printer: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    PRINTERS[printer](f"photos/{name}.png")
    said = "".join(capsys.readouterr())
    assert "photos" in said
    assert is_harmless(said), ascii(said)


@pytest.mark.parametrize("kind", [DataError, UsageError])
def test_a_name_with_a_newline_makes_no_message_of_its_own(kind: type[Exception]) -> None:
    error = kind("cannot read a\nerror: b", why="c\nerror: d")  # type: ignore[call-arg]
    assert [line for line in str(error).splitlines() if not line.startswith(" ")] == ["cannot read a\\nerror: b"]
    assert describe(Prediction("a\nb.png", problem="c\nd"), 3).count("\n") == 0


@given(st.text(), st.integers())
def test_json_is_exact_and_printable_text_is_kept(text: str, number: int) -> None:
    assert json.loads(output.dump_json({text: [text, number]})) == {text: [text, number]}
    assert output.dump_json(text).isprintable()
    shown = output.printable(text)
    assert output.printable(shown) == shown
    if all(letter.isprintable() or letter in "\t\n" for letter in text):
        assert shown == text
