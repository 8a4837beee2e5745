"""Reads tracebacks as Python, IPython, Colab, rich and pytest print them: who raised an error, and for whom."""

import re
from collections.abc import Mapping
from typing import Final

_FRAME: Final = re.compile(r"""(?im)file "?([^"\n,]+?)"?(?:, line |:)(\d+)(?:$|,? in ([\w.<>]+))""")
"""A frame of a traceback, as Python or IPython prints it."""
_CELL: Final = re.compile(r"(?m)^(?:│ )?\[?([^\s:]+\.py)\]?(?:\(\S*\))?(?P<line>:\d+:?)? in ([<\w]+)")
"""A frame of a traceback, as Colab, older notebooks, rich and pytest print it."""
_SOURCE: Final = re.compile(
    r"\s*(?:[│|]\s*)?(?:(?:-+>|❱)?\s*\d+\s[│\s][│\s]*(?:raise\b|(?:f|r|fr|rf)?[\"'])|raise\b.*[\"'].*\{\w)",
    re.IGNORECASE,
)
"""A line of source that a traceback quotes with a text of a message: behind its number, or with a value to fill in."""
_RAISING: Final = re.compile(r"raise\b|.*because of the following error(?: \([^()]*\))?:\s*$", re.IGNORECASE)
"""A statement that raises, or a message that says no more than that the next line is the cause."""
_QUOTING: Final = "> \t│|"
"""What stands before lines that somebody quotes, or before those of a frame."""
_TRACEBACK: Final = "traceback (most recent call last)"
_LIBRARY: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\](?:python)?\d|<frozen|python\d+[/\\]lib[/\\]", re.IGNORECASE
)
"""A file that is not the user's."""
_PACKAGE: Final = re.compile(r"(?:site|dist)-packages[/\\]((\w+)[/\\][\w/\\]*)", re.IGNORECASE)
_GETTER: Final = re.compile(r"(?:[\w<>]+\.)*(?:_*getattr(?:ibute)?_*|_\w*deprecat\w*)")
"""A function that answers for a name that a module or object does not have, and so raises what its caller asked for."""
_GENERATED: Final = re.compile(r"[^/\\]+_pb2(?:_grpc)?\.py$")
_OF_PROTOBUF: Final = re.compile(r"[/\\]google[/\\](?:protobuf|_upb)[/\\]")
_STATEMENT: Final = re.compile(r"(?m)^(?:-+> *\d+ |[│ ]*❱ *\d+ [│ ]*|(?= {4}))([^\n]*\w[^\n]*)")
"""A line of source that a traceback quotes: behind the arrow of a notebook or of rich, or by its indent."""
_IMPORT: Final = re.compile(
    r"from (\.*[a-z_][\w.]*|\.+) import [^\n]*(?:\n *\^+)?\n(?:[^\n]{0,40}\n){0,2}\Z", re.IGNORECASE
)
"""The last line of a traceback that ends at an import: before Python 3.7 the message does not name the module."""


def quotes_source(line: str) -> bool:
    """Return whether a line is one of source that a traceback quotes with a text of a message."""
    return _SOURCE.match(line) is not None


def is_on_the_way(line: str) -> bool:
    """Return whether a line of a traceback is not the message at its end."""
    text = line.lstrip(_QUOTING)
    return any(each.match(text) for each in (_FRAME, _CELL, _RAISING))


def find_origin(text: str) -> tuple[str, ...]:
    """Return the innermost frames of the last traceback in a text: the program's, and that of a library below it."""
    frames = list(_FRAME.finditer(text, text.rfind("Traceback (most recent call last)") + 1))
    own = [index for index, frame in enumerate(frames) if not _LIBRARY.search(frame[1])]
    shown = dict.fromkeys([*own[-1:], *([len(frames) - 1] if frames else [])])
    return tuple(f"{frames[index][1]}, line {frames[index][2]}, in {frames[index][3] or '<module>'}" for index in shown)


def tell(before: str, after: str) -> Mapping[str, str]:
    """Return what the traceback before a line says of who raised its error. Without one there, that after it counts.

    ``raiser`` is the package in whose file it ends, ``raising`` the module of that file, and ``caller`` the package
    that called it. ``generated`` is the module that protoc wrote, if it asked protobuf. ``answered``: no frame shows
    who asked. ``program`` is the file of one's own in which it ends, if it ends in one. ``statement`` is the last line
    of source that the traceback quotes, and ``imported`` the module at whose import it ends.
    """
    # After a message that was copied above its traceback, the traceback follows.
    frames = _list_frames(before) or _list_frames("".join(after.partition(_TRACEBACK)[1:]))
    asking = _skip_getters(frames)
    told = {"answered": "yes"} if frames and not asking else {}
    frames = asking or frames
    if package := _PACKAGE.search(frames[-1][1]) if frames else None:
        told |= {"raiser": package[2], "raising": ".".join(re.findall(r"\w+", package[1]))}
    file = next((frame[1] for frame in reversed(frames) if not _OF_PROTOBUF.search(frame[1])), "")
    if generated := _GENERATED.search(file):
        told["generated"] = generated[0]
    if asking and not _LIBRARY.search(asking[-1][1]):
        told["program"] = frames[-1][1]
    # Who called what raised the error, if a function of TensorFlow stands between them.
    above = [frame[1] for frame in frames if frame[1] != frames[-1][1]]
    owners = [found[2] if (found := _PACKAGE.search(each)) else "" for each in above]
    caller = next((each for each in reversed(owners) if each not in {"tensorflow", "tensorflow_core"}), "")
    told |= {"caller": caller} if caller else {}
    if quoted := _STATEMENT.findall(before):
        told["statement"] = quoted[-1].strip()
    if found := _IMPORT.search(before):
        module = found[1] if not found[1].startswith(".") else told.get("raiser", "")
        told |= {"imported": module} if module else {}
    return told


def _list_frames(text: str) -> list[re.Match[str]]:
    return sorted((*_FRAME.finditer(text), *_CELL.finditer(text)), key=_start)


def _skip_getters(frames: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return frames without those at their end in which a module or object only says that it lacks a name."""
    while frames and _GETTER.fullmatch(frames[-1][3] or ""):
        frames = frames[:-1]
    return frames


def _start(match: re.Match[str]) -> int:
    return match.start()
