"""Writes a page as one HTML file, which asks no other host for anything and runs no script but its own.

Every value is escaped by the template engine. What the page may do is in its Content-Security-Policy: its one style
sheet and its one script by their hashes, pictures inside the page, and nothing else. So even markup that got into the
page could run nothing and could send nothing.
"""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit import __version__
from toolkit.base import project
from toolkit.base.errors import UsageError
from toolkit.base.privacy import leave_out_places
from toolkit.report import chart
from toolkit.report.page_model import Page
from train.system.output import printable

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER: Final = Path(__file__).parent
BASE: Final = project.locate("train/report/base.css")
"""The style that these pages share with that of the prediction server."""

MOST: Final = 2_000_000
"""Bytes of the largest page; mail programs and their servers take it as an attachment."""


def render(page: Page) -> str:
    """Return the HTML of a page. Equal pages have equal bytes. Raises UsageError if it would be too large."""
    style = "".join(path.read_text(encoding="utf-8") for path in (BASE, FOLDER / "page.css"))
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src '{digest(style)}'",
            f"script-src '{digest(script)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    template = _make_environment().get_template("page.html")
    # Pages are passed on. Names of the user and the host are left in: one that is a word would change the page itself.
    text = leave_out_places(template.render(page=page, style=style, script=script, policy=policy, version=__version__))
    if len(text.encode()) > MOST:
        raise UsageError(
            f"the page would have {len(text.encode()):,} bytes, more than {MOST:,}",
            remedy="name fewer runs, or leave pictures out with --no-pictures",
        )
    return text


def digest(text: str) -> str:
    """Return the source expression of an inline script or style in a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embed(value: object) -> str:
    """Return JSON that no HTML parser takes for markup, for a ``script`` element that is data."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _make_environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    # The only values that are not escaped are two files of this package, and JSON without the letters of markup.
    made.filters |= {"own": Markup, "embed": lambda value: Markup(embed(value))}  # noqa: S704
    made.globals |= {
        "draw": chart.draw,
        "shade": chart.shade,
        "draw_matrix": chart.draw_matrix,
        "readable": chart.READABLE,
    }
    return made


def _clean(value: Any) -> Any:
    """Replace what neither HTML nor a terminal accepts, in each text that a template writes."""
    return printable(value) if type(value) is str else value
