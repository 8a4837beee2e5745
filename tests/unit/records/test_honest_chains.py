"""Chains that nobody forged: `verify` must not complain."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.makers.publication import finish_build, publish
from tests.unit.records import maker
from tests.unit.records.forging import run_in_image
from tests.unit.records.signed import IMAGE, SMOKE, TAG, World, flip
from toolkit.base import manifest, signing
from toolkit.cli import app, install
from toolkit.records import attestation, compare, find, own_environment
from toolkit.wheel import wheel_folder

Change = Callable[[World], object]
WHL = "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"


def move(kind: str) -> Change:
    return lambda world: getattr(world, kind).rename(getattr(world, kind).with_name(f"{getattr(world, kind).name}-2"))


def resume(world: World) -> None:
    """Let the run go on elsewhere, as its manifest says."""
    maker.change_checkpoint(
        world.run, lambda facts, content: facts["position"]["environment"].update(devices=["another processor"])
    )
    maker.change_json(world.run / "manifest.json", lambda value: value.update(resumed_after=[22]))
    world.sign(world.run, "trainer")


def sign_too(kind: str, who: str) -> Change:
    def sign(world: World) -> None:
        record = getattr(world, kind)
        signing.write(record, find(str(record), Path()).make_statement(), world.signers[who], replace=False)
        assert len(json.loads(signing.locate(record).read_text())["signatures"]) == 2

    return sign


def drop_older_checkpoints(world: World) -> None:
    for path in (world.run / "checkpoints").glob("step-00000022.*"):
        path.unlink()


def add_another_build(world: World) -> None:
    """Put a signed wheel of the same name beside, as another set of options makes it."""
    staging, other = finish_build(world.root / "again"), world.wheel.with_name("another")
    path = wheel_folder.find_wheel(staging)
    with zipfile.ZipFile(path) as archive:
        members = [(item, archive.read(item)) for item in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for item, content in members:
            item.date_time = (2001, 1, 1, 0, 0, 0)
            archive.writestr(item, content)
    wheel_folder.write_sums(staging)
    publish(staging, other)
    world.sign(other, "stranger")
    shutil.rmtree(world.wheel)


def add_unsigned_report(world: World) -> None:
    shutil.copy(world.report, world.environment / "smoke-ba9876543210.json")


def link_hard(world: World) -> None:
    """Copy the folder as `cp --archive --link` does, in place of the first one."""
    first = world.wheel.rename(world.root / "backup")
    shutil.copytree(first, world.wheel, copy_function=os.link)


def write_otherwise(world: World) -> None:
    path = signing.locate(world.wheel)
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items()))))


CHAINS: dict[str, tuple[str, Change, tuple[str, ...]]] = {
    "a run": ("run", lambda world: None, ("policy.yaml",)),
    "a wheel's file": ("archive", lambda world: None, ("policy.yaml",)),
    "an image": (str(IMAGE), lambda world: None, ("policy.yaml",)),
    "an image by name": (TAG, lambda world: None, ("policy.yaml",)),
    "an image that is gone": (str(IMAGE), lambda world: world.images.clear(), ("policy.yaml",)),
    "one key for all": ("wheel", lambda world: None, ("builder.pub",)),
    "a policy and a key": ("wheel", sign_too("wheel", "stranger"), ("policy.yaml", "stranger.pub")),
    "two signers": ("run", sign_too("run", "builder"), ("policy.yaml",)),
    "a moved wheel": ("run", move("wheel"), ("policy.yaml",)),
    "a run in an image": ("run", run_in_image, ("policy.yaml",)),
    "a resumed run": ("run", resume, ("policy.yaml",)),
    "older checkpoints removed": ("run", drop_older_checkpoints, ("policy.yaml",)),
    "a run without its wheel": ("run", lambda world: shutil.rmtree(world.wheel), ("policy.yaml",)),
    "a strange wheel of the same name": ("run", add_another_build, ("policy.yaml",)),
    "a report that nobody signed": ("environment", add_unsigned_report, ("policy.yaml",)),
    "hard links": ("wheel", link_hard, ("policy.yaml",)),
    "an envelope in another order": ("wheel", write_otherwise, ("policy.yaml",)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_an_honest_chain_holds(world: World, name: str) -> None:
    target, change, trust = CHAINS[name]
    change(world)
    done = world.verify(getattr(world, target, target), trust=trust)
    assert done.exit_code == 0, done.output


def test_a_signature_that_nobody_checks_is_mentioned(world: World) -> None:
    done = world.verify(world.wheel, "--json", trust=())
    value = json.loads(done.stdout)
    key = world.signers["builder"].public_key.keyid
    assert value["signature"] == f"by key {key[:8]}, not checked (`toolkit verify --trust` checks whose it is)"


def test_all_links_of_a_chain_are_checked(world: World) -> None:
    done = world.verify(world.run, "--json", "--strict")
    value = json.loads(done.stdout)
    found = [item["id"] for item in value["findings"] if item["id"].endswith("signature")]
    assert done.exit_code == 0, done.output
    assert found == ["signature", "environment.signature", "smoke.signature", "wheel.signature"]


def test_what_changes_while_it_is_verified_is_not_signed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    signing.discard(world.run)
    curves = world.run / "curves.png"
    drawn = curves.read_bytes()
    curves.write_bytes(b"forged")
    monkeypatch.setattr(attestation, "compare", lambda artifact: [compare(artifact), curves.write_bytes(drawn)][0])
    done = CliRunner().invoke(app, ["sign", str(world.run), "--key", write_key(world)])
    assert done.exit_code == 8, done.output
    assert "has changed while it was verified" in done.output
    assert not signing.locate(world.run).exists()


def write_key(world: World, who: str = "stranger") -> str:
    path = world.root / who
    path.touch(0o600)
    path.write_bytes(world.signers[who].private_bytes)
    return str(path)


def test_whoever_signs_a_run_hears_what_else_needs_a_signature(world: World) -> None:
    for record in (world.run, world.environment):
        signing.discard(record)
    key = write_key(world, "builder")
    for record in (world.run, world.environment):
        done = CliRunner().invoke(app, ["sign", str(record), "--key", key])
        assert done.exit_code == 0, done.output
        behind = f"  toolkit sign {world.environment.relative_to(world.root)} --key {key}"
        assert (behind in done.output) == (record == world.run), done.output
    assert world.verify(world.run, trust=("builder.pub", "checker.pub")).exit_code == 0


def test_an_image_without_its_record_is_an_exception_that_the_result_names(world: World) -> None:
    run_in_image(world)
    shutil.rmtree(world.image)
    done = world.verify(world.run)
    assert done.exit_code == 0, done.output
    assert "verified, except the image behind it, which cannot be checked here: " in done.output
    strict = world.verify(world.run, "--strict")
    assert strict.exit_code == 7, strict.output
    assert "fetch its record, a folder of `.toolkit` there, too" in strict.output


def hide_behind_an_environment(world: World) -> None:
    record = world.wheel / own_environment.FOLDER
    record.mkdir()
    value = {"schema": 1, "kind": "environment", "digest": "sha256:0", "parent": None, "facts": {"engine": "install"}}
    (record / manifest.FILE).write_text(json.dumps(value))


WHEELS: dict[str, tuple[Change, str]] = {
    "signed": (lambda world: None, ""),
    "changed": (lambda world: flip(world.archive), f"{WHL} is not what was signed"),
    "unsigned": (lambda world: signing.discard(world.wheel), "the wheel is not signed"),
    "beside a record of something else": (hide_behind_an_environment, "is an environment of `toolkit install`"),
}


@pytest.mark.parametrize("name", WHEELS)
def test_install_takes_a_named_wheel_by_its_signature(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, wrong = WHEELS[name]
    change(world)
    taken: list[str] = []
    monkeypatch.setattr(install, "_install", lambda _session, _place, _into, named, **_others: taken.append(named))
    done = CliRunner().invoke(app, ["install", "--into", "env", "--wheel", str(world.wheel), "--trust", "policy.yaml"])
    assert (done.exit_code, taken) == ((8, []) if wrong else (0, [str(world.wheel)])), done.output
    assert wrong in done.output


def test_a_wheel_alone_is_verified_in_its_folder(world: World) -> None:
    alone = Path(shutil.copy(world.archive, world.root))
    done = world.verify(alone)
    assert done.exit_code == 8, done.output
    assert "give the folder that it was published in, such as dist/NAME" in done.output


def test_both_sides_see_the_same_id_of_a_key(world: World) -> None:
    made = CliRunner().invoke(app, ["key", "new", "mine"]).stdout.split()
    signing.discard(world.wheel)
    assert CliRunner().invoke(app, ["sign", str(world.wheel), "--key", "mine"]).exit_code == 0
    done = world.verify(world.wheel, trust=("mine.pub",))
    assert f"mine.pub, key {made[-1]}\n" in done.stderr
    assert f"(key {made[-1][:8]}) signed" in done.stderr


def test_what_does_not_hold_is_not_signed(world: World) -> None:
    signing.discard(world.run)
    path = world.run / "metrics.csv"
    path.write_text(path.read_text().replace("\n2,", "\n3,"))
    done = CliRunner().invoke(app, ["sign", str(world.run), "--key", write_key(world)])
    assert done.exit_code == 7, done.output
    assert "only what holds is signed: `toolkit reproduce` runs it again" in done.output
    assert not signing.locate(world.run).exists()


def test_what_has_changed_is_signed_again_only_when_asked(world: World) -> None:
    (world.run / "curves.png").write_bytes(b"drawn again")
    words = ["sign", str(world.run), "--key", write_key(world, "trainer")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 8, done.output
    assert CliRunner().invoke(app, [*words, "--replace"]).exit_code == 0
    assert world.verify(world.run).exit_code == 0
    again = CliRunner().invoke(app, words)
    assert "signed before" in again.output


def test_a_report_is_signed_with_what_it_is_about(world: World) -> None:
    other = world.root / "adopted" / SMOKE
    other.parent.mkdir()
    shutil.copy(world.report, other)
    done = CliRunner().invoke(app, ["sign", str(other), "--key", write_key(world)])
    assert done.exit_code == 8, done.output
    assert "has no manifest of what was checked" in done.output


def test_an_image_that_was_not_built_here_is_not_signed(world: World) -> None:
    shutil.rmtree(world.image)
    done = CliRunner().invoke(app, ["sign", TAG, "--key", write_key(world)])
    assert done.exit_code == 8, done.output
    assert f"is of the image {TAG}" in done.output
