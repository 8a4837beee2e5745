"""``toolkit doctor``: what this machine can do, and what to do about the rest."""

from typing import Annotated

import typer

from toolkit.cli.command import Session, command
from toolkit.errors import PreflightError


@command("cuda", "cudnn", "engine", "base_image", "ca_bundle")
def doctor(
    session: Session,
    write_env: Annotated[bool, typer.Option("--write-env", help="Write the .env that compose.yaml reads.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask whether the sources are in reach.")] = False,
) -> None:
    """Examine this machine: engine, disk, memory, network, GPU. Each finding comes with its remedy."""
    from toolkit import doctor, dotenv
    from toolkit.findings import render

    console, settings = session.console, session.settings
    findings = doctor.examine(settings, offline=offline)
    lines = [render(findings).rstrip()]
    listed = [
        {**item.as_dict(), "level": item.level, "summary": item.evidence, "facts": dict(item.facts)}
        for item in findings
    ]
    result: dict[str, object] = {"findings": listed}
    if write_env:
        values = dotenv.compose(findings, settings)
        dotenv.prepare_outputs()
        dotenv.write(values)
        result["env"] = values
        lines.append(f"wrote {dotenv.FILE}: {', '.join(f'{name}={value}' for name, value in values.items())}")
    console.result(result, "\n".join(lines))
    failed = [finding for finding in findings if finding.level == "fail"]
    if failed:
        raise PreflightError(
            f"{len(failed)} of {len(findings)} findings stand in the way: {', '.join(item.id for item in failed)}",
            remedy=failed[0].remedy,
        )
