"""Verifies an artifact: its signatures, the chain behind them, and its record.

The chain is a tree of links, each with its own findings. This module and
:meth:`toolkit.records.Link.list_findings` give the findings the names under which they are printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from toolkit.base import findings, manifest, signing
from toolkit.base.errors import IntegrityError
from toolkit.base.findings import Finding, prefix
from toolkit.base.signing import Policy
from toolkit.records import Artifact, InstalledEnvironment, Link, Run, SmokeReport, Wheel, find, trace
from toolkit.records.run import ADDED

_SIGNED: Final = "the record of what it holds is signed"
"""Why the code of a wheel is not read."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found of an artifact, and of the chain behind it."""

    artifact: Artifact
    root: Link
    policy: Policy

    @property
    def signatures(self) -> list[Finding]:
        """Whether each signature holds. Empty without a policy."""
        links = [(link, "" if link is self.root else link.kind) for link in self.root.list_signable()]
        return [item for link, name in links if link.signature for item in _name(name, [link.signature])]

    @property
    def signatures_hold(self) -> bool:
        """Whether the record can be read any further, because all signatures hold."""
        return all(item.state == "ok" for item in self.signatures)

    @property
    def findings(self) -> list[Finding]:
        """All findings, by the names that are printed."""
        reports = [item for link in self._list_signed_reports() for item in _name(link.kind, link.findings)]
        return [*self.signatures, *reports, *self.root.list_findings()]

    def summarize(self) -> str:
        """Say in one line whether it holds, on whose word, and what behind it could not be checked here."""
        if wrong := sum(item.state != "ok" for item in self.signatures):
            held = f"{wrong} of {len(self.signatures)} signatures {findings.say_fail(wrong)}"
            return f"not verified: {held}, so nothing else was checked"
        by = "" if self.policy or self.artifact.reference else " by its records alone"
        behind = dict.fromkeys(link.kind for link in self.root.walk() if link.is_missing and link is not self.root)
        if self.root.is_missing:
            by += ", except its record, which is not on this machine"
        elif behind:
            by += f", except the {' and the '.join(behind)} behind it, which cannot be checked here"
        added = [f"; {item.evidence}" for item in self.findings if item.id == ADDED]
        return findings.summarize(self.findings, by) + "".join(added)

    def _list_signed_reports(self) -> list[Link]:
        links = self.root.list_signable() if self.policy else []
        return [link for link in links if link is not self.root and isinstance(link.artifact, SmokeReport)]

    def compare(self, known: dict[Artifact, Link] | None = None) -> None:
        """Compare the artifact with its record, and what is behind it.

        ``known`` is that of :meth:`Link.compare`. Raises IntegrityError if the record is damaged, and EngineError.
        """
        if self.policy and isinstance(self.artifact, Wheel):
            self.root.artifact = replace(self.artifact, unread=_SIGNED)
        for link in self._list_signed_reports():
            link.findings = link.artifact.check() if link.artifact else []
        self.root.compare(known)

    def require(self, *, strict: bool) -> None:
        """Raise IntegrityError if a signature fails, CheckError if another finding does.

        With ``strict``, a link that is not on this machine is a failure too.
        """
        require_signed(self.artifact, self.signatures)
        findings.require(self.findings, remedy=self.artifact.remedy, strict=strict)


def verify(artifact: Artifact, policy: Policy, known: dict[Artifact, Link] | None = None) -> Verification:
    """Verify an artifact and what it was made from; with a policy, first who signed it.

    Raises IntegrityError if the record is damaged, and EngineError.
    """
    verification = Verification(artifact=artifact, root=trace(artifact), policy=policy)
    if policy:
        check_signatures(verification.root, policy)
    if verification.signatures_hold:
        verification.compare(known)
    return verification


def check_signatures(root: Link, policy: Policy) -> None:
    """Check the signatures of an artifact and of the links behind it that are on this machine."""
    for link in root.list_signable():
        link.signature = link.artifact.check_signature(policy) if link.artifact else None


def list_unsigned(artifact: Artifact) -> list[Artifact]:
    """Return what an artifact was made from, where it is on this machine and nobody has signed it."""
    behind = [link.artifact for link in trace(artifact).list_signable() if link.artifact]
    return [item for item in dict.fromkeys(behind[1:]) if not signing.locate(item.path).exists()]


def _name(kind: str, items: Sequence[Finding]) -> Sequence[Finding]:
    return prefix(kind, items) if kind else items


def require_signed(artifact: Artifact, signatures: Sequence[Finding]) -> None:
    """Raise IntegrityError unless all signatures hold."""
    if missing := [item for item in signatures if item.state != "ok"]:
        raise IntegrityError(
            f"{artifact.noun} {artifact.name} is not signed as --trust asks",
            why="; ".join(f"{item.id}: {item.evidence}" for item in missing),
            remedy="; ".join(dict.fromkeys(item.remedy for item in missing)),
        )


def require_trusted(place: Path, identity: str, *, state: Path, policy: Policy) -> None:
    """Raise an error unless an artifact is signed and matches its record, as ``verify --trust`` checks it.

    ``identity``: the digest of its environment or image, or empty. Signatures of the links behind it are not asked for.
    Raises IntegrityError if a signature is missing or does not hold, or if it is of another image; CheckError if
    another finding fails; and what :func:`toolkit.records.find` and :meth:`toolkit.records.Link.compare` raise.
    """
    artifact = find(str(place), state)
    if isinstance(artifact, InstalledEnvironment):  # its signature covers an environment, and nothing beside it
        raise IntegrityError(
            f"{place} is an environment of `toolkit install`", remedy="keep the wheel in its own folder"
        )
    record = manifest.read(artifact.folder)
    if identity and record and record.digest != identity:  # whoever can name images can name another one so
        raise IntegrityError(f"the record in {artifact.folder} is of {record.digest}, not of {identity}")
    verification = Verification(artifact=artifact, root=trace(artifact), policy=policy)
    root = verification.root
    root.signature = artifact.check_signature(policy)
    require_signed(artifact, verification.signatures)
    if isinstance(artifact, Run):
        root.findings = artifact.check()  # the command asks for the environment by itself
    else:
        root.artifact = replace(artifact, unread=_SIGNED) if isinstance(artifact, Wheel) else artifact
        root.compare()
    findings.require(root.list_findings(), remedy=f"`toolkit verify {place}` lists all findings")
