"""Writes what a verification has given, for those who trust the verifier and do not verify themselves.

Format: SLSA's verification summary, https://slsa.dev/spec/v1.1/verification_summary. It claims no level of SLSA's build
track, because this program does not judge a build platform. What it has found are levels by other names, which the
format allows: they begin with ``TOOLKIT_``.
"""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from toolkit import __version__, digest, files, signing
from toolkit.errors import CheckError, IntegrityError, ToolkitError, UsageError
from toolkit.record import Target, attestation
from toolkit.signing import Policy, Statement
from toolkit.wheel import wheel_documents

if TYPE_CHECKING:
    from toolkit.keys import Signer
    from toolkit.record.verification import Verification

PREDICATE: Final = "https://slsa.dev/verification_summary/v1"
VERIFIER: Final = "urn:x-tensorflow-toolkit:verifier:v1"
POLICY: Final = "urn:x-tensorflow-toolkit:verification-policy:v1"
REPLAYED: Final = "TOOLKIT_REPLAYED_"
UNEVALUATED: Final = "SLSA_BUILD_LEVEL_UNEVALUATED"


@dataclass
class Summary:
    """What is asked for and found so far. The levels are added as they are reached."""

    target: Target
    state: Path
    policy: Policy
    options: dict[str, Any]  # of the verification, by name
    resource: str = ""  # where a consumer gets the artifact; by default a purl of its digest
    levels: list[str] = field(default_factory=lambda: [UNEVALUATED])

    def note(self, done: "Verification") -> None:
        """Add the levels that a verification which held has shown."""
        self.levels.append("TOOLKIT_RECORDED")
        if self.policy:
            self.levels.append("TOOLKIT_SIGNED")
        if all(item.state != "absent" for item in done.findings):
            self.levels.append("TOOLKIT_COMPLETE")
        self.levels += [f"TOOLKIT_BUILDERS_{item.facts['builds']}" for item in done.findings if item.id == "builders"]

    def describe(self, subjects: dict[str, str], envelopes: list[tuple[str, str]], *, passed: bool) -> Statement:
        """Return the statement. ``envelopes``: the names and digests of those that were read."""
        signers = [{"name": each.name, "keyid": each.key.keyid, "may": list(each.may)} for each in self.policy]
        asked = {"signers": signers, "require": self.policy.demands.describe(), **self.options}
        policy = json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()
        name = next((name for name in subjects if name.endswith(".whl")), next(iter(subjects)))
        called = name if self.target.kind == "wheel" else self.target.reference or self.target.path.resolve().name
        resource = f"pkg:generic/{quote(called, safe='')}?checksum={subjects[name]}"
        return Statement(
            kind=self.target.kind,
            subjects=subjects,
            predicate_type=PREDICATE,
            predicate={
                "verifier": {"id": VERIFIER, "version": {"toolkit": __version__}},
                "timeVerified": wheel_documents.stamp(time.time()),
                "resourceUri": self.resource or resource,
                "policy": {
                    "uri": POLICY,
                    "digest": wheel_documents.split(digest.digest_bytes(policy)),
                    "content": base64.b64encode(policy).decode(),
                    "mediaType": "application/json",
                },
                "inputAttestations": [
                    {"name": name, "digest": wheel_documents.split(found)} for name, found in envelopes
                ],
                "verificationResult": "PASSED" if passed else "FAILED",
                "verifiedLevels": self.levels if passed else ["FAILED"],
                "slsaVersion": "1.1",
            },
        )


@contextmanager
def signing_beside(summary: Summary, signer: "Signer") -> Iterator[Summary]:
    """Sign a summary beside a run, in place of this key's earlier one, which stays until then."""
    with _writing(signing.locate(summary.target.folder / f"replay-{signer.public_key.keyid[:8]}"), summary, signer):
        yield summary


@contextmanager
def writing(path: Path, summary: Summary, signer: "Signer | None") -> Iterator[Summary]:
    """Write a summary of the verification in the block, which has failed if it raises CheckError or IntegrityError.

    An older file is removed first, so that a summary which is there is of this verification. None is written after
    other errors, or where a damaged record does not say what was verified. Raises UsageError: the file would lie in the
    folder that is verified; IntegrityError: what was verified changed meanwhile.
    """
    folder = summary.target.folder.resolve()
    if not summary.target.reference and path.resolve().is_relative_to(folder):
        raise UsageError(
            f"{path} would lie in what is verified",
            why="a file that is added there is not signed",
            remedy="give a file in another folder",
        )
    path.unlink(missing_ok=True)
    with _writing(path, summary, signer):
        yield summary


@contextmanager
def _writing(path: Path, summary: Summary, signer: "Signer | None") -> Iterator[Summary]:
    before = _look(summary)
    try:
        yield summary
    except (CheckError, IntegrityError):
        if before and before == _look(summary):
            _write(path, summary.describe(*before, passed=False), signer)
        raise
    if before is None or before != _look(summary):
        raise IntegrityError(
            f"{summary.target.path} has changed while it was verified", remedy="find out why, and verify it again"
        )
    _write(path, summary.describe(*before, passed=True), signer)


def _look(summary: Summary) -> tuple[dict[str, str], list[tuple[str, str]]] | None:
    """Return the digests of what is verified, and of the envelopes behind it; None if the record is damaged."""
    try:
        subjects = attestation.describe(summary.target, summary.state).subjects
        envelopes = attestation.list_envelopes(summary.target, summary.state) if summary.policy else []
        return dict(subjects), [(name, digest.read_file(path)) for name, path in envelopes]
    except (ToolkitError, OSError):
        return None


def _write(path: Path, statement: Statement, signer: "Signer | None") -> None:
    files.write_json(path, signing.seal(statement.encode(), signer) if signer else json.loads(statement.encode()))
