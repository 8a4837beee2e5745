"""Makes the statements that are signed about wheels, environments, images, smoke reports and runs, and checks them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit import digest, files, findings, manifest, signing
from toolkit.engine import host
from toolkit.errors import IntegrityError, ToolkitError, UsageError
from toolkit.findings import Finding, check, prefix
from toolkit.manifest import Manifest
from toolkit.record import Target, model, verify, verify_environment, verify_run, verify_wheel
from toolkit.signing import Policy, Statement
from toolkit.smoke import runner
from toolkit.wheel import build_documents, wheel_documents
from train.record import metrics, reader

if TYPE_CHECKING:
    from toolkit.keys import Signer

TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"
PLAN: Final = "toolkit-plan-sha256"
"""Algorithm name for the digest of an environment, which is that of its plan and not of a file."""

WEIGHTS: Final = "toolkit-weights-sha256"
"""Algorithm name for :func:`train.record.reader.digest_weights`."""

_RESULTS: Final = {"ok": "passedTests", "fail": "failedTests"}


def describe(target: Target, state: Path) -> Statement:
    """Return what a signature of a thing says, from the files that are here.

    Raises IntegrityError: a file is missing or no regular file, or the image has no record here.
    """
    match target.kind:
        case "wheel":
            return _describe_wheel(target.folder)
        case "environment":
            return _describe_environment(target.folder)
        case "image":
            return _describe_image(find_folder(target, state))
        case "smoke":
            return _describe_report(target)
        case "run":
            return _describe_run(target.folder)


def find_folder(target: Target, state: Path) -> Path:
    """Return the folder of a target's record. Raises IntegrityError: an image was not built here."""
    if not target.reference:
        return target.folder
    folder = verify_environment.locate_image(target.reference, state)
    if folder is None:
        raise IntegrityError(
            f"no record in {state} is of the image {target.reference}",
            remedy="`toolkit build-image` builds one with its record, which can be signed",
        )
    return folder


def sign(target: Target, state: Path, signer: "Signer", *, fresh: bool = False, replace: bool = False) -> str:
    """Sign a thing; return what was done. What was not made just now (``fresh``) is verified first.

    Raises CheckError: it does not hold; IntegrityError: its record is damaged, it was signed and has changed, or it
    changes meanwhile.
    """
    statement = describe(target, state)
    place = find_folder(target, state) / target.report
    if signing.is_signed(place, statement, signer):
        return f"signed before: {signing.locate(place)}"
    if not fresh:
        _require_sound(target, state, statement, lambda: describe(target, state))
    signing.write(place, statement, signer, replace=fresh or replace)
    return f"signed: {signing.locate(place)}"


def sign_model(target: Target, state: Path, signer: "Signer", *, replace: bool = False) -> str:
    """Sign all files of a run as OpenSSF Model Signing does, after it was verified; return what was done.

    Raises UsageError: it is no run, or the key is of a kind that Model Signing does not know; else as `sign`.
    """
    if target.kind != "run":
        raise UsageError("--model-signing is for a run", remedy="leave it out: the envelope is for everything else")
    model.require_key(signer)
    statement, place = model.describe(target.folder), target.folder / model.SIGNATURE
    if model.is_signed(target.folder, statement, signer):
        return f"signed before: {place}"
    _require_sound(target, state, statement, lambda: model.describe(target.folder))
    model.write(target.folder, statement, signer, replace=replace)
    return f"signed: {place}"


def _require_sound(target: Target, state: Path, statement: Statement, again: Callable[[], Statement]) -> None:
    findings.require(verify(target, state), remedy="only what holds is signed")
    if again() != statement:
        raise IntegrityError(
            f"{target.path} has changed while it was verified", remedy="find out why, and sign it then"
        )


def check_chain(target: Target, state: Path, policy: Policy) -> list[Finding]:
    """Check the signatures of a thing and of the links behind it that are on this machine."""
    found = [check_one(target, state, policy)]
    for name, link in follow(target, state):
        found += prefix(name, [check_one(link, state, policy)])
    return found


