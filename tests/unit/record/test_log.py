"""The log's folder: its layout, what a kill leaves at each moment, and what is not accepted."""

import hashlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner

from tests.unit.record.test_proofs import mth
from toolkit import files
from toolkit.errors import IntegrityError, UsageError
from toolkit.record import head, log
from toolkit.signing import Signatory

ORIGIN = "example.org/builds"
SIGNER = CryptoSigner.generate_ed25519()
OWNER = Signatory(name="owner", key=SIGNER.public_key, may=("log",))
DATA = [f"entry {number}".encode() for number in range(700)]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of 300 entries: one full tile, and parts of two."""
    folder = tmp_path_factory.mktemp("log") / "full"
    log.create(folder, ORIGIN, SIGNER)
    log.append(folder, DATA[:255], SIGNER)
    log.append(folder, DATA[255:300], SIGNER)
    return folder


@pytest.fixture
def folder(full: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(full, tmp_path / "log"))


def test_the_folder_is_that_of_tlog_tiles(folder: Path) -> None:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    tiles = ["tile/0/000", "tile/0/001.p/44", "tile/1/000.p/1", "tile/entries/000", "tile/entries/001.p/44"]
    assert names == ["checkpoint", "lock", *tiles]
    leaves = [hashlib.sha256(b"\0" + entry).digest() for entry in DATA[:300]]
    assert (folder / "tile/0/000").read_bytes() == b"".join(leaves[:256])
    assert (folder / "tile/0/001.p/44").read_bytes() == b"".join(leaves[256:])
    assert (folder / "tile/1/000.p/1").read_bytes() == mth(DATA[:256])
    bundle = b"".join(len(entry).to_bytes(2) + entry for entry in DATA[256:300])
    assert (folder / "tile/entries/001.p/44").read_bytes() == bundle
    found = head.parse((folder / "checkpoint").read_bytes()).head
    assert (found.origin, found.size, found.root) == (ORIGIN, 300, mth(DATA[:300]))


@pytest.mark.parametrize(
    ("number", "path"),
    [(0, "tile/0/000"), (999, "tile/0/999"), (1000, "tile/0/x001/000"), (1234067, "tile/0/x001/x234/067")],
)
def test_a_tile_is_named_as_the_specification_says(number: int, path: str) -> None:
    assert log._name(0, number, 256) == path
    assert log._name(0, number, 5) == f"{path}.p/5"


def test_parts_of_full_tiles_go_and_what_is_there_stays(folder: Path) -> None:
    before = (folder / "tile/0/000").read_bytes()
    known, added = log.append(folder, DATA[:700], SIGNER)
    assert (known.head.size, added) == (700, 400)
    assert (folder / "tile/0/000").read_bytes() == before
    assert not list(folder.rglob("001.p"))
    assert log.read(folder) == known
    assert log.append(folder, DATA[:700], SIGNER)[1] == 0
    assert log.read(folder).note == known.note


def die_at(moment: int, place: str) -> Callable[..., None]:
    """Return a writer that ends the process before a write, or in it, as the real one does with half of a file."""
    write, count = files.write_atomically, iter(range(1000))

    def dying(path: Path, data: bytes) -> None:
        now = next(count) == moment
        if now and place == "before":
            os._exit(9)
        if now and place == "within":
            (path.parent).mkdir(parents=True, exist_ok=True)
            (path.parent / f".{path.name}.part").write_bytes(data[: len(data) // 2])
            os._exit(9)
        write(path, data)

    return dying


@pytest.mark.parametrize(("size", "more", "writes"), [(200, 100, 6), (255, 1, 4)])
def test_a_kill_at_any_moment_leaves_a_log_that_holds(tmp_path: Path, size: int, more: int, writes: int) -> None:
    made = tmp_path / "made"
    log.create(made, ORIGIN, SIGNER)
    log.append(made, DATA[:size], SIGNER)
    ends = []
    moments = [*((number, "before") for number in range(writes + 1)), (0, "within"), (writes - 1, "within")]
    for number, place in moments:
        folder = shutil.copytree(made, tmp_path / f"{number}-{place}")
        child = os.fork()
        if not child:
            files.write_atomically = die_at(number, place)
            log.append(folder, DATA[size : size + more], SIGNER)
            os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        known = log.read(folder)
        assert known.head.size == (size if ends[-1] else size + more)
        # Another entry may come next: what the killed command has written of its own is not taken.
        after, _ = log.append(folder, [b"another", *DATA[size : size + more]], SIGNER)
        assert log.read(folder) == after
        assert after.head.size == size + more + 1
        assert after.entries[: known.head.size] == known.entries
        assert after.head.root == mth(after.entries)
    assert ends == [*[9] * writes, 0, 9, 9]


def test_two_commands_append_one_after_the_other(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: log.append(folder, [DATA[number]], SIGNER), range(300, 316)))
    known = log.read(folder)
    assert sorted(known.entries[300:]) == DATA[300:316]
    assert known.head.root == mth(known.entries)


def change(name: str, edit: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


def flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "tile cut": change("tile/0/000", lambda content: content[:-32]),
    "part cut": change("tile/0/001.p/44", lambda content: content[:-1]),
    "part longer": change("tile/0/001.p/44", lambda content: content + bytes(32)),
    "byte of a tile flipped": change("tile/0/000", flip),
    "byte of a higher tile flipped": change("tile/1/000.p/1", flip),
    "byte of an entry flipped": change("tile/entries/000", flip),
    "entries cut": change("tile/entries/001.p/44", lambda content: content[:-1]),
    "entries longer": change("tile/entries/001.p/44", lambda content: content + b"\0\1x"),
    "tile removed": lambda folder: (folder / "tile/0/000").unlink(),
    "entries removed": lambda folder: (folder / "tile/entries/000").unlink(),
    "tile a folder": lambda folder: ((folder / "tile/0/000").unlink(), (folder / "tile/0/000").mkdir()),
    "size in the head": change("checkpoint", lambda content: content.replace(b"\n300\n", b"\n299\n")),
    "head cut": change("checkpoint", lambda content: content[:-20]),
    "head empty": change("checkpoint", lambda _: b""),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_log_is_read_and_continued_by_nobody(folder: Path, name: str) -> None:
    assert log.read(folder).head.size == 300
    DAMAGES[name](folder)
    with pytest.raises(IntegrityError):
        log.read(folder)
    with pytest.raises(IntegrityError):
        log.append(folder, [b"next"], SIGNER)


def test_a_log_is_continued_by_its_key_alone(folder: Path) -> None:
    with pytest.raises(IntegrityError, match="signed by no key that may sign a log"):
        log.append(folder, [b"next"], CryptoSigner.generate_ed25519())
    assert log.read(folder).head.size == 300


def test_a_log_is_made_once(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has a log"):
        log.create(folder, ORIGIN, SIGNER)
    with pytest.raises(UsageError, match="has no log"):
        log.append(tmp_path / "none", [b"x"], SIGNER)
    with pytest.raises(UsageError, match="has no log"):
        log.read(tmp_path / "none")
    with pytest.raises(UsageError, match="an entry has no bytes, or more"):
        log.append(folder, [bytes(1 << 16)], SIGNER)
    assert log.append(folder, [bytes((1 << 16) - 1)], SIGNER)[1] == 1
    assert log.read(folder).head.size == 301


def test_a_copy_that_cannot_be_written_is_read(folder: Path) -> None:
    (folder / "lock").unlink()
    assert head.require_signer(log.read(folder).note, [OWNER]) == OWNER
    assert not (folder / "lock").exists()
