"""Follows the chain behind a thing: weights, run, environment or image, smoke report, wheel, plan, lock.

Digests and states are those of `toolkit verify`: each finding belongs to the link that its name names.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from toolkit import digest, manifest, signing, steps
from toolkit.errors import ToolkitError
from toolkit.findings import Finding, State, absent, check
from toolkit.record import Target, attestation, rebuild, verification, verify_environment, verify_run, verify_wheel
from toolkit.record.rebuild import Level
from toolkit.report.page_model import Chain, Document, Link
from toolkit.signing import Policy
from toolkit.smoke import runner
from train.record import reader
from train.system.files import read_regular
from train.system.output import printable

LARGEST: Final = 120_000
"""Most letters of a document on the page."""

LEAD: Final = "Each link names the digest of the next one. The states are what toolkit verify found."

_WORST: Final[tuple[State, ...]] = ("fail", "absent", "ok", "skipped")

Findings = Sequence[Finding]


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """Where records are, and whose signatures are asked for: nobody's without a policy."""

    state: Path
    policy: Policy = field(default_factory=Policy)
    accepted: Level = "R2"
    compared: Literal["chain", "run", "nothing"] = "chain"  # what is verified; the rest is shown as skipped


def verify(target: Target, trust: PageContext, known: "Parents | None" = None) -> Findings:
    """Return the findings of ``toolkit verify``. A record that cannot be read is a finding that fails.

    ``known``: what was found of the environments and images of other runs, so that each is read once.
    """
    try:
        if trust.compared != "chain":
            own = trust.compared == "run" and not verify_run.is_unfinished(target.folder)
            return verify_run.verify_own(reader.read_record(target.folder)) if own else []
        if known is not None and not trust.policy and not verify_run.is_unfinished(target.folder):
            record = reader.read_record(target.folder)
            return [*verify_run.verify_own(record), *known.verify(record, trust.state)]
        return verification.verify(target, trust.state, trust.policy, trust.accepted).findings
    except ToolkitError as error:
        return [check("manifest", False, f"{error.what}{': ' * bool(error.why)}{error.why}")]


class Parents:
    """Verifies environments and images, each once, however many runs were made with it."""

    def __init__(self) -> None:
        self._found: dict[str, Findings] = {}

    def verify(self, record: reader.RunRecord, state: Path) -> Findings:
        version = str(record.environment.get("tensorflow"))
        key = json.dumps([record.parent, version], sort_keys=True)
        if key not in self._found:
            self._found[key] = verify_run.verify_parent(record.parent, state, tensorflow=version)
        return self._found[key]


def follow(target: Target, findings: Findings, trust: PageContext) -> Chain:
    """Return the links behind a thing, itself first, with the findings of each."""
    links = list(_Walk(trust, tuple(findings)).follow(target))
    return Chain(links=links, trusted=bool(trust.policy))


def judge(findings: Findings) -> State:
    """Return the state of a link: the worst of its findings. Without any, nothing is known of it."""
    return find_worst(item.state for item in findings if not item.advisory)


def find_worst(states: Iterable[State]) -> State:
    known = set(states)
    return next((each for each in _WORST if each in known), "absent")


def _pick(findings: Findings, *names: str, below: str = "") -> Findings:
    """Return the findings of these names, and those below a prefix without it."""
    own = [item for item in findings if item.id in names]
    start = f"{below}."
    return [*own, *(replace(i, id=i.id.removeprefix(start)) for i in findings if below and i.id.startswith(start))]


def _omit(findings: Findings, *names: str) -> Findings:
    return [item for item in findings if item.id.partition(".")[0] not in names]


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


