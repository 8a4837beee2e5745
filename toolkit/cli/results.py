"""What a command does with what it made or found: it signs it, writes the page of a run, and judges a second one."""

from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.base.errors import UsageError
from toolkit.cli.command import Session

if TYPE_CHECKING:
    from toolkit.base.keys import Signer
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


def read_level(text: str) -> "Level":
    """Return the level that --accept names. Raises UsageError if there is no such level, and for ``below R1``."""
    from toolkit.records.rebuild import LEVELS

    level = next((level for level in LEVELS[1:] if level == text), None)
    if level is None:
        raise UsageError(f"--accept: there is no level {text}", remedy=f"one of {', '.join(LEVELS[1:])}")
    return level
