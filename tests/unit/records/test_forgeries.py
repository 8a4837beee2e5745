"""Forgeries of a signed chain: `verify --trust` must name each."""

import shutil

import pytest

from tests.unit.records.forging import (
    ZERO,
    Forge,
    add_checkpoint,
    add_picture,
    change,
    change_package,
    change_step,
    claim_key,
    copy_report,
    edit_lock,
    envelope,
    fail_report,
    fit,
    flip_in,
    hide_image,
    link_hard,
    link_out,
    move_tag,
    name_other_wheel,
    put,
    relabel,
    replay_envelope,
    replay_provenance,
    restate,
    restate_text,
    rewrite,
    say_otherwise,
    sign_by,
    strip,
    swap_signatures,
    take_weights,
    turn_report,
    wrap,
    write_envelope,
)
from tests.unit.records.signed import IMAGE, OTHER, TAG, World, change_envelope, flip, read_payload
from toolkit.base import signing
from toolkit.wheel import wheel_documents, wheel_folder

WHL = "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"
PACKAGES = "venv/lib/python3.11/site-packages"
PROVENANCE = wheel_documents.PROVENANCE
SBOM = "sbom.cdx.json"
CHANGED = "is not what was signed"
MANIFEST = f"manifest.json {CHANGED}"
OTHERWISE = "the statement says otherwise than the files"
NOT_OF_BUILDER = "the signature is not that of builder"
SUBJECT = "a subject is not named once with a sha256 alone"
DEEP = b"[" * 200_000 + b"]" * 200_000

