"""Names files as the user knows them: a container sees a mounted folder under another name than its user.

``TOOLKIT_PATHS`` says what the mounts are called outside, as a JSON object from the path inside to the path outside;
``toolkit`` and compose.yaml set it. Messages are translated where they are printed; records keep the paths of the
container.
"""

import json
import os
import re
from typing import Final

VARIABLE: Final = "TOOLKIT_PATHS"


def translate(text: str) -> str:
    """Return a message in which each path below a mount is the user's; unchanged where no mounts are named."""
    names = _read()
    if not names:
        return text
    # The longest first: of a mount within a mount, the inner one counts.
    inside = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{inside})(?![\w-]|\.\w)", lambda match: names[match[0]], text)


def _read() -> dict[str, str]:
    """Return the user's path of each mount; nothing where the variable is damaged, for names are only for show."""
    try:
        value = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {path: name for path, name in pairs if isinstance(name, str) and path.startswith("/") and path != "/"}
