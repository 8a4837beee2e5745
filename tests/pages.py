"""The generated parts of the pages: ``python -m tests.pages`` writes them, and a test compares them."""

import re
from pathlib import Path
from typing import get_args

from toolkit import versions
from toolkit.errors import list_exit_codes
from toolkit.versions.matrix import list_cells, render, render_grid
from train.cli import declare_options
from train.config.option import Panel, list_options, name_flag
from train.config.run import DEPTH, TrainConfig

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("exit-codes.md", "options.md", "versions.md")]


def generate(text: str) -> str:
    """Return a page with its generated parts made anew."""
    table = render(versions.load_table()).partition("\n\n")[0]
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in sorted(list_exit_codes().items()))
    codes += "\n| 128 + n | a job was ended by signal n; 137 most often means that memory ran out |"
    cells = list(list_cells(versions.load_table()))
    parts = {
        "matrix": f"```\n{table}\n```",
        "grid": f"```\n{render_grid(cells, refusals=False)}\n```",
        "exit-codes": f"| code | meaning |\n|---|---|\n{codes}",
        "options": render_options(),
    }
    for name, content in parts.items():
        text = _replace(text, name, content)
    return text


def render_options(configuration: type = TrainConfig) -> str:
    """Return a table of the options for each panel of the help."""
    known, rows = {"depth": DEPTH, **list_options(configuration)}, {}
    for parameter in declare_options(configuration):
        option = known[parameter.name]
        default = _name_default(parameter.default)
        words = [option.flag or name_flag(parameter.name), option.metavar or ""]
        name, decides = f"`{' '.join(words).strip()}`".replace("|", "\\|"), "yes" if option.decides else "no"
        rows.setdefault(option.panel, []).append(f"| {name} | {default} | {decides} | {option.help} |")
    head = "| option | default | decides the run | |\n|---|---|---|---|\n"
    return "\n\n".join(f"## {panel}\n\n{head}" + "\n".join(rows[panel]) for panel in get_args(Panel))


def _name_default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value in (None, "") else f"`{value}`"


def _replace(text: str, name: str, content: str) -> str:
    pattern = rf"<!-- {name} -->\n.*?<!-- /{name} -->"
    return re.sub(pattern, lambda _: f"<!-- {name} -->\n{content}\n<!-- /{name} -->", text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(generate(page.read_text()))