FILES: dict[str, tuple[str, Forge, str]] = {
    # A forged wheel.
    "byte flipped in the manifest": (
        "wheel",
        change("wheel", lambda value: value["facts"].update(seconds=1)),
        MANIFEST,
    ),
    "wheel and sums changed": ("wheel", fit(flip_in("wheel", "*.whl")), f"{WHL} {CHANGED}"),
    "log and sums changed": ("wheel", fit(flip_in("wheel", "build.log")), f"build.log {CHANGED}"),
    "provenance of another wheel": (
        "wheel",
        fit(change("wheel", lambda value: value["subject"][0].update(name="x"), PROVENANCE)),
        f"{PROVENANCE} {CHANGED}",
    ),
    "no provenance any more": (
        "wheel",
        fit(lambda world: (world.wheel / PROVENANCE).write_text("[]")),
        f"has no readable {PROVENANCE}",
    ),
    "older provenance": ("wheel", fit(replay_provenance), f"{PROVENANCE} {CHANGED}"),
    "envelope of an older build": ("wheel", replay_envelope, MANIFEST),
    "statement of another wheel": ("wheel", name_other_wheel, f"{WHL} {CHANGED}"),
    "lock edited after the build": ("wheel", edit_lock, MANIFEST),
    "link out of the folder": ("wheel", link_out("wheel", "build.log"), "build.log is no regular file"),
    "hard link to another file": ("wheel", fit(link_hard), f"build.log {CHANGED}"),
    "extra file": ("wheel", fit(lambda world: (world.wheel / "x.py").touch()), "x.py is not signed"),
    "file gone": ("wheel", fit(lambda world: (world.wheel / SBOM).unlink()), f"{SBOM} was signed and is not here"),
    "folder in place of a file": ("wheel", lambda world: (world.wheel / "x").mkdir(), "x is no regular file"),
    "record of an image round a wheel": ("wheel", wrap("wheel", "image"), "what belongs to the kind wheel"),
    "record of an image round a wheel's file": ("archive", wrap("wheel", "image"), "what belongs to the kind wheel"),
    "record of an environment round a wheel": ("wheel", wrap("wheel", "environment"), "belongs to the kind wheel"),
    "a run round a wheel": (
        "run",
        lambda world: shutil.copy(world.archive, world.run),
        "what belongs to the kind wheel",
    ),
    # A forged report of checks.
    "failed checks turned": ("report", turn_report, f"smoke-0123456789ab.json {CHANGED}"),
    "report of something else": (f"{IMAGE}/smoke-0123456789ab.json", copy_report, "environment was signed"),
    "another result in the statement": (
        "report",
        say_otherwise("report", "checker", lambda value: value.update(result="FAILED")),
        f"{OTHERWISE}: result",
    ),
    "report signed by the builder": ("report", sign_by("report", "builder"), "not smoke"),
    # A forged environment or image.
    "package and record changed": (
        "environment",
        lambda world: change_package(world, record=True),
        f"RECORD {CHANGED}",
    ),
    "environment of another wheel": (
        "environment",
        change("environment", lambda value: value["parent"].update(digest=ZERO)),
        MANIFEST,
    ),
    "image retagged, by name": (TAG, move_tag, f"is of the image {TAG}"),
    "record of another image": ("image", change("image", lambda value: value.update(digest=OTHER)), f"{TAG} {CHANGED}"),
    "record of an image in an environment": (
        "environment",
        wrap("environment", "image"),
        "what belongs to the kind environment",
    ),
    # A forged run.
    "metrics of a run round an image's record": (
        "image",
        lambda world: shutil.copy(world.run / "metrics.csv", world.image),
        "what belongs to the kind run",
    ),
    "record of an image in a run": ("run", wrap("run", "image"), "what belongs to the kind run"),
    "other parameters in the statement": (
        "run",
        say_otherwise("run", "trainer", lambda value: value["buildDefinition"].update(externalParameters={})),
        f"{OTHERWISE}: buildDefinition",
    ),
    "loss of a step changed": ("run", change_step, f"metrics.jsonl {CHANGED}"),
    "weights of another run": ("run", take_weights, f"44.json {CHANGED}"),
    "better result": ("run", change("run", lambda value: value["result"].update(test_accuracy=1.0)), MANIFEST),
    "another environment": ("run", change("run", lambda value: value["parent"].update(digest=ZERO)), MANIFEST),
    "newer checkpoint": ("run", add_checkpoint, "checkpoints/step-00000099.json is not signed"),
    "newer checkpoint beside the signed one": (
        "run",
        add_checkpoint,
        "44.json was signed and another file is taken in",
    ),
    "checkpoints elsewhere": ("run", link_out("run", "checkpoints"), "is no regular file"),
    "picture outside": ("run", add_picture("../../policy.yaml"), "../../policy.yaml is no regular file"),
    "picture with an absolute path": ("run", add_picture("/etc/passwd"), "/etc/passwd is no regular file"),
    "metrics gone": ("run", lambda world: (world.run / "metrics.csv").unlink(), "metrics.csv was signed and is not"),
    "run signed by the builder": ("run", sign_by("run", "builder"), "not run"),
    "linked envelope of a run": ("run", link_out("run", signing.ENVELOPE), "is no regular file"),
    # A link behind a whole run.
    "unsigned wheel behind a run": ("run", strip("wheel"), "wheel.signature: the wheel is not signed"),
    "forged wheel behind a run": ("run", flip_in("wheel", "build.log"), "wheel.signature: build.log"),
    "strange wheel behind a run": ("run", sign_by("wheel", "stranger"), "wheel.signature: signed by key"),
    "wheel behind a run with another digest in its manifest": (
        "run",
        fit(change("wheel", lambda value: value.update(digest=ZERO))),
        f"wheel.signature: SHA256SUMS {CHANGED}; {MANIFEST}",
    ),
    "image behind a run with another digest in its manifest": (
        "run",
        hide_image(lambda value: value.update(digest=ZERO)),
        f"image.signature: {MANIFEST}; {TAG} {CHANGED}",
    ),
    "image behind a run with another kind in its manifest": (
        "run",
        hide_image(lambda value: value.update(kind="x")),
        "image.signature: ",
    ),
    "unsigned environment behind a run": ("run", strip("environment"), "environment.signature: the environment is"),
    "strange report behind a run": ("run", sign_by("report", "stranger"), "smoke.signature: signed by key"),
}

