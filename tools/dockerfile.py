"""Declares options and versions of a build in docker/Dockerfile: ``python -m tools.dockerfile`` writes it.

A Dockerfile names a build argument before its first stage, and again in each stage that reads it. No mark tells
where the lines of options are: it would change the bytes of the file, and with them the digest of each plan.
"""

import re
from collections.abc import Sequence
from typing import Final

from toolkit.base import project
from toolkit.versions.set import LIBRARIES
from toolkit.wheel.build_options import list_options

NAME: Final = "docker/Dockerfile"
STAGE: Final = "bazel-build"
"""The stage in which Bazel builds the wheel."""

COLLECT: Final = "bazel-collect"
"""The stage in which it says what it would download."""


def generate() -> str:
    """Return the Dockerfile in which Bazel's stages get each library's version, and each option only handed over."""
    names = [option.argument for option in list_options().values() if option.argument and not option.completed]
    options = declare(project.locate(NAME).read_text(), names, "", STAGE)
    return declare(options, [f"{name.upper()}_VERSION" for name in LIBRARIES], COLLECT, STAGE)


def declare(text: str, names: Sequence[str], *stages: str) -> str:
    """Return a Dockerfile in which the stages declare each name; the one without a name is the first part.

    A name that is missing there gets a line behind the last one of the names before it. Raises ValueError if the
    Dockerfile has no line for the first name.
    """
    parts = re.split(r"^(?=FROM )", text, flags=re.MULTILINE)
    named = [part.partition("\n")[0].rpartition(" AS ")[2] if part.startswith("FROM ") else "" for part in parts]
    return "".join(_declare(part, names) if name in stages else part for part, name in zip(parts, named, strict=True))


def _declare(part: str, names: Sequence[str]) -> str:
    lines = part.splitlines(keepends=True)
    before = -1
    for name in names:
        line = next((at for at, line in enumerate(lines) if re.match(rf"ARG {name}\b", line)), None)
        if line is None and before < 0:
            raise ValueError(f"{NAME} has no line ARG {name}")
        if line is None:
            line = before + 1
            lines.insert(line, f"ARG {name}\n")
        before = max(before, line)
    return "".join(lines)


if __name__ == "__main__":
    project.locate(NAME).write_text(generate())
