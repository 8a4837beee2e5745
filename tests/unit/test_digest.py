import os
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkit.base import digest

SIZE = 2 << 20


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(digest, "_CLOCK_NS", -1)  # even a file that changed a moment ago is remembered
    path = tmp_path / "file"
    path.write_bytes(b"a" * SIZE)
    os.utime(path, ns=(10**18, 10**18))
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []
    real = digest.read_file
    monkeypatch.setattr(digest, "read_file", lambda path: found.append(path) or real(path))
    return found


def ask(state: Path, file: Path) -> str:
    with digest.caching(state):
        return digest.digest_file(file)


def replace_content(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(b"b")
    os.utime(file, ns=(10**18, 10**18))


def test_a_file_is_read_once_a_process_and_not_again_in_the_next(state: Path, file: Path, reads: list[Path]) -> None:
    with digest.caching(state):
        assert len({digest.digest_file(file) for _ in range(5)}) == 1
    assert ask(state, file) == digest.digest_file(file)
    assert reads == [file, file], "once to remember, and once without"


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.utime(path, ns=(10**18, 10**18 + 1)),
        lambda path: os.truncate(path, SIZE - 1),
        lambda path: path.replace(path.with_name("copy")) and path.write_bytes(b"a" * SIZE),
        replace_content,
    ],
)
def test_a_file_that_may_have_changed_is_read_again(
    state: Path, file: Path, reads: list[Path], change: Callable[[Path], object]
) -> None:
    ask(state, file)
    change(file)
    found = ask(state, file)
    assert len(reads) == 2
    assert found == digest.digest_bytes(file.read_bytes())


def test_a_file_that_was_written_a_moment_ago_is_not_remembered(
    state: Path, file: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time of modification may be an old one that an archive named."""
    monkeypatch.setattr(digest, "_CLOCK_NS", 3600 * 10**9)
    ask(state, file)
    ask(state, file)
    assert len(reads) == 2


def test_what_another_user_remembered_is_not_believed(
    state: Path, file: Path, reads: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone or an archive can bring a memory along, with an entry for any file and any value."""
    with monkeypatch.context() as stranger:
        stranger.setenv("XDG_DATA_HOME", str(tmp_path / "stranger"))
        with digest.caching(state):
            digest.digest_file(file)
            assert digest.cached("key", lambda: "false") == "false"
    with digest.caching(state):
        assert digest.cached("key", lambda: "true") == "true"
        digest.digest_file(file)
    assert reads == [file, file]


def test_commands_that_run_at_once_keep_what_each_has_cached(state: Path, file: Path, reads: list[Path]) -> None:
    other = file.with_name("other")
    other.write_bytes(b"c" * SIZE)
    os.utime(other, ns=(10**18, 10**18))
    with digest.caching(state):
        ask(state, file)
        digest.digest_file(other)
    reads.clear()
    ask(state, file)
    ask(state, other)
    assert reads == []


def test_a_file_with_a_hole_of_any_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12")
    with pytest.raises(OSError, match="may have"):  # first, because a hash of the other one would take an hour
        digest.hash_file(tmp_path / "file", 1)
    os.truncate(tmp_path / "file", 1 << 40)
    with pytest.raises(OSError, match="may have"):
        digest.hash_file(tmp_path / "file")
