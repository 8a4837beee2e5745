"""Draws pictures of the pages as SVG, from what the program answers: ways, `advise`, a graft, workers."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from toolkit.doctor import advice
from toolkit.doctor.cards import find_card
from toolkit.doctor.decision import Decision, Kind, decide
from toolkit.doctor.machine import Device, Machine
from toolkit.versions.table import load_table
from train.cluster.tf_config import Cluster

CARDS = (
    *("GTX 1080", "Tesla T4", "RTX 3090", "A100", "RTX 4090", "L40S", "H100"),
    *("RTX 5060", "RTX 5090", "B200", "B300"),
    *("GH200", "DGX Spark", "Jetson Orin"),
    *("K80", "GTX 680"),
)
"""Examples on the picture of the ways. The program says which way each of them goes."""

STYLE = """
text { font: 14px sans-serif; fill: #263238 } .strong { font-weight: bold }
.code { font-family: monospace; font-size: 13px } .ask { fill: #eceff1; stroke: #546e7a }
.published { fill: #e8f5e9; stroke: #43a047 } .graft { fill: #fff8e1; stroke: #ffa000 }
.build { fill: #fbe9e7; stroke: #e64a19 } .cpu { fill: #f3e5f5; stroke: #8e24aa }
.line { stroke: #607d8b; fill: none; stroke-width: 1.5; marker-end: url(#arrow) }
"""
ARROW = '<path d="M0 0L8 4L0 8z" style="fill: #607d8b"/>'
MARKER = f'<marker id="arrow" markerWidth="8" markerHeight="8" refX="8" refY="4" orient="auto">{ARROW}</marker>'


@dataclass(frozen=True)
class Step:
    """A question about a card, and what is done if the answer is yes."""

    way: Kind
    question: tuple[str, ...]
    name: str
    command: str
    time: str


STEPS = (
    Step(
        "published",
        ("Has a published", "wheel machine code", "for the card?"),
        "Published",
        "toolkit install",
        "minutes",
    ),
    Step(
        "graft", ("Has it PTX that", "can be compiled", "for the card?"), "Grafted", "toolkit graft", "5 to 12 minutes"
    ),
    Step("build", ("Can TensorFlow", "be built for", "the card?"), "Built", "toolkit build-wheel", "hours"),
    Step("cpu", (), "On the processor", "toolkit up --card none", "at once"),
)


def sort_cards() -> dict[Kind, list[str]]:
    """Return the cards of each way, as the program decides for a new driver."""
    ways: dict[Kind, list[str]] = {step.way: [] for step in STEPS}
    for card in CARDS:
        ways[_decide(card).way.kind].append(card)
    return ways


def _decide(card: str, driver: str = "") -> Decision:
    return decide(_describe_machine(card, driver))


def _describe_machine(card: str, driver: str) -> Machine:
    found = find_card(card)
    device = Device(name=card, capability=found.capability, driver=driver, platform=found.platform)
    return Machine(devices=(device,), platform=found.platform or "linux/amd64", python="3.11")


def draw_ways() -> str:
    """Return the decision tree: a question in each row, and beside it what is done if the answer is yes."""
    width, row, wide, left = 540, 128, 170, 244
    ways, lines = sort_cards(), list[str]()
    for number, step in enumerate(STEPS):
        top = 12 + number * row
        lines += _draw_box(left, top, width - left - 8, 100, step.way)
        lines += [f'<text class="strong" x="{left + 12}" y="{top + 24}">{step.name}: {step.time}</text>']
        lines += [f'<text class="code" x="{left + 12}" y="{top + 46}">{step.command}</text>']
        shown = textwrap.wrap(", ".join(ways[step.way]), 34)
        lines += [f'<text x="{left + 12}" y="{top + 68 + 20 * line}">{text}</text>' for line, text in enumerate(shown)]
        if not step.question:
            lines += [f'<path class="line" d="M{8 + wide / 2:g} {top - 28}V{top + 50}H{left}"/>']
            continue
        lines += _draw_box(8, top, wide, 100, "ask")
        lines += [f'<text x="20" y="{top + 34 + 20 * line}">{text}</text>' for line, text in enumerate(step.question)]
        lines += [f'<path class="line" d="M{8 + wide} {top + 50}H{left}"/>']
        lines += [f'<text x="{wide + 22}" y="{top + 42}">yes</text>']
        lines += [f'<text x="{20 + wide / 2:g}" y="{top + 120}">no</text>']
        if STEPS[number + 1].question:
            lines += [f'<path class="line" d="M{8 + wide / 2:g} {top + 100}V{top + row}"/>']
    return _finish(lines, width, 12 + len(STEPS) * row - 16)


def draw_graft() -> str:
    """Return a sketch of a library before and after a graft."""
    width, lines = 560, list[str]()
    for left, title in ((8, "published wheel"), (328, "after the graft")):
        lines += _draw_box(left, 12, 224, 206, "ask")
        lines += [f'<text class="strong" x="{left + 12}" y="36">{title}</text>']
        lines += _draw_box(left + 12, 50, 200, 68, "published")
        lines += [
            f'<text x="{left + 24}" y="{y}">{text}</text>'
            for y, text in ((78, "machine code for"), (98, "capabilities 6.0 to 9.0"))
        ]
        lines += _draw_box(left + 12, 126, 200, 34, "ask")
        lines += [f'<text x="{left + 24}" y="149">PTX of 9.0</text>']
    lines += _draw_box(340, 168, 200, 40, "graft")
    lines += ['<text x="352" y="193">machine code for 12.0</text>']
    lines += [
        '<path class="line" d="M220 143C280 143 280 188 340 188"/>',
        '<text class="code" x="256" y="140">ptxas</text>',
    ]
    return _finish(lines, width, 230)


def draw_workers() -> str:
    """Return which parts of a batch each worker computes, and who writes the run's folder."""
    width, shards, workers, row, lines = 540, 4, 2, 92, list[str]()
    middle = 20 + workers * row / 2
    lines += [*_draw_box(8, 20, 96, workers * row - 12, "ask"), '<text class="strong" x="20" y="44">a batch</text>']
    for index in range(workers):
        top = 20 + index * row
        parts = Cluster(("",) * workers, index).divide(shards)
        for part in parts:
            y = top + (part - parts.start) * row / len(parts)
            lines += _draw_box(118, y, 84, row / len(parts) - 12, "published")
            lines += [f'<text x="130" y="{y + 23:g}">shard {part}</text>']
            lines += [f'<path class="line" d="M202 {y + 17:g}L236 {top + 40}"/>']
        lines += _draw_box(236, top, 104, row - 12, "graft")
        lines += [f'<text class="strong" x="248" y="{top + 46}">worker {index}</text>']
        lines += [f'<path class="line" d="M340 {top + 40}L376 {middle - 6:g}"/>']
    lines += _draw_box(376, middle - 46, 156, 80, "ask")
    added = ("gradients, added", f"from shard 0 to {shards - 1}", "by all workers")
    lines += [f'<text x="388" y="{middle - 20 + 22 * line:g}">{text}</text>' for line, text in enumerate(added)]
    bottom = 20 + workers * row
    lines += _draw_box(236, bottom + 14, 296, 56, "build")
    lines += [f'<path class="line" d="M454 {middle + 34:g}V{bottom + 14}"/>']
    lines += [f'<text class="strong" x="248" y="{bottom + 38}">checkpoints and metrics</text>']
    lines += [f'<text x="248" y="{bottom + 58}">written by worker 0 alone</text>']
    return _finish(lines, width, bottom + 84)


def draw_advice() -> str:
    """Return what `toolkit advise` answers for an RTX 5090, as a terminal shows it."""
    card, driver, columns = "RTX 5090", "580.65.06", 88
    machine = _describe_machine(card, driver)
    answer = advice.render(decide(machine), machine, load_table())
    answer = re.sub(r"about \d+ (minutes|h) on this machine", _leave_open, answer)
    rows = [f'$ toolkit advise "{card}" --driver {driver}']
    for line in answer.splitlines():
        rows += textwrap.wrap(line, columns, subsequent_indent=" " * 13 if line.startswith(" ") else "  ")
    style = "text { font: 13px monospace; white-space: pre; fill: #eceff1 } .typed { fill: #a5d6a7 }"
    width, height = columns * 8 + 16, 19 * len(rows) + 22
    lines = [f'<rect width="{width}" height="{height}" rx="6" fill="#263238"/>']
    for number, text in enumerate(rows):
        kind = "" if number else ' class="typed"'
        lines += [f'<text{kind} x="12" y="{26 + 19 * number}" xml:space="preserve">{escape(text)}</text>']
    return "\n".join([_begin(width, height), f"<style>{style}</style>", *lines, "</svg>"]) + "\n"


def _leave_open(match: re.Match[str]) -> str:
    """Return a time that holds on every machine, because the picture is the same wherever it is drawn."""
    return "5 to 12 minutes" if match[1] == "minutes" else "hours, by the number of cores"


def _draw_box(x: float, y: float, width: float, height: float, kind: str) -> Iterator[str]:
    yield f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def _begin(width: int, height: int) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'


def _finish(lines: list[str], width: int, height: int) -> str:
    paper = f'<rect width="{width}" height="{height}" fill="white"/>'
    head = [_begin(width, height), f"<style>{STYLE}</style>", f"<defs>{MARKER}</defs>", paper]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


DRAWINGS = {"ways.svg": draw_ways, "graft.svg": draw_graft, "advise.svg": draw_advice, "workers.svg": draw_workers}
"""What draws each picture of docs/."""
