"""Shows the chain behind an artifact: weights, run, environment or image, smoke report, wheel, plan, lock.

Digests and states are those of `toolkit verify`, which reads the same tree of links.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from toolkit import records
from toolkit.base import digest, manifest, signing, steps
from toolkit.base.errors import ToolkitError
from toolkit.base.findings import Finding, State, absent, check
from toolkit.base.signing import Policy
from toolkit.records import Artifact, Run, SmokeReport, Wheel, origins, verification
from toolkit.records.run import is_unfinished
from toolkit.records.wheel import is_own_wheel
from toolkit.report.page_model import Chain, Document, Link
from train.record import reader
from train.system.files import read_regular
from train.system.output import printable

LARGEST: Final = 120_000
"""Most letters of a document on the page."""

LEAD: Final = "Each link names the digest of the next one. The states are what toolkit verify found."

LATER: Final = "not compared when this page was written: `toolkit report` does it, and `toolkit verify`"

_OWN: Final = "TensorFlow, made here."
_LOCK: Final = "Every pin, by digest, hash or commit."
_CHECKS: Final = "Whether its TensorFlow computes correctly."

_WORST: Final[tuple[State, ...]] = ("fail", "absent", "ok", "skipped")

Findings = Sequence[Finding]
Known = dict[Artifact, records.Link]
"""The links that were compared for other pages or runs, so that each artifact is read once."""


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """Where records are, and whose signatures are asked for: nobody's without a policy."""

    state: Path
    policy: Policy = field(default_factory=Policy)
    compared: Literal["chain", "run", "nothing"] = "chain"  # what is verified; the rest is shown as skipped


def follow(artifact: Artifact, context: PageContext, known: Known | None = None) -> Chain:
    """Return the links behind an artifact, itself first, with the findings of each."""
    view = _View(context, _verify(artifact, context, known))
    return Chain(links=list(view.show()), trusted=bool(context.policy))


def _verify(artifact: Artifact, context: PageContext, known: Known | None) -> records.Link:
    """Return the chain with its findings. A record that cannot be read is a finding that fails."""
    root = records.trace(artifact)
    try:
        if context.compared == "chain":
            return verification.verify(artifact, context.policy, known).root
        if context.compared == "run" and isinstance(artifact, Run) and not is_unfinished(artifact.folder):
            root.findings = artifact.check()
    except ToolkitError as error:
        root.findings = [check("manifest", False, ": ".join(filter(None, (error.what, error.why))))]
    return root


def judge(findings: Findings) -> State:
    """Return the state of a link: the worst of its findings. Without any, nothing is known of it."""
    return find_worst(item.state for item in findings if not item.advisory)


def find_worst(states: Iterable[State]) -> State:
    known = set(states)
    return next((state for state in _WORST if state in known), "absent")


def _take(findings: Findings, *names: str) -> Findings:
    return [item for item in findings if item.id in names]


def _omit(findings: Findings, *names: str) -> Findings:
    return [item for item in findings if item.id not in names]


def show(path: Path, name: str = "") -> Document:
    """Return a file as a document; a large one is cut, and of one that cannot be read the reason is shown."""
    try:
        text = read_regular(path).decode(errors="replace")
    except OSError as error:
        text = f"cannot be read: {error.strerror}\n"
    return cut(name or path.name, text)


def cut(name: str, text: str) -> Document:
    return Document(name=name, text=text[:LARGEST], left_out=len(text[LARGEST:].encode()))


