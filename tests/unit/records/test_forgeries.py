"""Forgeries of a signed chain: `verify --trust` must name each."""

import shutil

import pytest

from tests.unit.records.forging import (
    ZERO,
    Forge,
    add_checkpoint,
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
    sign_report_badly,
    sign_wheel_badly,
    strip,
    swap_signatures,
    take_weights,
    turn_report,
    wrap,
    write_envelope,
)
from tests.unit.records.signed import IMAGE, OTHER, TAG, World, change_envelope
from toolkit.base import signing
from toolkit.wheel import wheel_documents, wheel_folder

WHL = "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"
PACKAGES = "venv/lib/python3.11/site-packages"
SUBJECT = "a subject is not named once with a sha256 alone"
DEEP = b"[" * 200_000 + b"]" * 200_000

FORGERIES: dict[str, tuple[str, Forge, int, str]] = {
    # A forged wheel.
    "byte flipped in the wheel": ("wheel", flip_in("wheel", "*.whl"), 8, f"{WHL} is not what was signed"),
    "byte flipped in the sbom": ("wheel", flip_in("wheel", "sbom*"), 8, "sbom.cdx.json is not what was signed"),
    "byte flipped in the log": ("wheel", flip_in("wheel", "build.log"), 8, "build.log is not what was signed"),
    "byte flipped in the plan": ("wheel", flip_in("wheel", "plan.json"), 8, "plan.json is not what was signed"),
    "byte flipped in the sums": ("wheel", flip_in("wheel", "SHA*"), 8, "SHA256SUMS is not what was signed"),
    "byte flipped in the manifest": (
        "wheel",
        change("wheel", lambda value: value["facts"].update(seconds=1)),
        8,
        "manifest.json is not what was signed",
    ),
    "wheel and sums changed": ("wheel", fit(flip_in("wheel", "*.whl")), 8, f"{WHL} is not what was signed"),
    "log and sums changed": ("wheel", fit(flip_in("wheel", "build.log")), 8, "build.log is not what was signed"),
    "provenance of another wheel": (
        "wheel",
        fit(change("wheel", lambda value: value["subject"][0].update(name="x"), wheel_documents.PROVENANCE)),
        8,
        f"{wheel_documents.PROVENANCE} is not what was signed",
    ),
    "no provenance any more": (
        "wheel",
        fit(lambda world: (world.wheel / wheel_documents.PROVENANCE).write_text("[]")),
        8,
        f"has no readable {wheel_documents.PROVENANCE}",
    ),
    "older provenance": ("wheel", fit(replay_provenance), 8, f"{wheel_documents.PROVENANCE} is not what was signed"),
    "envelope of an older build": ("wheel", replay_envelope, 8, "manifest.json is not what was signed"),
    "statement of another wheel": ("wheel", name_other_wheel, 8, f"{WHL} is not what was signed"),
    "lock edited after the build": ("wheel", edit_lock, 8, "manifest.json is not what was signed"),
    "lock edited by the builder": (
        "wheel",
        lambda world: (edit_lock(world), world.sign(world.wheel, "builder")),
        7,
        "in the manifest, which names",
    ),
    "link out of the folder": ("wheel", link_out("wheel", "build.log"), 8, "build.log is no regular file"),
    "hard link to another file": ("wheel", fit(link_hard), 8, "build.log is not what was signed"),
    "extra file": ("wheel", fit(lambda world: (world.wheel / "x.py").touch()), 8, "x.py is not signed"),
    "file gone": (
        "wheel",
        fit(lambda world: (world.wheel / "sbom.cdx.json").unlink()),
        8,
        "sbom.cdx.json was signed and is not here",
    ),
    "folder in place of a file": ("wheel", lambda world: (world.wheel / "x").mkdir(), 8, "x is no regular file"),
    "record of an image round a wheel": ("wheel", wrap("wheel", "image"), 8, "what belongs to the kind wheel"),
    "record of an image round a wheel's file": ("archive", wrap("wheel", "image"), 8, "what belongs to the kind wheel"),
    "record of an environment round a wheel": ("wheel", wrap("wheel", "environment"), 8, "belongs to the kind wheel"),
    "a run round a wheel": (
        "run",
        lambda world: shutil.copy(world.archive, world.run),
        8,
        "what belongs to the kind wheel",
    ),
    # A forged signature.
    "stripped signature": ("wheel", strip("wheel"), 8, "signature: the wheel is not signed"),
    "no signatures": ("wheel", envelope("wheel", lambda value: value.update(signatures=[])), 8, "is no envelope"),
    "key not in the policy": ("wheel", sign_by("wheel", "stranger"), 8, "which is not trusted"),
    "key for another kind": ("wheel", sign_by("wheel", "trainer"), 8, "trainer may sign run: not wheel"),
    "another key's id": ("wheel", claim_key, 8, "the signature is not that of builder"),
    "swapped signatures": ("wheel", swap_signatures, 8, "the signature is not that of builder"),
    "signature twice": (
        "wheel",
        envelope("wheel", lambda value: value.update(signatures=value["signatures"] * 2)),
        8,
        "Multiple signatures",
    ),
    "signature cut": (
        "wheel",
        envelope("wheel", lambda value: value["signatures"][0].update(sig="AAAA")),
        8,
        "the signature is not that of builder",
    ),
    "signature in other letters": (
        "wheel",
        envelope("wheel", lambda value: value["signatures"][0].update(sig="{}")),
        8,
        "cannot be read",
    ),
    "payload type changed": (
        "wheel",
        envelope("wheel", lambda value: value.update(payloadType="text/plain")),
        8,
        "has the payload type 'text/plain'",
    ),
    "payload changed": (
        "wheel",
        envelope("wheel", lambda value: value.update(payload="e30" + value["payload"][3:])),
        8,
        "the signature is not that of builder",
    ),
    "extra field": ("wheel", envelope("wheel", lambda value: value.update(x=1)), 8, "is no envelope"),
    "envelope cut": ("wheel", rewrite(lambda text: text[: len(text) // 2]), 8, "cannot be read"),
    "empty envelope": ("wheel", write_envelope(b""), 8, "cannot be read"),
    "key twice": ("wheel", rewrite(lambda text: text.replace(b"{", b'{"payload": "",', 1)), 8, "a key stands twice"),
    "NaN": ("wheel", rewrite(lambda text: text.replace(b"{", b'{"x": NaN,', 1)), 8, "NaN is no number"),
    "huge number": ("wheel", write_envelope(b"9" * 10_000), 8, "cannot be read"),
    "huge envelope": ("wheel", write_envelope(b" " * (signing.LARGEST + 1)), 8, "of more than 16 MiB"),
    "nested envelope": ("wheel", write_envelope(DEEP), 8, "cannot be read"),
    "linked envelope": ("wheel", link_out("wheel", signing.ENVELOPE), 8, "is no regular file"),
    "linked envelope of a run": ("run", link_out("run", signing.ENVELOPE), 8, "is no regular file"),
    # A statement that the trusted key signed, and that says too little.
    "another digest algorithm": (
        "wheel",
        restate(lambda value: value["subject"][0].update(digest={"sha1": "0" * 40})),
        8,
        SUBJECT,
    ),
    "a second digest algorithm": (
        "wheel",
        restate(lambda value: value["subject"][0]["digest"].update(md5="0" * 32)),
        8,
        SUBJECT,
    ),
    "short digest": (
        "wheel",
        restate(lambda value: value["subject"][0]["digest"].update(sha256="0" * 12)),
        8,
        SUBJECT,
    ),
    "subject twice": (
        "wheel",
        restate(lambda value: value.update(subject=value["subject"] * 2)),
        8,
        SUBJECT,
    ),
    "no subjects": ("wheel", restate(lambda value: value.update(subject=[])), 8, "is not signed"),
    "statement of another kind": (
        "wheel",
        restate(lambda value: value["predicate"]["buildDefinition"].update(buildType="x")),
        8,
        "the statement is not of a wheel",
    ),
    "another commit in the statement": (
        "wheel",
        say_otherwise("wheel", "builder", lambda value: value["buildDefinition"].update(resolvedDependencies=[])),
        8,
        "the statement says otherwise than the files: buildDefinition",
    ),
    "no statement": ("wheel", lambda world: world.sign_bytes(world.wheel, b"[]"), 8, "no in-toto statement"),
    "key twice in the statement": (
        "wheel",
        restate_text(lambda text: text.replace("{", '{"_type": "x",', 1)),
        8,
        "a key stands twice",
    ),
    "NaN in the statement": (
        "wheel",
        restate_text(lambda text: text.replace('"predicate": {', '"predicate": {"x": NaN,', 1)),
        8,
        "NaN is no number",
    ),
    "signed as another type": (
        "wheel",
        lambda world: world.sign_bytes(world.wheel, b"{}", kind="application/json"),
        8,
        "has the payload type",
    ),
    # A forged report of checks.
    "failed checks turned": ("report", turn_report, 8, "smoke-0123456789ab.json is not what was signed"),
    "report of something else": (f"{IMAGE}/smoke-0123456789ab.json", copy_report, 8, "environment was signed"),
    "another result in the statement": (
        "report",
        say_otherwise("report", "checker", lambda value: value.update(result="FAILED")),
        8,
        "the statement says otherwise than the files: result",
    ),
    "report signed by the builder": ("report", sign_by("report", "builder"), 8, "not smoke"),
    # A forged environment or image.
    "package changed": ("environment", lambda world: change_package(world, record=False), 7, "files: 1 of"),
    "package and record changed": (
        "environment",
        lambda world: change_package(world, record=True),
        8,
        "RECORD is not what was signed",
    ),
    "another interpreter": ("environment", put("venv/bin/python"), 7, "content: venv/bin/python"),
    "a module that Python imports first": (
        "environment",
        put(f"{PACKAGES}/sitecustomize.py"),
        7,
        "sitecustomize.py is not",
    ),
    "a line that runs first": ("environment", put(f"{PACKAGES}/a.pth"), 7, "a.pth is not in its record"),
    "other bytecode": ("environment", put(f"{PACKAGES}/old.cpython-311.pyc"), 7, "pyc has other bytes"),
    "another configuration of the environment": ("environment", put("venv/pyvenv.cfg"), 7, "pyvenv.cfg is not"),
    "another list of files": ("environment", put("files.json"), 7, "files.json is not the list"),
    "an environment whose record lacks the list": (
        "environment",
        lambda world: (
            change("environment", lambda value: value["facts"].pop("files"))(world),
            world.sign(world.environment, "builder"),
        ),
        7,
        "content: its record has no list of its files",
    ),
    "environment of another wheel": (
        "environment",
        change("environment", lambda value: value["parent"].update(digest=ZERO)),
        8,
        "manifest.json is not what was signed",
    ),
    "image retagged": ("image", move_tag, 7, f"id: {TAG} is {OTHER}"),
    "image retagged, by name": (TAG, move_tag, 8, f"is of the image {TAG}"),
    "image with other labels": ("image", relabel, 7, "labels: changed"),
    "record of another image": (
        "image",
        change("image", lambda value: value.update(digest=OTHER)),
        8,
        f"{TAG} is not what was signed",
    ),
    "record of an image in an environment": (
        "environment",
        wrap("environment", "image"),
        8,
        "what belongs to the kind environment",
    ),
    # A forged run.
    "metrics of a run round an image's record": (
        "image",
        lambda world: shutil.copy(world.run / "metrics.csv", world.image),
        8,
        "what belongs to the kind run",
    ),
    "record of an image in a run": ("run", wrap("run", "image"), 8, "what belongs to the kind run"),
    "other parameters in the statement": (
        "run",
        say_otherwise("run", "trainer", lambda value: value["buildDefinition"].update(externalParameters={})),
        8,
        "the statement says otherwise than the files: buildDefinition",
    ),
    "byte flipped in the weights": ("run", flip_in("run", "checkpoints/*44.npz"), 8, "44.npz is not what was signed"),
    "byte flipped in the metrics": ("run", flip_in("run", "metrics.csv"), 8, "metrics.csv is not what was signed"),
    "loss of a step changed": ("run", change_step, 8, "metrics.jsonl is not what was signed"),
    "byte flipped in the curves": ("run", flip_in("run", "curves.png"), 8, "curves.png is not what was signed"),
    "byte flipped in a picture": ("run", flip_in("run", "samples.png"), 8, "samples.png is not what was signed"),
    "byte flipped in the configuration": ("run", flip_in("run", "config.yaml"), 8, "config.yaml is not what was sig"),
    "confusions drawn anew": ("run", flip_in("run", "confusion.png"), 8, "confusion.png is not what was signed"),
    "byte flipped in the summary": ("run", flip_in("run", "model.txt"), 8, "model.txt is not what was signed"),
    "weights of another run": ("run", take_weights, 8, "44.json is not what was signed"),
    "better result": (
        "run",
        change("run", lambda value: value["result"].update(test_accuracy=1.0)),
        8,
        "manifest.json is not what was signed",
    ),
    "another environment": (
        "run",
        change("run", lambda value: value["parent"].update(digest=ZERO)),
        8,
        "manifest.json is not what was signed",
    ),
    "newer checkpoint": ("run", add_checkpoint, 8, "checkpoints/step-00000099.json is not signed"),
    "newer checkpoint beside the signed one": (
        "run",
        add_checkpoint,
        8,
        "44.json was signed and another file is taken in its place",
    ),
    "checkpoints elsewhere": ("run", link_out("run", "checkpoints"), 8, "is no regular file"),
    "picture outside": (
        "run",
        change("run", lambda value: value["pictures"].update({"../../policy.yaml": ""})),
        8,
        "../../policy.yaml is no regular file",
    ),
    "picture with an absolute path": (
        "run",
        change("run", lambda value: value["pictures"].update({"/etc/passwd": ""})),
        8,
        "/etc/passwd is no regular file",
    ),
    "metrics gone": ("run", lambda world: (world.run / "metrics.csv").unlink(), 8, "metrics.csv was signed and is not"),
    "run signed by the builder": ("run", sign_by("run", "builder"), 8, "not run"),
    # A link behind a whole run.
    "unsigned wheel behind a run": ("run", strip("wheel"), 8, "wheel.signature: the wheel is not signed"),
    "forged wheel behind a run": ("run", flip_in("wheel", "build.log"), 8, "wheel.signature: build.log"),
    "strange wheel behind a run": ("run", sign_wheel_badly, 8, "wheel.signature: signed by key"),
    "wheel behind a run with another digest in its manifest": (
        "run",
        fit(change("wheel", lambda value: value.update(digest=ZERO))),
        8,
        "wheel.signature: SHA256SUMS is not what was signed; manifest.json is not",
    ),
    "image behind a run with another digest in its manifest": (
        "run",
        hide_image(lambda value: value.update(digest=ZERO)),
        8,
        f"image.signature: manifest.json is not what was signed; {TAG} is not what was signed",
    ),
    "image behind a run with another kind in its manifest": (
        "run",
        hide_image(lambda value: value.update(kind="x")),
        8,
        "image.signature: ",
    ),
    "unsigned environment behind a run": ("run", strip("environment"), 8, "environment.signature: the environment is"),
    "failed report behind a run": ("run", fail_report, 7, "smoke.report: 0 passed, 1 failed"),
    "strange report behind a run": ("run", sign_report_badly, 8, "smoke.signature: signed by key"),
}


REMEDIES = {
    "byte flipped in the wheel": "do not use it: fetch it again from whoever signed it",
    "no provenance any more": "do not use it: fetch it again from whoever signed it",
    "another key's id": "do not use it: fetch it again from whoever signed it",
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
