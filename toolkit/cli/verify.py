"""``toolkit verify``: what lies here still is what its record says, and a second build of a wheel gives the same."""

from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command

REMEDIES = {
    "wheel": "build the wheel again",
    "environment": "remove its folder; the next command makes it again",
    "image": "`toolkit build-image` makes it again",
    "run": "`toolkit reproduce` runs it again; a copy of the folder may still be whole",
}


@command("ca_bundle")
def verify(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            help="A wheel's folder (dist/NAME), a run's (runs/NAME), an environment's or image's below the state "
            "folder, or an image as NAME:TAG."
        ),
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail too where a link of the chain is not on this machine.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build a wheel again without any cache, and explain each difference.")
    ] = False,
    bazelrc: options.Bazelrc = "",
) -> None:
    """Check that a wheel, an environment, an image or a run still is what its record says, and the chain behind it.

    Each finding is ok, fail, or absent: a link of the chain that is not on this machine, of which nothing is known.
    Exit code 0: nothing failed, and with --strict nothing is absent either; 7: a finding failed; 8: the record itself
    is missing or damaged. Nothing is signed: who can write a folder can write a record that fits it.
    """
    from dataclasses import asdict
    from pathlib import Path

    from toolkit.audit import finding as findings_
    from toolkit.audit import target as targets
    from toolkit.errors import UsageError

    console, settings = session.console, session.settings
    found = targets.find(target)
    if rebuild and found.kind != "wheel":
        raise UsageError("--rebuild is for a wheel", remedy="`toolkit reproduce` runs a run again")
    findings = targets.verify(found, Path(settings.state))
    for item in findings:
        console.heading(item.state, f"{item.id:<20} {item.evidence}")
    value: dict[str, object] = {"kind": found.kind, "findings": [asdict(item) for item in findings]}
    value |= {"image": found.reference} if found.reference else {"folder": str(found.folder)}
    text = f"{found.reference or found.folder}: {findings_.summarize(findings)}"
    if not rebuild:
        console.result(value, text)
    findings_.require(findings, remedy=REMEDIES[found.kind], strict=strict)
    if rebuild:
        from toolkit.wheel import rebuilding

        comparison = rebuilding.rebuild(found.folder, settings, bazelrc=bazelrc, console=console)
        for difference in comparison.differences:
            console.heading(difference.kind, f"{difference.name or 'the wheel'}: {difference.detail}")
        value |= {"rung": comparison.rung, "differences": [asdict(item) for item in comparison.differences]}
        value |= {"inputs": comparison.inputs, "seconds": comparison.seconds}
        console.result(value, f"{text}; built again in {comparison.seconds:.0f} s: {comparison.summary}")
