"""Signs wheels, environments, images, smoke reports and runs, after they were verified."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from toolkit import findings, signing
from toolkit.artifacts import Artifact, Run, compare, model_signing
from toolkit.errors import IntegrityError, UsageError
from toolkit.signing import Statement

if TYPE_CHECKING:
    from toolkit.keys import Signer


def sign(artifact: Artifact, signer: "Signer", *, fresh: bool = False, replace: bool = False) -> str:
    """Sign an artifact; return what was done. What was not made just now (``fresh``) is verified first.

    Raises CheckError if it does not hold, and IntegrityError if its record is damaged, if it was signed and has
    changed, or if it changes meanwhile.
    """
    statement, place = artifact.make_statement(), artifact.locate()
    if signing.is_signed(place, statement, signer):
        return f"signed before: {signing.locate(place)}"
    if not fresh:
        _require_sound(artifact, statement, artifact.make_statement)
    signing.write(place, statement, signer, replace=fresh or replace)
    return f"signed: {signing.locate(place)}"


def sign_model(artifact: Artifact, signer: "Signer", *, replace: bool = False) -> str:
    """Sign all files of a run as OpenSSF Model Signing does, after it was verified; return what was done.

    Raises UsageError if it is no run, or if the key is of a kind that Model Signing does not know; else as `sign`.
    """
    if not isinstance(artifact, Run):
        raise UsageError("--model-signing is for a run", remedy="leave it out: the envelope is for everything else")
    model_signing.require_key(signer)
    statement, place = model_signing.describe(artifact.folder), artifact.folder / model_signing.SIGNATURE
    if model_signing.is_signed(artifact.folder, statement, signer):
        return f"signed before: {place}"
    _require_sound(artifact, statement, lambda: model_signing.describe(artifact.folder))
    model_signing.write(artifact.folder, statement, signer, replace=replace)
    return f"signed: {place}"


def _require_sound(artifact: Artifact, before: Statement, make_statement: Callable[[], Statement]) -> None:
    findings.require(compare(artifact).list_findings(), remedy="only what holds is signed")
    if make_statement() != before:
        raise IntegrityError(
            f"{artifact.path} has changed while it was verified", remedy="find out why, and sign it then"
        )
