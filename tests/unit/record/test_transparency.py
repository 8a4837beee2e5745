"""What `verify --log` says of statements, of a log that does not go on from what was seen, and of a witness's head."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.unit.record import maker, signed
from tests.unit.record.signed import World
from toolkit import keys, signing
from toolkit.cli import app
from toolkit.errors import IntegrityError
from toolkit.record import log, rebuild, transparency
from toolkit.record.rebuild import Comparison
from toolkit.record.wheel import read_record

ORIGIN = "example.org/builds"
MAY = {"owner": ["log"], "witness": ["witness"], "second": ["rebuild"]}


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def append(*targets: Path) -> Result:
    return run("log", "append", "log", *map(str, targets), "--key", "owner")


def cosign() -> Result:
    words = ("--key", "witness", "--out", "seen.note", "--name", "example.org/witness", "--trust", "policy.yaml")
    return run("log", "witness", "log", *words)


@pytest.fixture(scope="module")
def logged_once(signed_once: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a chain whose statements are in a log, with a policy that names its key and a witness's."""
    with pytest.MonkeyPatch.context() as patch:
        world = signed.copy(signed_once, tmp_path_factory.mktemp("logged") / "world", patch)
        log_chain(world)
        yield world


@pytest.fixture
def logged(logged_once: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return signed.copy(logged_once, tmp_path / "world", monkeypatch)


def log_chain(world: World) -> None:
    for name in (*MAY, "other"):
        keys.make(world.root / name)
    entries = yaml.safe_load((world.root / "policy.yaml").read_text())["signers"]
    entries += [{"name": name, "key": f"{name}.pub", "may": may} for name, may in MAY.items()]
    (world.root / "policy.yaml").write_text(yaml.safe_dump({"signers": entries}))
    assert run("log", "new", "log", "--key", "owner", "--origin", ORIGIN).exit_code == 0
    assert append(world.run).exit_code == 0


def verify(world: World, target: Path, *options: str) -> Result:
    return world.verify(target, "--log", "log", *options)


def state(world: World, who: str = "second") -> Path:
    """Sign a second build of the wheel."""
    same = Comparison(wheel=read_record(world.wheel).digest, level="R3", differences=(), inputs=(), seconds=1)
    return rebuild.sign(world.wheel, same, keys.load(who))


def test_a_chain_that_is_in_the_log_holds(logged: World) -> None:
    done = verify(logged, logged.run)
    assert done.exit_code == 0, done.output
    for said in ("owner signed 4 entries of", "seen for the first time", "smoke/attestation-smoke", "is entry 3"):
        assert said in done.output
    assert append(logged.image, logged.run).output.startswith("log: 1 added, 5 entries")
    again = verify(logged, logged.image, "--summary", "summary.json")
    assert again.exit_code == 0, again.output
    assert "goes on from the 4 entries that this machine has seen" in again.output
    assert "TOOLKIT_LOGGED" in json.loads(Path("summary.json").read_text())["predicate"]["verifiedLevels"]


def test_a_log_is_shown_with_its_entries(logged: World) -> None:
    done = run("log", "show", "log", "--trust", "policy.yaml", "--json")
    value = json.loads(done.output)
    assert (value["origin"], value["size"], value["signed"]) == (ORIGIN, 4, "owner")
    assert [entry["kind"] for entry in value["entries"]] == ["run", "environment", "smoke", "wheel"]
    assert value["entries"][3]["about"] == read_record(logged.wheel).digest
    assert "not checked" in run("log", "show", "log").output
    assert run("log", "show", "log", "--trust", "other.pub").exit_code == 8


def fork(world: World) -> None:
    """Let the log's own key sign another log of the same name, of as many entries and more."""
    shutil.rmtree("log")
    run("log", "new", "log", "--key", "owner", "--origin", ORIGIN)
    log.append(Path("log"), [b"another"], keys.load("owner"))
    append(world.run)


def roll_back(_: World) -> None:
    shutil.rmtree("log")
    shutil.copytree("older", "log")


def take_out(_: World) -> None:
    """Let the log's own key sign a log without its first entry."""
    entries = log.read(Path("log")).entries
    shutil.rmtree("log")
    run("log", "new", "log", "--key", "owner", "--origin", ORIGIN)
    log.append(Path("log"), [*entries[1:], entries[0], b"another"], keys.load("owner"))


def sign_by_other(_: World) -> None:
    entries = log.read(Path("log")).entries
    shutil.rmtree("log")
    run("log", "new", "log", "--key", "other", "--origin", ORIGIN)
    log.append(Path("log"), entries, keys.load("other"))


def rename(_: World) -> None:
    path = Path("log/checkpoint")
    path.write_text(path.read_text().replace(ORIGIN, "example.org/others"))


BREAKS: dict[str, tuple[Callable[[World], object], str]] = {
    "rolled back": (roll_back, "log.seen: rolled back: the log has 4 entries, and an earlier head 6"),
    "forked": (fork, "log.seen: forked: the first 6 entries"),
    "entry moved": (take_out, "log.seen: forked: the first 6 entries are not those of an earlier head"),
    "signed by another key": (sign_by_other, "log.head: the head of example.org/builds is signed by no key"),
    "renamed": (rename, "log.head: the head of example.org/others is signed by no key that may sign a log"),
    "head removed": (lambda _: Path("log/checkpoint").unlink(), "log.head: log has no log"),
    "byte of an entry flipped": (
        lambda _: signed.flip(Path("log/tile/entries/000.p/6")),
        "log.head: ",
    ),
    "tile removed": (lambda _: Path("log/tile/0/000.p/6").unlink(), "is missing, or no regular file"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_log_that_does_not_go_on_is_named(logged: World, name: str) -> None:
    shutil.copytree("log", "older")
    state(logged)
    assert append(logged.image, logged.wheel).output.startswith("log: 2 added, 6 entries")
    shutil.copytree("log", "right")
    assert verify(logged, logged.wheel).exit_code == 0
    change, why = BREAKS[name]
    change(logged)
    done = verify(logged, logged.wheel)
    assert done.exit_code == 8, done.output
    assert why in done.stderr
    # What does not hold is not remembered.
    shutil.rmtree("log", ignore_errors=True)
    shutil.move("right", "log")
    assert verify(logged, logged.wheel).exit_code == 0


def test_what_is_not_in_the_log_is_named(logged: World) -> None:
    state(logged)
    done = verify(logged, logged.wheel)
    assert done.exit_code == 8, done.output
    assert "is not in the log" in done.stderr
    assert "try: `toolkit log append` adds it, with the log's key" in done.stderr
    assert append(logged.wheel).exit_code == 0
    assert verify(logged, logged.wheel).exit_code == 0


def test_a_statement_that_was_removed_is_named(logged: World) -> None:
    path = state(logged)
    append(logged.wheel)
    kept = path.read_bytes()
    path.unlink()
    done = verify(logged, logged.wheel)
    assert done.exit_code == 8, done.output
    key = keys.load("second").public_key.keyid[:8]
    assert f"a rebuild statement by key {key}, entry 4, is in the log and not here" in done.stderr
    assert verify(logged, logged.run).exit_code == 8
    path.write_bytes(kept)
    assert verify(logged, logged.run).exit_code == 0


def test_a_newer_statement_of_the_same_key_replaces_the_older_one(logged: World) -> None:
    state(logged)
    append(logged.wheel)
    other = Comparison(
        wheel=read_record(logged.wheel).digest, level="R2", differences=(), inputs=("bash=5",), seconds=1
    )
    rebuild.sign(logged.wheel, other, keys.load("second"))
    append(logged.wheel)
    assert verify(logged, logged.wheel).exit_code == 0


def test_a_later_build_of_the_same_request_is_told(logged: World) -> None:
    entries = filter(None, map(transparency.parse, log.read(Path("log")).entries))
    found = next(entry for entry in entries if entry.kind == "wheel")
    later = replace(found, statement="sha256:" + "0" * 64, about="sha256:" + "1" * 64)
    log.append(Path("log"), [later.encode()], keys.load("owner"))
    done = verify(logged, logged.wheel)
    assert done.exit_code == 0, done.output
    assert "a later build of the same request is entry 4" in " ".join(done.output.split())


def test_entries_of_other_programs_are_passed_over(logged: World) -> None:
    log.append(Path("log"), [b"{}", b"\xff", b"[1]", b'{"kind": "wheel"}', b"null"], keys.load("owner"))
    assert verify(logged, logged.run).exit_code == 0
    assert "foreign" in run("log", "show", "log").output


def test_a_model_that_is_signed_for_others_is_logged_too(logged: World) -> None:
    keys.make(logged.root / "model", "p256")
    (logged.run / signing.ENVELOPE).unlink()
    assert run("sign", str(logged.run), "--key", "model", "--model-signing").exit_code == 0
    entries = yaml.safe_load((logged.root / "policy.yaml").read_text())["signers"]
    entries.append({"name": "model", "key": "model.pub", "may": ["run"]})
    (logged.root / "policy.yaml").write_text(yaml.safe_dump({"signers": entries}))
    assert "model.sig is not in the log" in verify(logged, logged.run).stderr
    assert append(logged.run).exit_code == 0
    assert verify(logged, logged.run).exit_code == 0


def test_a_witness_finds_what_this_machine_has_not_seen(logged: World) -> None:
    shutil.copytree("log", "older")
    append(logged.image)
    done = cosign()
    assert done.exit_code == 0, done.output
    assert "5 entries of example.org/builds cosigned, key example.org/witness+" in done.output
    held = verify(logged, logged.run, "--witness", "seen.note")
    assert held.exit_code == 0, held.output
    assert "witness saw 5 entries on 20" in held.output
    shutil.rmtree(signed.STATE / transparency.SEEN)  # another machine
    shutil.rmtree("log")
    shutil.copytree("older", "log")
    rolled = verify(logged, logged.run, "--witness", "seen.note")
    assert rolled.exit_code == 8, rolled.output
    assert "log.witness: rolled back: the log has 4 entries, and an earlier head 5; witness saw" in rolled.stderr
    assert verify(logged, logged.run).exit_code == 0  # this is what a machine without a memory cannot see


def test_a_fork_that_a_witness_shows_is_not_remembered(logged: World) -> None:
    shutil.copytree("log", "right")
    assert cosign().exit_code == 0
    fork(logged)
    shutil.rmtree(signed.STATE / transparency.SEEN)  # another machine
    done = verify(logged, logged.wheel, "--witness", "seen.note")
    assert (done.exit_code, "log.witness: forked" in done.stderr) == (8, True)
    assert cosign().exit_code == 8
    shutil.rmtree("log")
    shutil.move("right", "log")
    done = verify(logged, logged.wheel, "--witness", "seen.note")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("change", [{"signers": [1]}, {"about": []}, {"kind": None}, {"request": {}}])
def test_an_entry_with_a_field_of_another_kind_is_of_another_program(change: dict[str, Any]) -> None:
    entry = transparency.Entry(kind="rebuild", statement="a", about="b", request="", signers=("c",))
    assert transparency.parse(entry.encode()) == entry
    value = {**json.loads(entry.encode()), **change}
    assert transparency.parse(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()) is None


def test_an_envelope_that_is_no_ascii_is_named(tmp_path: Path) -> None:
    place = tmp_path / "attestation-rebuild-00000000.dsse.json"
    place.write_text(json.dumps({"payload": "é", "payloadType": "x", "signatures": []}))
    with pytest.raises(IntegrityError):
        transparency.describe(place, "rebuild")


def test_a_folder_in_the_place_of_the_cosigned_head_is_refused(logged: World) -> None:
    Path("seen.note").mkdir()
    done = cosign()
    assert (done.exit_code, "seen.note is no file" in done.stderr) == (2, True)


def test_a_witness_cosigns_only_what_goes_on(logged: World) -> None:
    shutil.copytree("log", "older")
    append(logged.image)
    assert cosign().exit_code == 0
    before = Path("seen.note").read_bytes()
    shutil.rmtree("log")
    shutil.copytree("older", "log")
    for memory in (True, False):
        if not memory:
            shutil.rmtree(signed.STATE / transparency.SEEN)
        done = cosign()
        assert done.exit_code == 8, done.output
        assert "rolled back" in done.stderr
        assert Path("seen.note").read_bytes() == before


WITNESSES: dict[str, tuple[Callable[[], object], str]] = {
    "not cosigned": (lambda: shutil.copy("log/checkpoint", "seen.note"), "has no cosignature of another key"),
    "cosigned by another key": (
        lambda: Path("seen.note").write_text(
            run("log", "witness", "log", "--key", "other", "--out", "other.note", "--name", "w", "--trust", "owner.pub")
            and Path("other.note").read_text()
        ),
        "has no cosignature of another key",
    ),
    "of another head": (
        lambda: Path("seen.note").write_text(Path("seen.note").read_text().replace("\n4\n", "\n5\n")),
        "the signature of the head is not that of owner",
    ),
    "missing": (lambda: Path("seen.note").unlink(), "No such file"),
    "cut": (lambda: Path("seen.note").write_bytes(Path("seen.note").read_bytes()[:-3]), "is no checkpoint"),
}


@pytest.mark.parametrize("name", WITNESSES)
def test_a_head_that_no_witness_cosigned_is_refused(logged: World, name: str) -> None:
    assert cosign().exit_code == 0
    assert verify(logged, logged.wheel, "--witness", "seen.note").exit_code == 0
    change, why = WITNESSES[name]
    change()
    done = verify(logged, logged.wheel, "--witness", "seen.note")
    assert done.exit_code == 8, done.output
    assert f"log.witness: {why}" in done.stderr or why in done.stderr


def test_what_was_seen_must_be_readable(logged: World) -> None:
    assert verify(logged, logged.wheel).exit_code == 0
    (place,) = (each for each in (signed.STATE / transparency.SEEN).iterdir() if each.name != "lock")
    place.write_text("x")
    done = verify(logged, logged.wheel)
    assert done.exit_code == 8
    assert "the head that this machine has seen cannot be read" in done.stderr


def test_options_that_do_not_go_together_are_refused(logged: World) -> None:
    assert run("verify", str(logged.wheel), "--log", "log").exit_code == 2
    assert logged.verify(logged.wheel, "--witness", "seen.note").exit_code == 2
    assert run("log", "witness", "log", "--key", "witness", "--out", "x", "--name", "w").exit_code == 2


def test_what_is_not_signed_cannot_be_logged(logged: World) -> None:
    (logged.wheel / signing.ENVELOPE).unlink()
    done = append(logged.wheel)
    assert done.exit_code == 8, done.output
    assert "is not signed" in done.stderr
    maker.change_json(signing.locate(logged.image), lambda value: value.update(payload="!"))
    assert append(logged.image).exit_code == 8
