"""Writes pages about runs, wheels, grafts, environments, images and smoke reports: one HTML file each.

A page must open from a mail attachment years later, and must not run what a name in a record says. So it is one file
that loads nothing from elsewhere, and Jinja2 escapes every value in it. This package draws its charts as SVG, with a
few hundred lines of script for looking closer. A library of charts would have more bytes than the whole page, would
draw nothing before it runs, and would have to be kept up to date. There is no build step: style and script are files
of this package, and are copied into the page as they are. Nothing on a page depends on when it was made, so the same
inputs give the same bytes.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from toolkit import records
from toolkit.base import files, manifest
from toolkit.base.errors import IntegrityError, UsageError
from toolkit.records import Run
from toolkit.records.run import PAGE
from toolkit.report import artifact, comparison, page, run
from toolkit.report.chain import PageContext
from toolkit.report.page_model import Page


def compose(targets: Sequence[str], context: PageContext, *, pictures: bool = True) -> tuple[Page, str]:
    """Return what the page of one thing says, or that of several runs side by side, and its HTML.

    Raises what :func:`describe` raises.
    """
    described = describe(targets, context, pictures=pictures)
    with _explaining(targets):
        return described, page.render(described)


def describe(targets: Sequence[str], context: PageContext, *, pictures: bool = True) -> Page:
    """Return what the page of one thing says, or that of several runs side by side.

    Raises UsageError if they do not go together or if one is not there, and another ToolkitError if one cannot be read.
    """
    with _explaining(targets):
        return _describe(targets, context, pictures=pictures)


@contextmanager
def _explaining(targets: Sequence[str]) -> Iterator[None]:
    """Raise IntegrityError where a record has not the form that its readers expect."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise IntegrityError(
            f"a record of {', '.join(targets)} is damaged",
            why=f"{type(error).__name__}: {error}",
            remedy=f"`toolkit verify {targets[0]}` says what is wrong with it",
        ) from error


def _describe(targets: Sequence[str], context: PageContext, *, pictures: bool) -> Page:
    shown_artifacts = [records.find(target, context.state) for target in targets]
    if len(shown_artifacts) > 1:
        if not all(isinstance(shown, Run) for shown in shown_artifacts):
            raise UsageError("only runs are shown side by side", remedy="give runs alone, or one other thing")
        return comparison.describe_runs([shown.folder for shown in shown_artifacts], context)
    (single,) = shown_artifacts
    if isinstance(single, Run):
        return run.describe(single, context, pictures=pictures)
    return artifact.describe(single, context)


def name_page(targets: Sequence[str]) -> str:
    """Return a name for the file of a page: that of the thing, with a hyphen for what file names cannot have."""
    if len(targets) > 1:
        return "comparison"
    path = Path(targets[0]).resolve()
    name = path.parent.name if path.name == manifest.FILE else path.name.removesuffix(".json")
    return re.sub(r"[^\w.-]+", "-", name)


def write_beside(folder: Path, state: Path) -> None:
    """Write the page of a run into its folder, right after the command that made it.

    It compares the folder with its record. What the run was made from is shown and not compared, because that takes
    seconds.
    """
    context = PageContext(state=state, compared="run")
    files.write_atomically(folder / PAGE, compose([str(folder)], context)[1])
