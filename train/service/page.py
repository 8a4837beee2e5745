"""Makes the page on which the network can be tried: one file, which asks no other host for anything.

It is the same for every network. It asks the server for the facts that it shows, and writes them as plain text.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent
BASE: Final = FOLDER.parent / "report" / "base.css"
"""The style that this page shares with those of ``toolkit report``."""


class Page(NamedTuple):
    text: str
    policy: str  # its Content-Security-Policy


@cache
def render() -> Page:
    style = "".join(path.read_text(encoding="utf-8") for path in (BASE, FOLDER / "page.css"))
    script, text = ((FOLDER / name).read_text(encoding="utf-8") for name in ("page.js", "page.html"))
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "connect-src 'self'",
            "img-src blob: data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
    return Page(text.replace("@style@", style).replace("@script@", script), policy)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