@dataclass(frozen=True)
class _Walk:
    trust: PageContext
    findings: tuple[Finding, ...]

    def follow(self, target: Target) -> Iterator[Link]:
        own = _omit(self.findings, "signature", "builders")
        match target.kind:
            case "run":
                yield from self._follow_run(target, own)
            case "wheel":
                yield from self._follow_wheel(target.folder, own, name=target.folder.name)
            case "smoke":
                yield from self._follow_report(target, own)
            case _:
                yield from self._follow_base(target, own)

    def _sign(self, place: Path | None, kind: str, *, top: bool = False) -> dict[str, Any]:
        """Return what is known of the signatures of a link."""
        if place is None:
            return {}
        if not self.trust.policy:
            said = signing.describe(place)
            return {"signature": "not signed" if said == "none" else f"signed {said}"}
        names = {"signature"} if top else {f"{kind}.signature"}
        found = [item for item in self.findings if item.id in names]
        return {"signature": "; ".join(i.evidence for i in found), "signed": judge(found)} if found else {}

    def _follow_run(self, target: Target, own: Findings) -> Iterator[Link]:
        folder, base = target.folder, ("environment", "image")
        try:
            record = reader.read_record(folder)
        except ToolkitError:
            yield self._make("run", folder.name, own, said="The run is not finished, or its record cannot be read.")
            return
        kind = str(record.parent.get("kind") or "environment")
        of_weights = _pick(own, "weights", "checkpoint")
        mine = [i for i in own if "." not in i.id and i.id not in {"weights", "checkpoint", "parent", "smoke"}]
        newest = reader.list_checkpoints(folder / reader.CHECKPOINTS)[:1]
        yield self._make(
            "weights",
            newest[0].with_suffix(".npz").name if newest else "no checkpoint here",
            of_weights,
            digest_=str(record.value["weights_sha256"]),
            digest_of="SHA-256 of weights and running averages",
            said="What the training made.",
            documents=[show(path) for path in newest],
        )
        yield self._make(
            "run",
            folder.name,
            mine,
            digest_=digest.read_file(folder / manifest.FILE),
            digest_of=f"SHA-256 of {manifest.FILE}",
            said="How the weights were trained: configuration, data, numbers, machine.",
            documents=[show(folder / manifest.FILE)],
            **self._sign(folder, "run", top=True),
        )
        if not record.parent:
            yield self._make(kind, "not named", _pick(own, "parent"), said="The run was started without the toolkit.")
            return
        place = self._find(record.parent)
        above = [*_pick(own, "parent"), *(each for name in base for each in _pick(own, below=name))]
        title = Path(str(record.parent.get("reference"))).name
        yield from self._follow_made(kind, title, place, record.parent, above)

    def _find(self, parent: Mapping[str, Any]) -> Path | None:
        if parent.get("kind") == "image":
            reference = str(parent.get("reference"))
            return verify_environment.find_image_record(
                str(parent.get("digest")), self.trust.state, reference=reference
            )
        return verify_run.find_environment(parent, self.trust.state)

    def _follow_base(self, target: Target, own: Findings) -> Iterator[Link]:
        try:
            folder: Path | None = attestation.find_folder(target, self.trust.state)
        except ToolkitError:
            folder = None
        record = manifest.read(folder) if folder else None
        link = record.describe() if record else {"digest": target.reference}
        title = str(record.facts.get("tag", "")) if record else target.reference
        title = title or (folder.name if folder else "")
        yield from self._follow_made(target.kind, title, folder, link, own, top=True)

    def _follow_report(self, target: Target, own: Findings) -> Iterator[Link]:
        yield self._report(target.path, _pick(own, "report"), top=True)
        record = manifest.read(target.folder)
        if record is None:
            yield self._make("environment", "not known", _pick(own, "parent"))
            return
        above = _pick(own, below=record.kind)
        title = str(record.facts.get("tag") or target.folder.name)
        yield from self._follow_made(record.kind, title, target.folder, record.describe(), above, reports=False)

    def _follow_made(
        self,
        kind: str,
        title: str,
        folder: Path | None,
        link: Mapping[str, Any],
        own: Findings,
        *,
        top: bool = False,
        reports: bool = True,
    ) -> Iterator[Link]:
        """Yield an environment or image, its smoke reports, and what it was made from."""
        apart = ("origin", "lock") if kind == "image" else ("wheel", "origin", "lock")
        mine = [item for item in own if "." not in item.id and item.id not in apart]
        yield self._make(
            kind,
            title,
            mine,
            digest_=str(link.get("digest", "")),
            digest_of="image id" if kind == "image" else "SHA-256 of its plan",
            said="The packages with which the run was trained." if kind == "environment" else "What was run.",
            documents=[show(folder / manifest.FILE)] if folder else [_show_json("as the run records it", dict(link))],
            **self._sign(folder, kind, top=top),
        )
        if reports:
            found = sorted(folder.glob(f"{runner.REPORT}*.json")) if folder else []
            for path in found:
                yield self._report(path)
            if not found:
                said = absent("report", "no report of smoke checks is beside it")
                yield self._make("smoke", "no report here", [said], said="Whether its TensorFlow computes correctly.")
        record = manifest.read(folder) if folder else None
        parent = record.parent if record else link.get("parent")
        yield from self._follow_links(verify_wheel.flatten(parent), own)

    def _report(self, path: Path, findings: Findings = (), *, top: bool = False) -> Link:
        if not findings:
            try:
                findings = [verify_environment.check_report(path)] if self.trust.compared == "chain" else []
            except ToolkitError as error:
                findings = [check("report", False, f"{error.what}: {error.why}")]
        return self._make(
            "smoke",
            path.name,
            findings,
            digest_=digest.read_file(path),
            said="Whether its TensorFlow computes correctly.",
            documents=[show(path)],
            **self._sign(path, "smoke", top=top),
        )

    def _follow_links(self, links: Sequence[Mapping[str, Any]], own: Findings) -> Iterator[Link]:
        """Yield the wheels and the locked set that an environment or image was made from."""
        locks = {str(each["digest"]): verify_wheel.find_lock(each) for each in links if each.get("kind") == "lock"}
        for link in links:
            value, name = str(link.get("digest")), str(link.get("name"))
            if link.get("kind") == "lock":
                path = locks[value]
                found = _pick(own, "lock")
                documents = [show(path)] if path else []
                yield self._make("lock", name, found, digest_=value, said=_LOCK, documents=documents)
            elif link.get("parent") or locks:
                pins = [path for path in locks.values() if path and self.trust.compared == "chain"]
                compared = _pick(own, "wheel") or [_find_pin(value, path) for path in pins]
                yield self._make(
                    "wheel",
                    name,
                    compared,
                    digest_=value,
                    said="TensorFlow, as it was published.",
                    documents=[_show_json("as the record names it", dict(link))],
                )
            else:
                folder = verify_wheel.find_wheel_folder(link)
                above = [*_pick(own, "wheel", "origin"), *_pick(own, below="wheel")]
                if folder:
                    yield from self._follow_wheel(folder, above, name=name, top=False)
                else:
                    documents = [_show_json("as the record names it", dict(link))]
                    yield self._make("wheel", name, above, digest_=value, said=_OWN, documents=documents)

    def _follow_wheel(self, folder: Path, own: Findings, *, name: str, top: bool = True) -> Iterator[Link]:
        """Yield a wheel that was built or grafted here, its plan and its lock."""
        try:
            record = verify_wheel.read_record(folder)
        except ToolkitError:
            yield self._make("wheel", name, own, said=_OWN)
            return
        signed = self._sign(folder, "wheel", top=top)
        yield self._make(
            "wheel",
            name,
            _omit(own, "lock", "plan", "original"),
            digest_=record.digest,
            said="TensorFlow, grafted here." if verify_wheel.is_grafted(record) else _OWN,
            documents=[show(folder / manifest.FILE)],
            builders=self._count_builders(folder, trusted=signed.get("signed") == "ok"),
            **signed,
        )
        planned = folder / steps.FILE
        built = self.trust.compared == "chain" and not verify_wheel.is_grafted(record)
        yield self._make(
            "plan",
            planned.name if planned.exists() else "in the wheel's record",
            [*_pick(own, "plan"), *([_check_plan(folder)] if built else [])],
            digest_=str(record.facts["plan"]),
            said="The exact commands that made the wheel.",
            documents=[show(planned)] if planned.exists() else [],
        )
        pinned = record.facts["lock"]
        yield self._make(
            "lock",
            "pins of the wheel",
            _pick(own, "plan" if verify_wheel.is_grafted(record) else "lock"),  # a graft's plan holds its lock
            digest_=digest.digest_value(pinned),
            said=_LOCK,
            documents=[_show_json("lock", pinned)],
        )
        if verify_wheel.is_grafted(record) and record.parent:
            yield self._make(
                "original",
                str(record.parent.get("name")),
                _pick(own, "original"),
                digest_=str(record.parent.get("digest")),
                said="The published wheel that was grafted.",
                documents=[_show_json("as the record names it", dict(record.parent))],
            )

    def _count_builders(self, folder: Path, *, trusted: bool) -> str:
        if trusted:
            try:
                return rebuild.count_builders(folder, self.trust.policy, self.trust.accepted).evidence
            except ToolkitError as error:
                return error.what
        again = [name for path in folder.iterdir() if signing.is_envelope(name := path.name)]
        count = len([name for name in again if name != signing.ENVELOPE])
        return f"{count} signed statement{'s' * (count != 1)} of second builds, not checked" if count else ""

    def _make(self, name: str, title: str, findings: Findings, *, digest_: str = "", **parts: Any) -> Link:
        found = list(findings)
        if not found and self.trust.compared != "chain":
            found = [Finding(id="state", state="skipped", evidence=LATER)]
        if not found:
            blocked = any(item.id.endswith("signature") and item.state != "ok" for item in self.findings)
            why = "a signature does not hold, so the record was read no further" if blocked else "nothing was compared"
            found = [absent("state", why)]
        return Link(
            name=name,
            title=printable(title),
            state=judge(found),
            digest=digest_.removeprefix("sha256:"),
            findings=found,
            **parts,
        )


LATER: Final = "not compared when this page was written: `toolkit report` does it, and `toolkit verify`"
_OWN: Final = "TensorFlow, built here from source."
_LOCK: Final = "Every pin, by digest, hash or commit."


def _find_pin(value: str, path: Path) -> Finding:
    if f"--hash={value}" in path.read_text(encoding="utf-8"):
        return check("pinned", True, f"{path.name} of this clone has its hash")
    return absent("pinned", f"{path.name} of this clone does not have its hash")


def _check_plan(folder: Path) -> Finding:
    try:
        return check("plan", True, f"{rebuild.read_plan(folder).digest}, as in the wheel's record")
    except ToolkitError as error:
        return check("plan", False, f"{error.what}: {error.why}")
