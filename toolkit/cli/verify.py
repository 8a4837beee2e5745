"""``toolkit verify``: a wheel still is what its manifest says, and a second build gives the same."""

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command


@command("ca_bundle")
def verify(
    session: Session,
    wheel: Annotated[Path, typer.Argument(help="Folder that `toolkit build-wheel` made, or the wheel in it.")],
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build again without any cache, and explain each difference.")
    ] = False,
    bazelrc: options.Bazelrc = "",
) -> None:
    """Check a wheel's folder: hashes, versions, GPU code, platform, provenance, bill of materials."""
    from dataclasses import asdict

    from toolkit.wheel import rebuilding, verification

    console, settings = session.console, session.settings
    folder = wheel.parent if wheel.suffix == ".whl" else wheel
    findings = verification.verify(folder)
    for finding in findings:
        console.heading("ok" if finding.ok else "FAIL", f"{finding.id:<12} {finding.evidence}")
    verification.require(findings)
    value: dict[str, object] = {"folder": str(folder), "findings": [asdict(item) for item in findings]}
    text = f"{folder}: {len(findings)} findings hold"
    if rebuild:
        comparison = rebuilding.rebuild(folder, settings, bazelrc=bazelrc, console=console)
        for difference in comparison.differences:
            console.heading(difference.kind, f"{difference.name or 'the wheel'}: {difference.detail}")
        value |= {"rung": comparison.rung, "differences": [asdict(item) for item in comparison.differences]}
        value |= {"inputs": comparison.inputs, "seconds": comparison.seconds}
        text += f"; built again in {comparison.seconds:.0f} s: {comparison.summary}"
    console.result(value, text)
