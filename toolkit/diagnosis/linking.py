"""Computes whose the names are that a linker does not find, as it prints them for C and C++."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_ROUND: Final = re.compile(r"\([^()]*\)")
_ANGLED: Final = re.compile(r"<[^<>]*>")
_POINTER: Final = re.compile(r"\((?:__\w+ )?[*&](\w+(?:::\w+)*)\)")
"""A variable that points to a function, as Microsoft's tools write it."""
_QUALIFIED: Final = re.compile(r"(?:\w+::)+~?\w+")
_TABLES: Final = re.compile("vtable for ")
"""What stands before the name of a class whose virtual functions are not found."""
_BUILT: Final = re.compile(r"(?:^|/)(?:build[\w.-]*|cmake-build[\w-]*|bazel-out)/|^(?:\.\./)*(?:lib|bin)/")
"""A folder into which a build writes."""
_TREE: Final = frozenset({"tensorflow", "tsl", "xla", "stream_executor", "mlir", "toco", "tflite"})
"""Namespaces of the sources of TensorFlow."""
_STRINGS: Final = re.compile(r"__cxx11|\[abi:cxx11\]")

Words = Mapping[str, str]


def read_symbol(words: Words, _facts: Words, known: Mapping[str, Any]) -> Words:
    """Return the name of a symbol without types, arguments and access, and its outermost namespace.

    ``own``: it is of the sources of TensorFlow.
    ``home``: the library that lacks the symbol, if a build has just made it and it is the one that should define it.
    """
    symbol = words.get("exported", words.get("symbol", "")).lstrip('"')
    symbol = symbol.partition('"')[0]
    name = _name(symbol)
    space = name.partition("::")[0] if "::" in name else ""
    table = _TABLES.match(symbol)
    told = {"bare": f"{table[0] if table else ''}{name}", **({"exported": name} if "exported" in words else {})}
    told |= {"space": space} if space not in {"", "std"} else {}
    told |= {"own": "yes"} if space in _TREE else {}
    path = words.get("object", "")
    file = path.rpartition("/")[2]
    owners = (row for row in known["namespaces"] if "library" in row and re.match(row["library"], file))
    if _BUILT.search(path) and any(re.match(row["match"], name) for row in owners):
        told |= {"home": file, **({"blas": "yes"} if re.search("blas|gem[mv]", name) else {})}
    return told


def count(lines: Sequence[Words], _known: Mapping[str, Any]) -> Words:
    """Return whether each name that a link lacks has a string of C++ in it, without which no form of strings counts."""
    symbols = [each.get("exported", each.get("symbol", "")) for each in lines]
    names = list(dict.fromkeys(_name(symbol) for symbol in symbols if symbol))
    told = {"strings": "yes"} if symbols and all(_STRINGS.search(symbol) for symbol in symbols) else {}
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return {**told, "others": others}


def _name(symbol: str) -> str:
    """Return the qualified name of a symbol: the last one that is neither an argument nor a part of a type."""
    plain = _strip(_POINTER.sub(r"\1", _strip(symbol, _ANGLED)), _ROUND)
    names = _QUALIFIED.findall(plain)
    return names[-1] if names else plain.strip()


def _strip(text: str, part: re.Pattern[str]) -> str:
    """Return a text without what stands in brackets of one kind, one in another too."""
    while (left := part.sub("", text)) != text:
        text = left
    return text
