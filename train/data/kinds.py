"""Says what a file is by its first bytes, so that a message can name it and say what to do with it."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from train.config.presets import read_table
from train.system.files import read_start

START: Final = 1024
"""Number of bytes of a file that tell what it is. Those of a tar are at 257; a drawing may begin with a comment."""

_IMAGES: Final = frozenset(("read", "heif", "convert"))


@dataclass(frozen=True)
class Kind:
    """What a file is: its name in a message, and what it is for this program."""

    name: str = ""  # empty if it is unknown
    use: str = "other"  # as train/data/kinds.yaml lists them
    suffix: str = ""  # with which the name of an image should end
    article: str = "a"
    remedy: str = ""  # what to do with it in place of an image

    @property
    def described(self) -> str:
        """What the file is, with an article."""
        if not self.name:
            return "a file of an unknown kind"
        return f"one image ({self.name})" if self.use in _IMAGES else f"{self.article} {self.name}".lstrip()


@cache
def _list_kinds() -> tuple[tuple[re.Pattern[bytes], Kind], ...]:
    table = read_table("data/kinds")
    remedies: dict[str, str] = table["remedies"]
    return tuple(
        (
            re.compile(facts["start"].encode("latin-1"), re.DOTALL),
            Kind(**{"remedy": remedies.get(facts["use"], ""), **{key: facts[key] for key in facts.keys() - {"start"}}}),
        )
        for facts in table["kinds"]
    )


def name_kind(content: bytes) -> Kind:
    """Return the kind of a file that begins with these bytes; the name of an unknown kind is empty."""
    start = content[:START]
    return next((kind for pattern, kind in _list_kinds() if pattern.match(start)), Kind())


def read_kind(path: Path) -> Kind:
    """Return the kind of the file at a path, by its first bytes; it is unknown if the file cannot be read."""
    try:
        return name_kind(read_start(path, START))
    except OSError:
        return Kind()
