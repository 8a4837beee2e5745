"""``toolkit verify``: a wheel still is what its manifest says, and a second build gives the same."""

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.guard import guarded


@guarded
def verify(
    wheel: Annotated[Path, typer.Argument(help="Folder that `toolkit build-wheel` made.")],
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build again without any cache, and explain each difference.")
    ] = False,
    bazelrc: Annotated[str, typer.Option(metavar="FILE", help="Credentials of a remote executor.")] = "",
    ca_bundle: options.CaBundle = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Check a wheel's folder: hashes, versions, GPU code, platform, provenance, bill of materials."""
    from dataclasses import asdict

    from toolkit.wheel import rebuilding, verification

    console = options.open_console(json=json, quiet=quiet, verbose=verbose)
    settings = options.resolve_settings(console, ca_bundle=ca_bundle)
    findings = verification.verify(wheel)
    for finding in findings:
        console.heading("ok" if finding.ok else "FAIL", f"{finding.id:<12} {finding.evidence}")
    verification.require(findings)
    value: dict[str, object] = {"folder": str(wheel), "findings": [asdict(item) for item in findings]}
    text = f"{wheel}: {len(findings)} findings hold"
    if rebuild:
        comparison = rebuilding.rebuild(wheel, settings, bazelrc=bazelrc, console=console)
        for difference in comparison.differences:
            console.heading(difference.kind, f"{difference.name or wheel.name}: {difference.detail}")
        value |= {"rung": comparison.rung, "differences": [asdict(item) for item in comparison.differences]}
        value |= {"inputs": comparison.inputs, "seconds": comparison.seconds}
        text += f"; built again in {comparison.seconds:.0f} s: {comparison.summary}"
    console.result(value, text)
