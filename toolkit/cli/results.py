"""What a command does with what it made or found: where a wheel comes from, who signs, and the page of a run."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.base.errors import UsageError
from toolkit.cli.command import Session

if TYPE_CHECKING:
    from toolkit.base.keys import Signer
    from toolkit.records.obtaining import Order, WheelSource
    from toolkit.records.rebuild import Level


def load_key(text: str) -> "Signer | None":
    from toolkit.base import keys

    return keys.load(text) if text else None


def sign(session: Session, key: "Signer | None", *made: tuple[Path, bool]) -> None:
    """Sign what a command made: folders and smoke reports, each with whether it is new."""
    from toolkit import records
    from toolkit.records import attestation

    if key is None:
        return
    for target, fresh in made:
        done = attestation.sign(records.find(str(target), Path(session.settings.state)), key, fresh=fresh)
        session.console.heading("sign", done)


def write_page(session: Session, folder: Path) -> str:
    """Write the page of a run into its folder, unless it is there and not older than the record.

    Returns its path, or an empty text if it cannot be written.
    """
    from toolkit.base.manifest import FILE
    from toolkit.records.run import PAGE

    page = folder / PAGE
    try:
        if not page.exists() or page.stat().st_mtime_ns < (folder / FILE).stat().st_mtime_ns:
            from toolkit import report  # takes half a second to load

            report.write_beside(folder, Path(session.settings.state))
    except Exception as error:  # noqa: BLE001 - hours of training must not end with the error of a page
        session.console.say(f"there is no page of {folder}: {error}")
        return ""
    session.console.add({"report": str(page)})
    return str(page)


def read_origin(
    session: Session, registry: str, trust: Sequence[Path] | None, *, allow_unsigned: bool, reuses: bool = False
) -> "WheelSource":
    """Return what --from, --trust and --allow-unsigned ask for. Raises UsageError if they do not go together.

    ``reuses``: whether --trust is for what the command reuses too, and may stand alone.
    """
    if not registry and (allow_unsigned or (trust and not reuses)):
        raise UsageError("--trust and --allow-unsigned are for --from", remedy="leave them out, or name a registry")
    if registry and bool(trust) == allow_unsigned:
        raise UsageError(
            "--from needs --trust or --allow-unsigned, and not both",
            why="whoever can write to the registry could otherwise choose the wheel",
            remedy="--trust KEY.pub, or a policy of who may sign what",
        )
    from toolkit.records.obtaining import WheelSource

    if not trust:
        return WheelSource(registry)
    from toolkit import records
    from toolkit.records import verification

    policy = records.read_policy(trust)
    state = Path(session.settings.state)
    return WheelSource(registry, policy, functools.partial(verification.require_trusted, state=state, policy=policy))


def order(
    session: Session, out: Path, source: "WheelSource | None" = None, key: "Signer | None" = None, *, dry_run: bool
) -> "Order":
    """Return how this command obtains a wheel. Without a ``source``, no registry is asked."""
    from toolkit.records.obtaining import Order, WheelSource

    return Order(
        settings=session.settings,
        console=session.console,
        out=out,
        source=source or WheelSource(),
        key=key,
        dry_run=dry_run,
    )


def read_level(text: str) -> "Level":
    """Return the level that --accept names. Raises UsageError if there is no such level, and for ``below R1``."""
    from toolkit.records.rebuild import LEVELS

    level = next((level for level in LEVELS[1:] if level == text), None)
    if level is None:
        raise UsageError(f"--accept: there is no level {text}", remedy=f"one of {', '.join(LEVELS[1:])}")
    return level
