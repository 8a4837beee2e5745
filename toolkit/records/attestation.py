"""Signs wheels, environments, images, smoke reports and runs, after they were verified."""

from typing import TYPE_CHECKING

from toolkit.base import findings, signing
from toolkit.base.errors import IntegrityError
from toolkit.base.signing import Statement
from toolkit.records import Artifact, compare

if TYPE_CHECKING:
    from toolkit.base.keys import Signer


def sign(artifact: Artifact, signer: "Signer", *, fresh: bool = False, replace: bool = False) -> str:
    """Sign an artifact; return what was done. What was not made just now (``fresh``) is verified first.

    Raises CheckError if it does not hold, and IntegrityError if its record is damaged, if it was signed and has
    changed, or if it changes meanwhile.
    """
    statement, place = artifact.make_statement(), artifact.locate()
    if signing.is_signed(place, statement, signer):
        return f"signed before: {signing.locate(place)}"
    if not fresh:
        _require_sound(artifact, statement)
    signing.write(place, statement, signer, replace=fresh or replace)
    return f"signed: {signing.locate(place)}"


def _require_sound(artifact: Artifact, before: Statement) -> None:
    findings.require(compare(artifact).list_findings(), remedy=f"only what holds is signed: {artifact.remedy}")
    if artifact.make_statement() != before:
        raise IntegrityError(
            f"{artifact.path} has changed while it was verified", remedy="find out why, and sign it then"
        )