def _show_json(name: str, value: object) -> Document:
    return cut(name, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def _find_folder(artifact: Artifact | None) -> Path | None:
    """Return the folder of an artifact's record, or None if there is none here."""
    try:
        place = artifact.locate() if artifact else None
    except ToolkitError:
        return None
    return place


@dataclass(frozen=True)
class _View:
    context: PageContext
    root: records.Link

    def show(self) -> Iterator[Link]:
        match self.root.artifact:
            case Run() as run:
                yield from self._show_run(self.root, run)
            case Wheel() as wheel:
                yield from self._show_wheel(self.root, wheel, wheel.folder.name)
            case SmokeReport() as report:
                yield self._show_report(self.root, report)
                yield from self._show_checked(self.root.parents[0])
            case _:
                yield from self._show_made(self.root, self._name(self.root))

    def _describe_signature(self, link: records.Link) -> dict[str, Any]:
        """Return what is known of the signatures of a link."""
        if not self.context.policy:
            place = _find_folder(link.artifact)
            signed = signing.describe(place) if place else ""
            return {"signature": "not signed" if signed == "none" else f"signed {signed}"} if signed else {}
        if link.signature is None:
            return {}
        return {"signature": link.signature.evidence, "signed": link.signature.state}

    def _show_run(self, link: records.Link, run: Run) -> Iterator[Link]:
        folder, of_weights = run.folder, ("weights", "checkpoint")
        try:
            record = reader.read_record(folder)
        except ToolkitError:
            meaning = "The run is not finished, or its record cannot be read."
            yield self._make("run", folder.name, link.findings, meaning=meaning)
            return
        newest = reader.list_checkpoints(folder / reader.CHECKPOINTS)[:1]
        yield self._make(
            "weights",
            newest[0].with_suffix(".npz").name if newest else "no checkpoint here",
            _take(link.findings, *of_weights),
            digest_=str(record.value["weights_sha256"]),
            digest_of="SHA-256 of weights and running averages",
            meaning="What the training made.",
            documents=[show(path) for path in newest],
        )
        yield self._make(
            "run",
            folder.name,
            _omit(link.findings, *of_weights),
            digest_=digest.read_file(folder / manifest.FILE),
            digest_of=f"SHA-256 of {manifest.FILE}",
            meaning="How the weights were trained: configuration, data, numbers, machine.",
            documents=[show(folder / manifest.FILE)],
            **self._describe_signature(link),
        )
        (parent,) = link.parents
        if record.parent:
            yield from self._show_made(parent, Path(str(record.parent.get("reference"))).name)
        else:
            kind = str(record.parent.get("kind") or "environment")
            yield self._make(kind, "not named", parent.joints, meaning="The run was started without the toolkit.")

    def _name(self, link: records.Link) -> str:
        """Return what an environment or image is called: by its record, if it has one."""
        folder = _find_folder(link.artifact)
        record = manifest.read(folder) if folder else None
        tag = str(record.facts.get("tag", "")) if record else ""
        reference = link.artifact.reference if link.artifact and not record else ""
        return tag or reference or (folder.name if folder else "")

    def _show_checked(self, link: records.Link) -> Iterator[Link]:
        """Yield the environment or image that a report is about, and what is behind it."""
        if link.artifact is None:
            yield self._make(link.kind, "not known", link.joints)
        else:
            yield from self._show_made(link, self._name(link), with_reports=False)

    def _show_made(self, link: records.Link, title: str, *, with_reports: bool = True) -> Iterator[Link]:
        """Yield an environment or image, its smoke reports, and what it was made from."""
        folder = _find_folder(link.artifact)
        record = manifest.read(folder) if folder else None
        named = link.named or (record.describe() if record else {"digest": title})
        installed, kind = _take(link.findings, "wheel"), records.find_kind(link.kind)
        yield self._make(
            link.kind,
            title,
            [*link.joints, *(item for item in link.findings if item not in installed)],
            digest_=str(named.get("digest", "")),
            digest_of=kind.digest_of,
            meaning=kind.meaning,
            documents=[show(folder / manifest.FILE)] if folder else [_show_json("as the run records it", dict(named))],
            **self._describe_signature(link),
        )
        if with_reports and kind.holds:
            for report in link.reports:
                if isinstance(report.artifact, SmokeReport):
                    yield self._show_report(report, report.artifact)
            if not link.reports:
                none = absent("report", "no report of smoke checks is beside it")
                yield self._make("smoke", "no report here", [none], meaning=_CHECKS)
        parents = link.parents if record else records.trace_named(named.get("parent"), self.context.state)
        yield from self._show_origins(parents, installed)

    def _show_report(self, link: records.Link, report: SmokeReport) -> Link:
        findings = link.findings
        if not findings and self.context.compared == "chain" and link is not self.root:
            try:
                findings = report.check()
            except ToolkitError as error:
                findings = [check("report", False, f"{error.what}: {error.why}")]
        return self._make(
            "smoke",
            report.report,
            findings,
            digest_=digest.read_file(report.path),
            meaning=_CHECKS,
            documents=[show(report.path)],
            **self._describe_signature(link),
        )

    def _show_origins(self, links: Sequence[records.Link], installed: Findings) -> Iterator[Link]:
        """Yield what something was made from: wheels and the locked set, or artifacts of other kinds.

        ``installed``: whether the wheel in an environment is the one that its record names.
        """
        locks = {id(link): origins.find_lock(link.named) for link in links if link.kind == "lock"}
        for link in links:
            value, name = str(link.named.get("digest")), str(link.named.get("name"))
            documents = [_show_json("as the record names it", dict(link.named))]
            if link.kind == "lock":
                path = locks[id(link)]
                shown = [show(path)] if path else []
                yield self._make("lock", name, link.joints, digest_=value, meaning=_LOCK, documents=shown)
            elif link.kind != "wheel" and link.artifact:
                yield from self._show_made(link, self._name(link) or name)
                return  # what is behind it has been shown
            elif link.kind != "wheel":
                meaning = records.find_kind(link.kind).meaning
                yield self._make(link.kind, name, link.joints, digest_=value, meaning=meaning, documents=documents)
            elif locks or not is_own_wheel(link.named):
                pins = [path for path in locks.values() if path and self.context.compared == "chain"]
                findings = installed or [_find_pin(value, path) for path in pins]
                meaning = "TensorFlow, as it was published."
                yield self._make("wheel", name, findings, digest_=value, meaning=meaning, documents=documents)
            elif isinstance(link.artifact, Wheel):
                yield from self._show_wheel(link, link.artifact, name, installed)
            else:
                findings = [*installed, *link.joints]
                yield self._make("wheel", name, findings, digest_=value, meaning=_OWN, documents=documents)

    def _show_wheel(self, link: records.Link, wheel: Wheel, name: str, installed: Findings = ()) -> Iterator[Link]:
        """Yield a wheel that was built or grafted here, its plan and its lock."""
        findings = [*installed, *link.joints, *link.findings]
        folder = wheel.folder
        try:
            record = wheel.read_record()
        except ToolkitError:
            yield self._make("wheel", name, findings, meaning=_OWN)
            return
        yield self._make(
            "wheel",
            name,
            _omit(findings, "lock", "plan", "original"),
            digest_=record.digest,
            meaning=f"TensorFlow, {wheel.made} here.",
            documents=[show(folder / manifest.FILE)],
            **self._describe_signature(link),
        )
        planned = folder / steps.FILE
        # `check` has compared the plan of a wheel whose plan holds its lock.
        unread = self.context.compared == "chain" and wheel.pinned_by != "plan"
        yield self._make(
            "plan",
            planned.name if planned.exists() else "in the wheel's record",
            [*_take(findings, "plan"), *([_check_plan(wheel)] if unread else [])],
            digest_=str(record.facts["plan"]),
            meaning="The exact commands that made the wheel.",
            documents=[show(planned)] if planned.exists() else [],
        )
        pinned = record.facts["lock"]
        yield self._make(
            "lock",
            "pins of the wheel",
            _take(findings, wheel.pinned_by),
            digest_=digest.digest_value(pinned),
            meaning=_LOCK,
            documents=[_show_json("lock", pinned)],
        )
        if record.parent and record.parent.get("kind") == "wheel":
            yield self._make(
                "original",
                str(record.parent.get("name")),
                _take(findings, "original"),
                digest_=str(record.parent.get("digest")),
                meaning="The published wheel that was grafted.",
                documents=[_show_json("as the record names it", dict(record.parent))],
            )

    def _make(self, name: str, title: str, findings: Findings, *, digest_: str = "", **parts: Any) -> Link:
        shown = list(findings)
        if not shown and self.context.compared != "chain":
            shown = [Finding(id="state", state="skipped", evidence=LATER)]
        if not shown:
            blocked = any(link.signature and link.signature.state != "ok" for link in self.root.walk())
            why = "a signature does not hold, so the record was read no further" if blocked else "nothing was compared"
            shown = [absent("state", why)]
        return Link(
            name=printable(name),
            title=printable(title),
            state=judge(shown),
            digest=digest_.removeprefix("sha256:"),
            findings=shown,
            **parts,
        )


def _find_pin(value: str, path: Path) -> Finding:
    if f"--hash={value}" in path.read_text(encoding="utf-8"):
        return check("pinned", True, f"{path.name} of this clone has its hash")
    return absent("pinned", f"{path.name} of this clone does not have its hash")


def _check_plan(wheel: Wheel) -> Finding:
    try:
        return check("plan", True, f"{wheel.read_plan().digest}, as in the wheel's record")
    except ToolkitError as error:
        return check("plan", False, f"{error.what}: {error.why}")
