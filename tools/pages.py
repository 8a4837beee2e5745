"""What is generated of the pages, and the manual: ``python -m tools.pages`` writes it, and tests compare it."""

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

from toolkit import diagnosis
from toolkit.base.errors import list_exit_codes
from toolkit.diagnosis.table import PLACES
from toolkit.doctor.cards import Card, find_card
from toolkit.versions import numbers
from toolkit.versions.matrix import Cell, State, list_cells, render
from toolkit.versions.table import load_table
from tools import drawings, layers, picture, reference
from tools.reference import Parameter
from train.command_line import give_options, make_app
from train.config.configuration import DEPTH, TrainConfig
from train.config.option import Panel, list_options

ROOT = Path(__file__).parents[1]
REMEDIES = ROOT / "toolkit" / "checks" / "remedies.json"
PAGES = [
    ROOT / "docs" / name
    for name in (
        "architecture.md",
        "commands.md",
        "exit-codes.md",
        "options.md",
        "troubleshooting.md",
        "versions.md",
    )
]
BLANK = "\n\n"
MANUAL = ROOT / "docs" / "toolkit.1"
PICTURE = ROOT / "docs" / "architecture.svg"


def generate(text: str) -> str:
    """Return a page with its generated parts made anew."""
    for name, render_part in PARTS.items():
        if f"<!-- {name} -->" in text:
            text = _replace(text, name, render_part())
    return text


def render_matrix() -> str:
    return f"```\n{render(load_table()).partition(BLANK)[0]}\n```"


def render_sets(platform: str = "") -> str:
    """Return a table for each TensorFlow: the CUDA releases for each group of capabilities, with a card of each."""
    cells = [cell for cell in list_cells(load_table(), platform) if cell.clang]
    return BLANK.join(_render_sets(name, cells) for name in dict.fromkeys(cell.tensorflow for cell in cells))


def _render_sets(tensorflow: str, cells: Sequence[Cell]) -> str:
    mine = [cell for cell in cells if cell.tensorflow == tensorflow]
    groups: dict[tuple[tuple[str, State], ...], list[str]] = {}
    for capability in sorted({cell.capability for cell in mine}, key=numbers.order):
        cudas = tuple((cell.cuda, cell.state) for cell in mine if cell.capability == capability)
        groups.setdefault(cudas, []).append(capability)
    lines = [f"**TensorFlow {tensorflow}**, Python {', '.join(mine[0].pythons)}", ""]
    lines += ["| capability | such as | CUDA | state |", "|---|---|---|---|"]
    for cudas, capabilities in groups.items():
        cards = [find_card(name) for name in drawings.CARDS]
        fitting = zip(drawings.CARDS, cards, strict=True)
        names = ", ".join(name for name, card in fitting if _fits(card, mine[0].platform, capabilities))
        for state in dict.fromkeys(state for _, state in cudas):
            releases = sorted((cuda for cuda, each in cudas if each == state), key=numbers.parse)
            lines.append(f"| {', '.join(capabilities)} | {names} | {', '.join(releases)} | {state} |")
    return "\n".join(lines)


def _fits(card: Card, platform: str, capabilities: Sequence[str]) -> bool:
    return card.capability in capabilities and card.platform in {"", platform}


def render_exit_codes() -> str:
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in sorted(list_exit_codes().items()))
    codes += "\n| 128 + n | a job was ended by signal n; 137 most often means that memory ran out |"
    return f"| code | meaning |\n|---|---|\n{codes}"


def render_shared() -> str:
    return f"`toolkit` imports of `train`: {', '.join(f'`{name}`' for name in layers.list_shared())}."


def render_failures() -> str:
    """Return a section for each subject: its kinds and then its other failures, each folded to the message."""
    rows = sorted(diagnosis.load().rows.values(), key=lambda row: (row.subject, not row.rank.general))
    subjects = groupby(rows, lambda row: row.subject)
    return BLANK.join(BLANK.join([f"### {name}", "\n".join(map(_fold, each))]) for name, each in subjects)


def _fold(row: diagnosis.Row) -> str:
    where = [f"{PLACES[name]}: {place.remedy}" for name, place in row.places.items()]
    said = _to_html(" ".join((row.cause, row.remedy, *where)))
    shown = f"<summary><code>{html.escape(row.title, quote=False)}</code></summary>"
    return f"<details>{shown}{said} <code>--id {row.id}</code></details>"


def _to_html(text: str) -> str:
    marked = re.sub(r"\{(\w+)\}", r"<var>\1</var>", html.escape(text, quote=False))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", marked)


def render_remedies() -> str:
    """Return the remedies of the failures that the smoke checks name. They cannot read the table where they run."""
    sources = "".join(path.read_text() for path in sorted(REMEDIES.parent.glob("*.py")))
    names = set(re.findall(r'find_remedy\(\s*"([\w-]+)"', sources))
    rows = diagnosis.load().rows
    texts = {
        name: {"": rows[name].remedy, **{at: place.remedy for at, place in rows[name].places.items()}}
        for name in sorted(names)
    }
    clauses = {name: {place: diagnosis.to_clause(text) for place, text in each.items()} for name, each in texts.items()}
    return f"{json.dumps(clauses, indent=2, ensure_ascii=False)}\n"


def list_job_options(configuration: type = TrainConfig) -> dict[str, list[Parameter]]:
    """Return the arguments and options of the training job, by the panels of its help."""

    def command(**values: Any) -> None:
        pass

    known = {"depth": DEPTH, **list_options(configuration)}
    panels: dict[str, list[Parameter]] = {panel: [] for panel in ("Run", *get_args(Panel))}
    (job,) = reference.read_commands(make_app(give_options(command, configuration)), "python -m train")
    for parameter in job.parameters:
        panels[
            known[parameter.name].panel if parameter.name in known and parameter.name != "dataset" else "Run"
        ].append(parameter)
    return panels


def render_options(configuration: type = TrainConfig) -> str:
    """Return a table of the options for each panel of the help."""
    known = {"depth": DEPTH, **list_options(configuration)}
    tables = []
    for panel, options in list_job_options(configuration).items():
        decides = ["yes" if each.name not in known or known[each.name].decides else "no" for each in options]
        tables.append("\n".join([f"## {panel}", "", *reference.tabulate(options, **{"decides the run": decides})]))
    return "\n\n".join(tables)


def _replace(text: str, name: str, content: str) -> str:
    pattern = rf"<!-- {name} -->\n.*?<!-- /{name} -->"
    return re.sub(pattern, lambda _: f"<!-- {name} -->\n{content}\n<!-- /{name} -->", text, flags=re.DOTALL)


PARTS: Mapping[str, Callable[[], str]] = {
    "matrix": render_matrix,
    "grid": render_sets,
    "grid-arm64": lambda: render_sets("linux/arm64"),
    "exit-codes": render_exit_codes,
    "options": render_options,
    "commands": reference.render_page,
    "shared": render_shared,
    "failures": render_failures,
}
"""What makes each generated part of a page, by the name in its comments."""


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(generate(page.read_text()))
    PICTURE.write_text(picture.draw())
    for drawing, draw in drawings.DRAWINGS.items():
        (ROOT / "docs" / drawing).write_text(draw())
    REMEDIES.write_text(render_remedies())
    MANUAL.write_text(reference.render_manual(list_job_options()))
