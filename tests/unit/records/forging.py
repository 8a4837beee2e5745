"""Ways to forge a link of a signed chain. Each makes a function that changes a `World`."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.makers.publication import PLAN, RAN_AT, finish_build
from tests.unit.records import maker
from tests.unit.records.signed import CHECK, IDENTITY, OTHER, STATE, TAG, World, change_envelope, flip, read_payload
from toolkit.base import manifest, signing
from toolkit.records import find
from toolkit.wheel import publication, wheel_documents, wheel_folder

ZERO = "sha256:" + "0" * 64
Forge = Callable[[World], object]


def change(kind: str, edit: Callable[[dict[str, Any]], object], name: str = manifest.FILE) -> Forge:
    return lambda world: maker.change_json(getattr(world, kind) / name, edit)


def fit(forge: Forge) -> Forge:
    """Make the sums and the manifest fit a forged wheel folder, as a careful forger does."""

    def both(world: World) -> None:
        forge(world)
        wheel_folder.write_sums(world.wheel)

    return both


def flip_in(kind: str, name: str) -> Forge:
    return lambda world: flip(next(getattr(world, kind).glob(name)))


def put(name: str) -> Forge:
    """Put other bytes into a file of the environment, which may be a new one."""

    def forge(world: World) -> None:
        path = world.environment / name
        path.unlink(missing_ok=True)  # never write through a link to the interpreter of these tests
        path.write_bytes(b"#!/bin/sh")

    return forge


def envelope(edit: Callable[[dict[str, Any]], object]) -> Forge:
    return lambda world: change_envelope(world.wheel, edit)


def write_envelope(content: bytes) -> Forge:
    return lambda world: signing.locate(world.wheel).write_bytes(content)


def rewrite(edit: Callable[[bytes], bytes]) -> Forge:
    def forge(world: World) -> None:
        path = signing.locate(world.wheel)
        path.write_bytes(edit(path.read_bytes()))

    return forge


def strip(kind: str) -> Forge:
    return lambda world: signing.discard(getattr(world, kind))


def sign_by(kind: str, who: str) -> Forge:
    return lambda world: world.sign(getattr(world, kind), who)


def restate(edit: Callable[[dict[str, Any]], object]) -> Forge:
    """Sign another statement about the wheel by the trusted key."""

    def forge(world: World) -> None:
        value = read_payload(world.wheel)
        edit(value)
        world.sign_bytes(world.wheel, json.dumps(value).encode())

    return forge


def restate_text(edit: Callable[[str], str]) -> Forge:
    def forge(world: World) -> None:
        world.sign_bytes(world.wheel, edit(json.dumps(read_payload(world.wheel))).encode())

    return forge


def claim_key(world: World) -> None:
    world.sign(world.wheel, "stranger")
    name = world.signers["builder"].public_key.keyid
    change_envelope(world.wheel, lambda value: value["signatures"][0].update(keyid=name))


def swap_signatures(world: World) -> None:
    other = json.loads(signing.locate(world.image).read_text())["signatures"]
    change_envelope(world.wheel, lambda value: value.update(signatures=other))


def replay(world: World) -> Path:
    """Publish the same wheel once more, one hour before, and sign it."""
    older = world.root / "older"
    ran = replace(RAN_AT, started=RAN_AT.started - 3600)
    publication.publish(finish_build(world.root / "again"), older, PLAN, ran)
    world.sign(older, "builder")
    return older


def replay_envelope(world: World) -> None:
    shutil.copy(signing.locate(replay(world)), signing.locate(world.wheel))


def replay_provenance(world: World) -> None:
    shutil.copy(replay(world) / wheel_documents.PROVENANCE, world.wheel)


def name_other_wheel(world: World) -> None:
    statement = find(str(world.wheel), STATE).make_statement()
    other = {**statement.subjects, world.archive.name: ZERO}
    world.sign(world.wheel, "builder", replace(statement, subjects=other))


def edit_lock(world: World) -> None:
    change("wheel", lambda value: value["facts"]["lock"]["pins"].update({"bazel-sha256": "0" * 64}))(world)
    wheel_folder.write_sums(world.wheel)


def link_out(kind: str, name: str) -> Forge:
    def forge(world: World) -> None:
        path = getattr(world, kind) / name
        outside = path.rename(world.root / "outside")
        path.symlink_to(outside)

    return forge


def link_hard(world: World) -> None:
    other = world.root / "other.log"
    other.write_text("INFO: Build completed\n")
    (world.wheel / "build.log").unlink()
    os.link(other, world.wheel / "build.log")


def wrap(kind: str, source: str) -> Forge:
    """Put the signed record of one thing into the folder of another."""

    def forge(world: World) -> None:
        for name in (manifest.FILE, signing.ENVELOPE):
            shutil.copy(getattr(world, source) / name, getattr(world, kind))

    return forge


def say_otherwise(kind: str, who: str, edit: Callable[[dict[str, Any]], object]) -> Forge:
    """Let a trusted key sign another predicate about the right files."""

    def forge(world: World) -> None:
        value = read_payload(getattr(world, kind))
        edit(value["predicate"])
        world.sign_bytes(getattr(world, kind), json.dumps(value).encode(), who)

    return forge


def run_in_image(world: World) -> None:
    """Let the signed run be of the image, as an honest trainer does."""
    link = {"kind": "image", "digest": IDENTITY, "reference": TAG}
    change("run", lambda value: value.update(parent=link))(world)
    world.sign(world.run, "trainer")


def hide_image(edit: Callable[[dict[str, Any]], object]) -> Forge:
    return lambda world: (run_in_image(world), change("image", edit)(world))


def fail_report(world: World) -> None:
    """Sign a report of failed checks, as an honest checker does."""
    failed = {**CHECK, "result": "fail"}
    maker.change_json(world.report, lambda value: value.update(checks=[failed], verdict="fail"))
    world.sign(world.report, "checker")


def copy_report(world: World) -> None:
    """Put the report of one environment beside an image."""
    for path in (world.report, signing.locate(world.report)):
        shutil.copy(path, world.image)


def turn_report(world: World) -> None:
    fail_report(world)
    maker.change_json(world.report, lambda value: value.update(checks=[CHECK], verdict="pass"))


def change_package(world: World, *, record: bool) -> None:
    packages = next(world.environment.glob("venv/lib/*/site-packages"))
    (packages / "tensorflow.py").write_text("import os\n")
    if record:
        path = packages / "tensorflow_cpu-2.19.0.dist-info" / "RECORD"
        path.write_text(path.read_text().partition("\n")[2])


def move_tag(world: World) -> None:
    world.images[TAG] = replace(world.images.pop(IDENTITY), id=OTHER)


def relabel(world: World) -> None:
    world.images[IDENTITY] = replace(world.images[IDENTITY], labels={})


def change_step(world: World) -> None:
    """Change the loss of one step, which no other record repeats."""
    path = world.run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    index = next(index for index, line in enumerate(lines) if json.loads(line)["kind"] == "step")
    lines[index] = json.dumps({**json.loads(lines[index]), "loss": 0.001})
    path.write_text("\n".join(lines) + "\n")


def take_weights(world: World) -> None:
    """Take the checkpoint of another run, and say so in the manifest."""
    maker.change_checkpoint(world.run, lambda facts, content: facts["position"].update(note="other"))
    change("run", lambda value: value.update(weights_sha256="0" * 64))(world)


def add_picture(name: str) -> Forge:
    return change("run", lambda value: value["pictures"].update({name: ""}))


def add_checkpoint(world: World) -> None:
    for path in (world.run / "checkpoints").glob("step-*"):
        shutil.copy(path, path.with_name(f"step-00000099{path.suffix}"))
