"""Turns paths inside a container into those of the user, for what people read."""

import json
import os
import re
from typing import Final

VARIABLE: Final = "TOOLKIT_PATHS"
"""Environment variable with a JSON object: for each mount its path inside and its path outside of the container."""


def translate(text: str) -> str:
    """Replace paths inside a container by the user's paths. Records keep the container's paths."""
    names = _read_mounts()
    if not names:
        return text
    # Longest first, so that the inner one of two nested mounts matches.
    inside = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{inside})(?![\w-]|\.\w)", lambda match: names[match[0]], text)


def _read_mounts() -> dict[str, str]:
    try:
        value = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {path: name for path, name in pairs if isinstance(name, str) and path.startswith("/") and path != "/"}
