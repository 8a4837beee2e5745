"""Verifies an artifact: its signatures, the chain behind them, and its record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit import findings, record
from toolkit.findings import Finding
from toolkit.record import Target, attestation, rebuild, transparency
from toolkit.record.rebuild import Level
from toolkit.record.transparency import Asked
from toolkit.signing import Kind, Policy

_REMEDIES: Final[dict[Kind, str]] = {
    "wheel": "build the wheel again",
    "smoke": "`toolkit smoke` writes it again",
    "environment": "remove its folder; the next command makes it again",
    "image": "`toolkit build-image` makes it again",
    "run": "`toolkit reproduce` runs it again; a copy of the folder may still be whole",
}


@dataclass(frozen=True, kw_only=True)
class Verification:
    target: Target
    signatures: tuple[Finding, ...]  # and what a log says of them; empty without a policy
    findings: tuple[Finding, ...]  # all, beginning with these

    @property
    def is_sound(self) -> bool:
        """Whether the record can be read any further: no signature is missing or forged, and the log holds."""
        return all(item.state == "ok" for item in self.signatures)

    def holds(self, *, strict: bool) -> bool:
        """Whether `require` would raise nothing."""
        return self.is_sound and not findings.list_wrong(self.findings, strict=strict)

    def require(self, *, strict: bool) -> None:
        """Raise IntegrityError if a signature fails, CheckError if another finding does.

        With ``strict``, a link that is not on this machine is a failure too.
        """
        attestation.require(self.signatures)
        findings.require(self.findings, remedy=_REMEDIES[self.target.kind], strict=strict)


def verify(target: Target, state: Path, policy: Policy, accepted: Level, asked: Asked | None = None) -> Verification:
    """Verify an artifact and what it was made from; with a policy, first who signed it.

    ``accepted`` is the lowest level of a second build that counts, and ``asked`` the log with what was signed. Raises
    IntegrityError: the record is damaged; EngineError.
    """
    signatures = tuple(attestation.check_chain(target, state, policy)) if policy else ()
    if asked and all(item.state == "ok" for item in signatures):
        signatures += tuple(transparency.check_log(target, state, policy, asked))
    found = Verification(target=target, signatures=signatures, findings=signatures)
    if not found.is_sound:
        return found
    signed = []
    if policy and target.kind == "wheel":
        signed.append(rebuild.count_builders(target.folder, policy, accepted))
    if policy:
        signed += attestation.check_reports(target, state)
    held = record.verify(target, state, signed=bool(policy))
    return Verification(target=target, signatures=signatures, findings=(*signatures, *signed, *held))
