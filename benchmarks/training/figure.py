"""Curves of a loss over steps, as a picture."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Curve(NamedTuple):
    """One line: what it shows (lines of one name have one colour), steps and losses."""

    name: str
    steps: Sequence[int]
    losses: Sequence[float]


def draw(curves: Iterable[Curve], label: str, path: Path) -> None:
    """Draw all curves; `label` says how the losses were smoothed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    colors: dict[str, str] = {}
    for curve in curves:
        named = curve.name in colors
        color = colors.setdefault(curve.name, f"C{len(colors)}")
        axes.plot(curve.steps, curve.losses, color=color, linewidth=1, label=None if named else curve.name)
    axes.set_xlabel("step (64 images each)")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)