def list_signers(target: Target, policy: Policy) -> set[str]:
    """Return the ids of the keys of the policy that signed a run. Raises IntegrityError: none that may."""
    if signing.locate(target.folder).exists():
        found, _ = signing.read(target.folder, target.kind, policy)
    else:
        found = model.list_signers(target.folder, policy)
    return {each.key.keyid for each in found}


def check_reports(target: Target, state: Path) -> list[Finding]:
    """Return whether the checks passed in each signed report behind a thing."""
    reports = [link.path for _, link in follow(target, state) if link.kind == "smoke"]
    return prefix("smoke", [verify_environment.check_report(path) for path in reports])


def require(found: Sequence[Finding]) -> None:
    """Raise IntegrityError unless all signatures hold, and what else a policy asks for."""
    missing = [item for item in found if item.state != "ok"]
    if missing:
        usual = "`toolkit sign` signs what is yours; what a stranger changed, make or fetch again"
        raise IntegrityError(
            f"{len(missing)} of {len(found)} findings of --trust do not hold",
            why="; ".join(f"{item.id}: {item.evidence}" for item in missing),
            remedy="; ".join(dict.fromkeys(item.remedy or usual for item in missing)),
        )


def check_one(target: Target, state: Path, policy: Policy) -> Finding:
    """Check the signatures of a thing alone."""
    try:
        place = find_folder(target, state) / target.report
        if not signing.locate(place).exists():
            if is_model_signed(target):
                return model.verify(place, policy)
            noun = "report" if target.kind == "smoke" else target.kind
            return findings.absent("signature", f"the {noun} is not signed: {place}")
        return signing.verify(place, describe(target, state), policy)
    except ToolkitError as error:
        return check("signature", False, error.what)


def is_model_signed(target: Target) -> bool:
    """Return whether a run has a signature of Model Signing, and no envelope, which would decide."""
    folder = target.folder
    return target.kind == "run" and not signing.locate(folder).exists() and (folder / model.SIGNATURE).exists()


def follow(target: Target, state: Path) -> Iterator[tuple[str, Target]]:
    """Yield the links behind a thing with their names. A link is known by the digest in the manifest before it."""
    if target.kind == "wheel":
        return
    try:
        folder = find_folder(target, state)
        if target.kind == "run":
            parent = reader.read_record(folder).parent
            yield from _follow_parent(parent, state)
            return
    except ToolkitError:
        return  # `verify` says so
    record = manifest.read(folder)
    if record is None or record.kind not in {"environment", "image"}:
        return
    if target.kind == "smoke":
        yield record.kind, Target(kind=record.kind, folder=folder)  # type: ignore[arg-type]
    else:
        for report in sorted(folder.glob(f"{runner.REPORT}*.json")):
            if signing.locate(report).exists():
                yield "smoke", Target(kind="smoke", folder=folder, report=report.name)
    for link in verify_wheel.flatten(record.parent):
        # A published wheel is held by the locked set; no signature of it is known.
        own = verify_wheel.find_wheel_folder(link) if link.get("kind") == "wheel" and not link.get("parent") else None
        if own:
            yield "wheel", Target(kind="wheel", folder=own)


def _follow_parent(parent: Mapping[str, Any], state: Path) -> Iterator[tuple[str, Target]]:
    match parent.get("kind"):
        case "environment":
            folder = verify_run.find_environment(parent, state)
        case "image":
            reference = str(parent.get("reference"))
            folder = verify_environment.find_image_record(str(parent.get("digest")), state, reference=reference)
        case _:
            return
    if folder:
        link = Target(kind=parent["kind"], folder=folder)
        yield parent["kind"], link
        yield from follow(link, state)


def _describe_wheel(folder: Path) -> Statement:
    names = [path.name for path in folder.iterdir() if not signing.is_envelope(path.name)]
    return Statement(
        kind="wheel",
        subjects=digest.read_files(folder, names),
        predicate_type=wheel_documents.PREDICATE,
        predicate=verify_wheel.read_predicate(folder),
    )


