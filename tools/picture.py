"""Draws the packages of the two programs in their layers, with arrows for what each imports, as SVG."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from tools.layers import LEVELS, read_graph

Edges = Mapping[str, set[str]]
BY = "@"
"""Stands in the name of a place by which an arrow passes a row."""

WIDTH, ROW, BOX, MARGIN, GAP = 680, 52, 26, 64, 16
STYLE = """
text { font: 13px sans-serif; text-anchor: middle; fill: #263238 }
.layer { fill: #78909c; text-anchor: start } .program { font-weight: bold; text-anchor: start; font-size: 16px }
.box { fill: #eceff1; stroke: #546e7a } .band { fill: #f7f9fa } path { fill: none; stroke: #607d8b }
.arrow { marker-end: url(#arrow) }
"""


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float


Drawing = tuple[dict[str, Box], set[tuple[str, str]], list[tuple[int, int, int]]]


def list_parts(program: str, graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return which parts of a program each part imports: packages, and modules outside of packages."""
    parts: dict[str, set[str]] = {name: set() for name in LEVELS[program]}
    for module, targets in graph.items():
        for target in targets:
            (top, _, rest), (other, _, below) = module.partition("."), target.partition(".")
            part, imported = rest.partition(".")[0], below.partition(".")[0]
            if top == other == program and part != imported and part and imported:
                parts[part].add(imported)
    return parts


def reduce(parts: Edges) -> dict[str, set[str]]:
    """Leave out each import of what another imported part imports too, directly or not."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set().union(*({below, *reach(below)} for below in parts[name]))
        return reached[name]

    return {
        name: {each for each in below if not any(each in reach(by) for by in below)} for name, below in parts.items()
    }


def place(program: str, parts: Edges, top: int) -> Drawing:
    """Return a box for each part, the ways of the arrows, and each layer's number, beginning and height."""
    levels = LEVELS[program]
    depth: dict[str, int] = {}

    def count(name: str) -> int:
        if name not in depth:
            depth[name] = max((count(each) + 1 for each in parts[name] if levels[each] == levels[name]), default=0)
        return depth[name]

    order = sorted({(levels[name], count(name)) for name in parts}, reverse=True)
    row = {name: order.index((levels[name], count(name))) for name in sorted(parts)}
    steps = set()
    for name in sorted(parts):
        for each in sorted(parts[name]):
            # On its way through other rows an arrow has a place of its own, which all arrows to the same part share.
            way = [name, *(f"{each}{BY}{number}" for number in range(row[name] + 1, row[each])), each]
            row |= {by: int(by.partition(BY)[2]) for by in way[1:-1]}
            steps |= set(pairwise(way))
    at = arrange([[name for name in row if row[name] == number] for number in range(len(order))], steps)
    boxes = {name: Box(at[name], top + ROW * (row[name] + 0.5), measure(name)) for name in row}
    starts = {level: [number for number, found in enumerate(order) if found[0] == level] for level, _ in order}
    return boxes, steps, [(level, top + ROW * found[0], ROW * len(found)) for level, found in starts.items()]


def arrange(rows: list[list[str]], steps: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return the middle of everything in each row, in an order that has few crossings: near what it is joined to."""
    at = {name: x for row in rows for name, x in spread(row).items()}
    joined: dict[str, list[str]] = {name: [] for name in at}
    for above, below in sorted(steps):
        joined[above].append(below)
        joined[below].append(above)
    for row in [*rows, *reversed(rows)] * 4:
        wanted = {name: mean([at[each] for each in joined[name]] or [at[name]]) for name in row}
        row.sort(key=lambda name: (wanted[name], name))
        at |= settle(row, wanted)
    return at


def settle(names: list[str], wanted: Mapping[str, float]) -> dict[str, float]:
    """Return places as near to the wanted ones as the widths, the order and the margins of a row allow."""
    first, last, edge = {}, {}, float("-inf")
    for name in names:
        first[name] = max(wanted[name], edge + GAP + measure(name) / 2)
        edge = first[name] + measure(name) / 2
    edge = float("inf")
    for name in reversed(names):
        last[name] = min(wanted[name], edge - GAP - measure(name) / 2)
        edge = last[name] - measure(name) / 2
    left, right = float(MARGIN), float(WIDTH)
    found = {name: (first[name] + last[name]) / 2 for name in names}
    for name in names:
        found[name] = max(found[name], left + GAP + measure(name) / 2)
        left = found[name] + measure(name) / 2
    for name in reversed(names):
        found[name] = min(found[name], right - GAP - measure(name) / 2)
        right = found[name] - measure(name) / 2
    return found


def measure(name: str) -> float:
    return 8.0 if BY in name else 8.0 * len(name) + 16


def spread(names: list[str]) -> dict[str, float]:
    """Return the middle of each box of a row, with equal gaps."""
    gap = (WIDTH - MARGIN - sum(map(measure, names))) / (len(names) + 1)
    found, x = {}, float(MARGIN)
    for name in names:
        found[name] = x + gap + measure(name) / 2
        x += gap + measure(name)
    return found


def draw() -> str:
    """Return the picture."""
    lines: list[str] = []
    top, graph = 0, read_graph()
    for program in LEVELS:
        parts = reduce(list_parts(program, graph))
        lines.append(f'<text class="program" x="8" y="{top + 26}">{program}/</text>')
        drawing = place(program, parts, top + 40)
        lines += draw_program(drawing)
        bands = drawing[-1]
        top = bands[-1][1] + bands[-1][2] + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}">'
    arrow = '<path d="M0 0L8 4L0 8z" style="fill: #607d8b"/>'
    marker = f'<marker id="arrow" markerWidth="8" markerHeight="8" refX="8" refY="4" orient="auto">{arrow}</marker>'
    paper = f'<rect width="{WIDTH}" height="{top}" fill="white"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", f"<defs>{marker}</defs>", paper, *lines, "</svg>"]) + "\n"


def draw_program(drawing: Drawing) -> Iterator[str]:
    boxes, steps, bands = drawing
    for number, (level, y, height) in enumerate(bands):
        if number % 2 == 0:
            yield f'<rect class="band" x="0" y="{y}" width="{WIDTH}" height="{height}"/>'
        yield f'<text class="layer" x="8" y="{y + height / 2 + 5:g}">layer {level}</text>'
    for above, below in sorted(steps):
        yield connect(boxes[above], boxes[below], "way" if BY in below else "arrow")
    for name, box in sorted(boxes.items()):
        x, top = box.x - box.width / 2, box.y - BOX / 2
        if BY in name:
            yield f'<path d="M{box.x:.0f} {top:.0f}v{BOX}"/>'
        else:
            yield f'<rect class="box" x="{x:.0f}" y="{top:.0f}" width="{box.width:.0f}" height="{BOX}" rx="4"/>'
            yield f'<text x="{box.x:.0f}" y="{box.y + 4.5:.0f}">{name}</text>'


def connect(start: Box, end: Box, kind: str) -> str:
    side = BOX / 2 if end.y > start.y else -BOX / 2
    y, last = start.y + side, end.y - side
    middle = (y + last) / 2
    curve = f"M{start.x:.0f} {y:.0f}C{start.x:.0f} {middle:.0f} {end.x:.0f} {middle:.0f} {end.x:.0f} {last:.0f}"
    return f'<path class="{kind}" d="{curve}"/>'
