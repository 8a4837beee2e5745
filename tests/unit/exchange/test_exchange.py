"""`push` and `build-wheel --from` with an honest registry."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.command import Run
from tests.makers.publication import PLAN, TABLE, finish_build, publish
from tests.server import QuietHandler
from tests.unit.exchange import oci
from tests.unit.exchange.world import WHEEL, World, ask_password, log_in, read
from tests.unit.records.maker import change_json
from toolkit.base import digest, keys, manifest, signing
from toolkit.base.console import Console
from toolkit.base.errors import CheckError, IntegrityError, PreflightError, RegistryError, UsageError
from toolkit.cli import app
from toolkit.engine import EnvironmentPlan, oci_manifest
from toolkit.engine.host import HostEngine
from toolkit.engine.registry import ATTEMPTS, parse
from toolkit.records import attestation, find, transfer
from toolkit.versions import lock
from toolkit.versions.rules import choose_versions
from toolkit.versions.settings import resolve
from toolkit.wheel import build_plan, wheel_folder
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.wheel_folder import FinishedWheel


def test_a_pushed_wheel_is_an_artifact_with_a_layer_for_each_file(world: World) -> None:
    value = world.registry.manifest
    assert next(iter(world.registry.tags)) == f"plan-{PLAN.digest.removeprefix('sha256:')}"
    assert value["artifactType"] == transfer.KIND
    assert value["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    kinds = {layer["annotations"][oci_manifest.TITLE]: layer["mediaType"] for layer in value["layers"]}
    assert kinds.keys() == read(world.made).keys()
    assert kinds["sbom.cdx.json"] == "application/vnd.cyclonedx+json"
    assert kinds["provenance.intoto.json"] == "application/vnd.in-toto+json"
    assert kinds[signing.ENVELOPE] == "application/vnd.dsse.envelope.v1+json"
    assert kinds["build.log"] == "text/plain"


def test_a_pulled_wheel_is_the_pushed_one(world: World) -> None:
    found = world.pull()
    assert found is not None
    assert found.folder == world.dist / PLAN.name
    assert read(found.folder) == read(world.made)
    assert [path.name for path in world.dist.iterdir()] == [PLAN.name]
    assert oct(found.folder.stat().st_mode & 0o777) == "0o755"
    assert wheel_folder.find(PLAN, world.dist) is not None


def test_another_wheel_of_the_plan_is_replaced_on_purpose_only(world: World) -> None:
    other = world.root / "other"
    publish(finish_build(world.root / "staging-2"), other)
    with pytest.raises(CheckError, match="has another wheel of this plan"):
        world.push(other)
    world.push(other, replace=True)
    with pytest.raises(IntegrityError, match="--trust") as caught:
        world.pull()
    assert caught.value.why == "it has no signature"
    assert world.pull(trust=None) is not None


def test_a_wheel_that_nobody_signed_is_verified_by_its_record(world: World) -> None:
    change_json(world.made / manifest.FILE, lambda value: value["facts"]["inspection"].update(build={}))
    wheel_folder.write_sums(world.made)
    for name in (manifest.FILE, wheel_folder.SUMS):
        world.registry.put(name, (world.made / name).read_bytes())
    with pytest.raises(CheckError, match=r"findings do(es)? not hold"):
        world.pull(trust=None)
    assert list(world.dist.iterdir()) == []
    world.forget()
    signing.discard(world.made)
    with pytest.raises(CheckError, match=r"findings do(es)? not hold"):
        world.push(replace=True)
    assert world.registry.asked == []


@pytest.mark.parametrize("breaks", [1, 2])
def test_an_upload_that_breaks_is_tried_once_more(world: World, breaks: int) -> None:
    left = [None] * breaks

    def cut(request: QuietHandler) -> bool:
        if request.command != "PUT" or not left:
            return False
        left.pop()
        request.close_connection = True
        return True

    world.registry.blobs.clear()
    world.registry.fault = cut
    with nullcontext() if breaks == 1 else pytest.raises(RegistryError, match="failed"):
        world.push()
    assert left == []


def test_a_changed_wheel_is_not_pushed(world: World) -> None:
    (world.made / "build.log").unlink()
    world.forget()
    with pytest.raises(IntegrityError, match=r"build\.log"):
        world.push()
    wheel_folder.write_sums(world.made)
    with pytest.raises(IntegrityError) as caught:
        world.push(replace=True)
    assert "build.log was signed and is not here" in caught.value.why
    assert world.registry.asked == []


def cut_at(world: World, *places: int) -> None:
    """Cut the connection at these bytes of the log, one after the other."""
    left, content = list(places), world.registry.blobs[world.registry.find("build.log")[1]]

    def cut(request: QuietHandler) -> bool:
        if left:
            oci.send(request, content, upto=left.pop(0))
            return True
        return False

    world.lie(cut, about="build.log")


def test_a_download_goes_on_where_it_was_cut(world: World) -> None:
    places = (1_100_000, 2_200_000, 2_200_001, 2_200_002)
    cut_at(world, *places)
    assert world.pull() is not None
    assert [each[2] for each in world.list_asked("build.log")] == [None, *(f"bytes={at}-" for at in places)]


def test_a_download_that_does_not_go_on_is_given_up(world: World) -> None:
    cut_at(world, 100, 101, 102, 103)
    with pytest.raises(RegistryError, match="broke off"):
        world.pull()
    assert len(world.list_asked("build.log")) == ATTEMPTS


def test_a_full_disk_is_told_before_the_download(world: World) -> None:
    place, _ = world.registry.find(WHEEL)
    world.registry.change(lambda value: value["layers"][place].update(size=10**18))
    with pytest.raises(PreflightError, match="has room for"):
        world.pull()


def test_nothing_is_written_through_a_link(world: World) -> None:
    victim, kept = world.root / "victim", world.root / "state" / f"wheel-{PLAN.name}"
    victim.write_text("kept")
    kept.mkdir(parents=True)
    part = kept / f"{digest.shorten(world.registry.find(WHEEL)[1])}.part"
    for link in (part, kept / "pull.lock"):
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
        with pytest.raises(PreflightError, match="cannot write"):
            world.pull()
        link.unlink()
    assert victim.read_text() == "kept"


@pytest.mark.parametrize(
    "text", ["registry", "https://user:canary-word@host/x", "host/X", "http://192.0.2.1/x", "ftp://host/x", "host/"]
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert "canary" not in str(caught.value)


WORDS = ("build-wheel", "--trust", "builder.pub")


def test_with_a_lock_the_command_downloads_without_an_engine_and_tells_no_secret(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(tmp_path, world.registry.address)
    world.registry.fault = ask_password
    words, key = (*WORDS, "--from", world.registry.reference, "--verbose", "--json"), world.root / "builder"
    run, docker, pins = Run(world.root), str(tmp_path / "docker"), world.root / lock.FILE
    base = {
        "base_image": TABLE.default.base_image,
        "base_digest": oci.digest(b"base"),
        "apt_snapshot": "20261121T000000Z",
    }
    lock.write(pins, lock.collect(choose_versions(TABLE), TABLE, **base))
    absent = run(*words, DOCKER_CONFIG=docker)
    assert absent.returncode == 5, "it would have been built"
    assert "team/tensorflow has no plan-" in absent.stderr
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    asked = build_plan.plan_wheel(resolve({}), BuildOptions(), lock_file=pins).plan
    assert asked.floating == ()
    publish(finish_build(world.root / "staging-2"), world.root / "own", asked)
    push = run("push", "own", world.registry.reference, DOCKER_CONFIG=docker)
    unsigned = run(*words, DOCKER_CONFIG=docker)
    assert (push.returncode, unsigned.returncode) == (0, 8), push.stderr + unsigned.stderr
    assert "nobody signed it" in push.stderr
    assert "it has no signature" in unsigned.stderr
    assert not (world.root / "dist").exists() or list(world.dist.iterdir()) == []
    attestation.sign(find(str(world.root / "own"), world.root), keys.load(str(key)))
    signed = run("push", "own", world.registry.reference, DOCKER_CONFIG=docker)
    assert (signed.returncode, "only `toolkit verify` reads its code" in signed.stderr) == (0, True), signed.stderr
    done = run(*words, "--sign", "builder", DOCKER_CONFIG=docker)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["pulled"], said["plan"], said["folder"]) == (True, asked.digest, f"dist/{asked.name}")
    assert re.search(r"builder\.pub \(key [0-9a-f]{8}\) signed 10 digests", done.stderr)
    assert read(world.root / said["folder"]) == read(world.root / "own")
    again = run("build-wheel", "--json")
    assert json.loads(again.stdout) == {**said, "pulled": False}, "it needs no engine either"
    assert json.loads(run("build-wheel", "--dry-run", "--json").stdout)["commands"] == [], "nothing would run"
    assert run.started == []
    secrets = [b"canary-word", b"dXNlcjpjYW5hcnktd29yZA", key.read_bytes().splitlines()[1]]
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - {key, tmp_path / "docker" / "config.json"}
    assert [path for path in written if any(secret in path.read_bytes() for secret in secrets)] == []
    assert not any(
        secret.decode() in each.stdout + each.stderr for each in (push, unsigned, done) for secret in secrets
    )


@pytest.mark.parametrize("command", ["build-wheel", "up"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "host/x"), "--from needs --trust or --allow-unsigned"),
        (("--from", "host/x", "--trust", "builder.pub", "--allow-unsigned"), "and not both"),
        (("--trust", "builder.pub", "--allow-unsigned"), "are for --from"),
        (("--allow-unsigned",), "are for --from"),
        (("--from", "host/x", "--trust", "build.log"), "cannot read the key build.log"),
        (("--from", "http://host/x", "--allow-unsigned"), "plain http to host"),
    ],
)
def test_wrong_options_of_the_commands(
    world: World, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str, command: str
) -> None:
    monkeypatch.chdir(world.root)
    done = CliRunner().invoke(app, [command, *words])
    assert done.exit_code == 2, done.output
    assert message in done.output


def test_a_wheel_that_another_command_put_there_meanwhile_must_be_signed_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = transfer.pull

    def wait_and_pull(*given: Any, **options: Any) -> FinishedWheel | None:
        world.dist.mkdir()
        publish(finish_build(world.root / "staging-2"), world.dist / PLAN.name)
        return pull(*given, **options)

    monkeypatch.setattr(transfer, "pull", wait_and_pull)
    monkeypatch.setattr(build_plan, "plan_wheel", lambda *_given, **_options: SimpleNamespace(plan=PLAN))
    monkeypatch.chdir(world.root)
    done = CliRunner().invoke(app, [*WORDS, "--from", world.registry.reference])
    assert done.exit_code == 8, done.output


def test_up_installs_the_wheel_of_the_registry(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the environment, which is made of the network's packages."""
    wheels: list[Path | None] = []

    def prepare(_engine: HostEngine, plan: EnvironmentPlan, _console: Console) -> None:
        wheels.append(plan.spec.wheel)
        raise PreflightError("no network")

    monkeypatch.setattr(HostEngine, "prepare", prepare)
    monkeypatch.setattr(build_plan, "plan_wheel", lambda *_given, **_options: SimpleNamespace(plan=PLAN))
    monkeypatch.chdir(world.root)
    words = ("up", "--from", world.registry.reference, "--engine", "host", "--trust")
    for trusted, code, asks in (
        ("stranger.pub", 8, True),
        ("builder.pub", 4, True),
        ("builder.pub", 4, False),  # what is in dist is not asked for again
        ("stranger.pub", 8, False),
    ):
        world.forget()
        done = CliRunner().invoke(app, [*words, trusted])
        assert (done.exit_code, bool(world.registry.asked)) == (code, asks), done.output
    (archive,) = set(wheels)
    assert archive is not None
    assert (len(wheels), archive.parent.resolve()) == (2, world.dist / PLAN.name)
    assert read(archive.parent) == read(world.made)