SIGNATURES: dict[str, tuple[Forge, str]] = {
    "stripped signature": (strip("wheel"), "signature: the wheel is not signed"),
    "no signatures": (envelope(lambda value: value.update(signatures=[])), "is no envelope"),
    "key not in the policy": (sign_by("wheel", "stranger"), "which is not trusted"),
    "key for another kind": (sign_by("wheel", "trainer"), "trainer may sign run: not wheel"),
    "another key's id": (claim_key, NOT_OF_BUILDER),
    "swapped signatures": (swap_signatures, NOT_OF_BUILDER),
    "signature twice": (
        envelope(lambda value: value.update(signatures=value["signatures"] * 2)),
        "Multiple signatures",
    ),
    "signature cut": (envelope(lambda value: value["signatures"][0].update(sig="AAAA")), NOT_OF_BUILDER),
    "signature in other letters": (envelope(lambda value: value["signatures"][0].update(sig="{}")), "cannot be read"),
    "payload type changed": (
        envelope(lambda value: value.update(payloadType="text/plain")),
        "payload type 'text/plain'",
    ),
    "payload changed": (envelope(lambda value: value.update(payload="e30" + value["payload"][3:])), NOT_OF_BUILDER),
    "extra field": (envelope(lambda value: value.update(x=1)), "is no envelope"),
    "envelope cut": (rewrite(lambda text: text[: len(text) // 2]), "cannot be read"),
    "empty envelope": (write_envelope(b""), "cannot be read"),
    "key twice": (rewrite(lambda text: text.replace(b"{", b'{"payload": "",', 1)), "a key stands twice"),
    "NaN": (rewrite(lambda text: text.replace(b"{", b'{"x": NaN,', 1)), "NaN is no number"),
    "huge number": (write_envelope(b"9" * 10_000), "cannot be read"),
    "huge envelope": (write_envelope(b" " * (signing.LARGEST + 1)), "of more than 16 MiB"),
    "nested envelope": (write_envelope(DEEP), "cannot be read"),
    "linked envelope": (link_out("wheel", signing.ENVELOPE), "is no regular file"),
    # A statement that the trusted key signed, and that says too little.
    "another digest algorithm": (restate(lambda value: value["subject"][0].update(digest={"sha1": "0" * 40})), SUBJECT),
    "a second digest algorithm": (restate(lambda value: value["subject"][0]["digest"].update(md5="0" * 32)), SUBJECT),
    "short digest": (restate(lambda value: value["subject"][0]["digest"].update(sha256="0" * 12)), SUBJECT),
    "subject twice": (restate(lambda value: value.update(subject=value["subject"] * 2)), SUBJECT),
    "no subjects": (restate(lambda value: value.update(subject=[])), "is not signed"),
    "statement of another kind": (
        restate(lambda value: value["predicate"]["buildDefinition"].update(buildType="x")),
        "the statement is not of a wheel",
    ),
    "another commit in the statement": (
        say_otherwise("wheel", "builder", lambda value: value["buildDefinition"].update(resolvedDependencies=[])),
        f"{OTHERWISE}: buildDefinition",
    ),
    "no statement": (lambda world: world.sign_bytes(world.wheel, b"[]"), "no in-toto statement"),
    "key twice in the statement": (
        restate_text(lambda text: text.replace("{", '{"_type": "x",', 1)),
        "a key stands twice",
    ),
    "NaN in the statement": (
        restate_text(lambda text: text.replace('"predicate": {', '"predicate": {"x": NaN,', 1)),
        "NaN is no number",
    ),
    "signed as another type": (
        lambda world: world.sign_bytes(world.wheel, b"{}", kind="application/json"),
        "has the payload type",
    ),
}
"""Forgeries of the envelope of a wheel."""

CONTENT: dict[str, tuple[str, Forge, str]] = {
    "lock edited by the builder": (
        "wheel",
        lambda world: (edit_lock(world), world.sign(world.wheel, "builder")),
        "in the manifest, which names",
    ),
    "package changed": ("environment", lambda world: change_package(world, record=False), "files: 1 of"),
    "another interpreter": ("environment", put("venv/bin/python"), "content: venv/bin/python"),
    "a module that Python imports first": (
        "environment",
        put(f"{PACKAGES}/sitecustomize.py"),
        "sitecustomize.py is not",
    ),
    "a line that runs first": ("environment", put(f"{PACKAGES}/a.pth"), "a.pth is not in its record"),
    "other bytecode": ("environment", put(f"{PACKAGES}/old.cpython-311.pyc"), "pyc has other bytes"),
    "another configuration of the environment": ("environment", put("venv/pyvenv.cfg"), "pyvenv.cfg is not"),
    "another list of files": ("environment", put("files.json"), "files.json is not the list"),
    "an environment whose record lacks the list": (
        "environment",
        lambda world: (
            change("environment", lambda value: value["facts"].pop("files"))(world),
            world.sign(world.environment, "builder"),
        ),
        "content: its record has no list of its files",
    ),
    "image retagged": ("image", move_tag, f"id: {TAG} is {OTHER}"),
    "image with other labels": ("image", relabel, "labels: changed"),
    "failed report behind a run": ("run", fail_report, "smoke.report: 0 passed, 1 failed"),
}
"""What a signature does not cover, and the checks of the content find."""

FORGERIES: dict[str, tuple[str, Forge, int, str]] = {
    **{name: (target, forge, 8, evidence) for name, (target, forge, evidence) in FILES.items()},
    **{name: ("wheel", forge, 8, evidence) for name, (forge, evidence) in SIGNATURES.items()},
    **{name: (target, forge, 7, evidence) for name, (target, forge, evidence) in CONTENT.items()},
}


FETCH = "do not use it: fetch it again from whoever signed it"
REMEDIES = {
    "wheel and sums changed": FETCH,
    "no provenance any more": FETCH,
    "another key's id": FETCH,
    "stripped signature": "if it is yours, `toolkit sign {wheel} --key KEY`; if not, ask whoever made it to sign it",
    "key not in the policy": "ask who owns key {stranger}; if you trust that signer, add `--trust THEIR.pub`",
    "key for another kind": "let a signer with `may: [wheel]` sign it, or change the policy",
}


@pytest.mark.parametrize("name", REMEDIES)
def test_each_kind_of_forgery_has_its_remedy_and_is_told_once(world: World, name: str) -> None:
    _, forge, _, evidence = FORGERIES[name]
    forge(world)
    done = world.verify(world.wheel)
    remedy = REMEDIES[name].format(wheel=world.wheel, stranger=world.signers["stranger"].public_key.keyid[:32])
    assert done.output.count(remedy) == done.output.count(evidence) == 1, done.output
    assert "not verified: 1 of 1 signatures does not hold, so nothing else was checked" in done.output


@pytest.mark.parametrize("name", FORGERIES)
def test_each_forgery_is_named(world: World, name: str) -> None:
    target, forge, code, evidence = FORGERIES[name]
    forge(world)
    done = world.verify(getattr(world, target, target))
    assert done.exit_code == code, done.output
    assert evidence in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("kind", ["wheel", "run"])
def test_a_flipped_byte_in_any_signed_file_is_named(world: World, kind: str) -> None:
    record = getattr(world, kind)
    names = [subject["name"] for subject in read_payload(record)["subject"] if not subject["name"].endswith(".json")]
    for name in names:
        flip(record / name)
        done = world.verify(record)
        assert (done.exit_code, f"{name} {CHANGED}" in done.output) == (8, True), done.output
        flip(record / name)


def test_a_forged_name_does_not_reach_the_terminal(world: World) -> None:
    (world.wheel / "\x1b[2J").touch()
    change_envelope(world.wheel, lambda value: value["signatures"][0].update(keyid="\x1b[2J"))
    for trust in (("policy.yaml",), ()):
        done = world.verify(world.wheel, trust=trust)
        assert done.exit_code == 8
        assert "\x1b" not in done.output


@pytest.mark.parametrize("facts", [{}, {"lock": {"spec": []}}])
def test_a_manifest_without_its_facts_is_damaged(world: World, facts: object) -> None:
    change("wheel", lambda value: value.update(facts=facts))(world)
    wheel_folder.write_sums(world.wheel)
    done = world.verify(world.wheel, trust=())
    assert done.exit_code == 8, done.output
    assert "lacks plan, lock.spec.tensorflow" in done.output


def test_a_page_that_was_written_anew_is_named_as_not_covered(world: World) -> None:
    (world.run / "report.html").write_text("100 %")
    done = world.verify(world.run)
    assert done.exit_code == 0
    assert "report.html" in done.output
