"""Verifies an artifact: its signatures, the chain behind them, and its record."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from toolkit import findings, manifest, record
from toolkit.errors import IntegrityError
from toolkit.findings import Finding
from toolkit.record import Target, attestation, find, policy_checks, rebuild, verify_environment, verify_run
from toolkit.record.rebuild import Level
from toolkit.signing import Kind, Policy
from train.record import reader

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
    signatures: tuple[Finding, ...]  # and what else the policy asks for; empty without one
    findings: tuple[Finding, ...]  # all, beginning with these

    @property
    def is_sound(self) -> bool:
        """Whether the record can be read any further: no signature is missing or forged, nor what else is asked for."""
        return all(item.state == "ok" for item in self.signatures)

    def require(self, *, strict: bool) -> None:
        """Raise IntegrityError if a signature fails, CheckError if another finding does.

        With ``strict``, a link that is not on this machine is a failure too.
        """
        attestation.require(self.signatures)
        findings.require(self.findings, remedy=_REMEDIES[self.target.kind], strict=strict)


def verify(target: Target, state: Path, policy: Policy, accepted: Level) -> Verification:
    """Verify an artifact and what it was made from; with a policy, first who signed it.

    ``accepted`` is the lowest level of a second build that counts. Raises IntegrityError if the record is damaged, and
    EngineError.
    """
    signatures = tuple(attestation.check_chain(target, state, policy)) if policy else ()
    if policy and all(item.state == "ok" for item in signatures):
        signatures += tuple(policy_checks.check_demands(target, state, policy, accepted))
    found = Verification(target=target, signatures=signatures, findings=signatures)
    if not found.is_sound:
        return found
    signed = []
    if policy and target.kind == "wheel":
        signed.append(rebuild.count_builders(target.folder, policy, accepted))
    if policy:
        signed += attestation.check_reports(target, state)
    held = record.verify(target, state, signed=bool(policy))
    held = _insist(held) if policy else held
    if policy and attestation.is_model_signed(target):
        held = [item for item in held if item.id != verify_run.OTHERS]  # its signature lists every file
    return Verification(target=target, signatures=signatures, findings=(*signatures, *signed, *held))


def _insist(found: list[Finding]) -> list[Finding]:
    """Return findings in which an environment fails whose record does not say what its interpreter reads.

    A signature of such a record does not cover what would run.
    """
    return [
        replace(item, state="fail")
        if item.state == "absent" and item.id.rpartition(".")[2] == verify_environment.CONTENT
        else item
        for item in found
    ]


def require_trusted(place: Path, identity: str, *, state: Path, policy: Policy) -> None:
    """Raise an error unless a thing is signed, and what its record says, as ``verify --trust`` finds it.

    ``identity``: the digest of its environment or image, or empty. Signatures of the links behind it are not asked for.
    Raises
    IntegrityError: a signature is missing or does not hold, or it is of another image; CheckError: another finding
    fails; what :func:`toolkit.record.find` and :func:`toolkit.record.verify` raise.
    """
    target = find(str(place))
    kept = manifest.read(target.folder)
    if identity and kept and kept.digest != identity:  # whoever can name images can name another one so
        raise IntegrityError(f"the record in {target.folder} is of {kept.digest}, not of {identity}")
    signatures = [attestation.check_one(target, state, policy)]
    attestation.require(signatures)
    attestation.require([*signatures, *policy_checks.check_demands(target, state, policy, "R2")])
    own = target.kind == "run"
    found = (
        verify_run.verify_own(reader.read_record(target.folder)) if own else record.verify(target, state, signed=True)
    )
    found = _insist(found)
    findings.require(found, remedy=f"`toolkit verify {place}` lists all findings")
