"""Replaces paths inside a container by the user's paths in messages.

``TOOLKIT_PATHS`` is a JSON object from the path inside to the path outside of each mount; ``toolkit`` and compose.yaml
set it. Records keep the paths of the container.
"""

import json
import os
import re
from typing import Final

VARIABLE: Final = "TOOLKIT_PATHS"


def translate(text: str) -> str:
    names = _read()
    if not names:
        return text
    # The longest first: of a mount within a mount, the inner one counts.
    inside = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{inside})(?![\w-]|\.\w)", lambda match: names[match[0]], text)


def _read() -> dict[str, str]:
    """Read the mounts; a damaged variable counts as none, because names are only shown."""
    try:
        value = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {path: name for path, name in pairs if isinstance(name, str) and path.startswith("/") and path != "/"}