def _describe_environment(folder: Path) -> Statement:
    record = _read(folder, "environment")
    records = folder.glob("venv/lib/python3.*/site-packages/*.dist-info/RECORD")
    names = [manifest.FILE, host.REPORT, *(path.relative_to(folder).as_posix() for path in records)]
    return Statement(
        kind="environment",
        subjects=digest.read_files(folder, names),
        predicate_type=wheel_documents.PREDICATE,
        predicate=_describe_build("make-environment", {"plan": record.digest}, record.parent),
    )


def _describe_image(folder: Path) -> Statement:
    record = _read(folder, "image")
    tag = str(record.facts.get("tag"))
    return Statement(
        kind="image",
        subjects={tag: record.digest, **digest.read_files(folder, [manifest.FILE])},
        predicate_type=wheel_documents.PREDICATE,
        predicate=_describe_build("build-image", {"tag": tag, "plan": record.facts.get("plan")}, record.parent),
    )


def _describe_report(target: Target) -> Statement:
    report = runner.from_json(files.read_json(target.path))
    record = manifest.read(target.folder)
    if record is None:
        raise IntegrityError(
            f"{target.folder} has no manifest of what was checked",
            why="a report is signed together with the environment or image that it is about",
            remedy="let the toolkit build the image, and check that one",
        )
    lists: dict[str, list[str]] = {name: [] for name in _RESULTS.values()}
    for item in report.checks:
        if item.state in _RESULTS:
            lists[_RESULTS[item.state]].append(item.id)
    return Statement(
        kind="smoke",
        subjects={record.kind: record.digest, **digest.read_files(target.folder, [target.report])},
        predicate_type=TEST_RESULT,
        predicate={
            "result": {"pass": "PASSED", "fail": "FAILED"}[report.verdict],
            "configuration": [{"name": target.report}],  # its name holds the digest of the checks and of what was asked
            **lists,
        },
    )


def _describe_run(folder: Path) -> Statement:
    record = reader.read_record(folder)
    pictures, drawn = (record.value.get(name) or {} for name in ("pictures", "drawn"))
    if not isinstance(pictures, dict) or not isinstance(drawn, dict):
        raise IntegrityError(f"the pictures in the manifest of {folder} are no object")
    names = [manifest.FILE, reader.CONFIG, metrics.CSV, metrics.LINES, reader.CONFUSION, reader.CURVES]
    names += [*pictures, *drawn]
    for newest in reader.list_checkpoints(folder / reader.CHECKPOINTS)[:1]:
        names += [newest.relative_to(folder).as_posix(), newest.with_suffix(".npz").relative_to(folder).as_posix()]
    return Statement(
        kind="run",
        subjects=digest.read_files(folder, [name for name in names if (folder / name).exists()]),
        predicate_type=wheel_documents.PREDICATE,
        predicate=_describe_build("train", record.config, record.parent, record.value["weights_sha256"]),
    )


def _describe_build(
    activity: str, parameters: Mapping[str, Any], parent: Mapping[str, Any] | None, weights: str = ""
) -> dict[str, Any]:
    """Return a SLSA provenance; a parent's digest is that of a file or image, or of an environment's plan."""
    links = [
        {
            "name": f"{link.get('kind')} {link.get('name') or link.get('reference')}",
            "digest": {
                PLAN if link.get("kind") == "environment" else "sha256": str(link.get("digest")).removeprefix("sha256:")
            },
        }
        for link in verify_wheel.flatten(parent)
    ]
    made = {"byproducts": [{"name": "weights", "digest": {WEIGHTS: weights}}]} if weights else {}
    return {
        "buildDefinition": {
            "buildType": f"urn:x-tensorflow-toolkit:{activity}:v1",
            "externalParameters": dict(parameters),
            "resolvedDependencies": links,
        },
        "runDetails": {"builder": {"id": build_documents.BUILDER}, **made},
    }


def _read(folder: Path, kind: str) -> Manifest:
    record = manifest.read(folder)
    if record is None or record.kind != kind:
        raise IntegrityError(f"{folder} has no manifest of an {kind}", remedy="make it again")
    return record
