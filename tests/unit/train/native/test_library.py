import errno
import os
import platform
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from train.command_line import parse
from train.errors import PreflightError
from train.native import library
from train.step import kernel_choice

OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"
SAYS_TARGET = f"[ $1 = -dumpmachine ] && echo {platform.machine()}-linux-gnu && exit"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    library.find.cache_clear()
    yield
    monkeypatch.undo()
    library.find.cache_clear()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    made, folders = library.find().path, []

    def copy(_: str, folder: Path) -> Path:
        folders.append(folder)
        return Path(shutil.copy(made, folder / "kernels.so"))

    monkeypatch.setattr(library, "compile_library", copy)
    return folders


def write_program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(stat.S_IRWXU)
    return path


@pytest.mark.parametrize("change", ["source", "compiler", "flags"])
def test_another_source_compiler_or_flag_makes_another(
    tmp_path: Path, quick: list[Path], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    first = library.build(tmp_path / "cache")
    if change == "source":
        shutil.copytree(library.SOURCE, tmp_path / "source")
        with (tmp_path / "source" / "layers.cpp").open("a") as file:
            file.write("// changed\n")
        monkeypatch.setattr(library, "SOURCE", tmp_path / "source")
        library.digest_source.cache_clear()
        with pytest.raises(PreflightError, match="was built from another source"):
            library.build(tmp_path / "cache")
        monkeypatch.undo()
        library.digest_source.cache_clear()
    elif change == "compiler":
        program = write_program(tmp_path / "other", f"{SAYS_TARGET}; echo other 1.0")
        monkeypatch.setenv("CXX", str(program))
        second = library.build(tmp_path / "cache")
        assert (second.path != first.path, second.origin) == (True, "other 1.0")
    else:
        monkeypatch.setattr(library, "FLAGS", ("-O1", *library.FLAGS))
        assert library.build(tmp_path / "cache").path != first.path
    assert len(quick) == 2


def test_nothing_is_published_that_is_not_checked(
    tmp_path: Path, quick: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "EXPECTED", "0" * 16)
    with pytest.raises(PreflightError, match="computes something else") as caught:
        library.build(tmp_path)
    assert "by avx" in caught.value.why
    assert not list(tmp_path.iterdir())


def test_without_a_compiler(tmp_path: Path, fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv(library.VARIABLE, raising=False)
    with pytest.raises(PreflightError, match="cannot be built") as caught:
        library.find()
    assert "no C++ compiler" in caught.value.why


VERSION = f"{SAYS_TARGET}; [ $1 = --version ] && echo x && exit"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (f"{VERSION}; echo 'a.cpp:1: error: no such header' >&2; exit 1", "no such header"),
        (f"{VERSION}; exit 3", "exit code 3"),
        (f"{VERSION}; exit 0", ""),  # claims to have compiled
        ("exit 4", "exit code 4"),
        ("echo riscv64-linux-gnu", "for x86_64 and aarch64 processors, and it compiles for riscv64-linux-gnu"),
        ("exit 0", "it compiles for an unknown one"),
        (f"echo {OTHER}-linux-gnu", f"it compiles for {OTHER}, and this is {platform.machine()}"),
    ],
)
def test_a_compiler_that_is_broken_or_for_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    monkeypatch.setenv("CXX", str(write_program(tmp_path / "c++", program)))
    with pytest.raises(PreflightError) as caught:
        library.build(tmp_path / "cache")
    assert why in caught.value.why
    assert not list((tmp_path / "cache").glob("*"))


RECORDS = """
[ $1 = -dumpmachine ] && echo MACHINE-linux-gnu && exit
echo "$@" >>"$0.log"
while [ $# -gt 0 ]; do
  [ "$1" = -o ] && echo made >"$2"
  shift
done
"""


def test_a_library_for_another_machine_is_built_and_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", str(write_program(tmp_path / "c++", RECORDS.replace("MACHINE", OTHER))))
    monkeypatch.setattr("sys.argv", ["library", str(tmp_path / "other.so")])
    assert library.main() == 0
    assert (tmp_path / "other.so").read_text() == "made\n"
    assert f"is for {OTHER}: it is checked there" in capsys.readouterr().out
    monkeypatch.setenv("CXX", str(write_program(tmp_path / "c++", RECORDS.replace("MACHINE", platform.machine()))))
    assert library.main() == PreflightError.exit_code
    assert "kernels.so does not work" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "flags", "why"),
    [
        ("x86_64", "fma avx avx2 sse4_2", ""),
        ("x86_64", "avx sse4_2", "it has no avx2 and no fma"),
        ("x86_64", "avx2", "it has no fma"),
        ("aarch64", "fp asimd evtstrm aes", ""),
        ("aarch64", "fp", "it has no asimd"),
        ("riscv64", "fp", "they are for x86_64 and aarch64 processors on Linux, and this is riscv64"),
    ],
)
def test_processors(tmp_path: Path, machine: str, flags: str, why: str) -> None:
    facts = tmp_path / "cpuinfo"
    label = "flags" if machine == "x86_64" else "Features"
    facts.write_text(f"processor\t: 0\n{label}\t\t: {flags}\n")
    found = library.explain_processor(machine, facts)
    assert why in found
    assert bool(why) == bool(found)
    assert "cannot be read" in library.explain_processor("x86_64", tmp_path / "none")
    if machine == "aarch64":
        facts.write_text("processor\t: 0\nflags\t\t: sse4_2\n")
        assert not library.explain_processor(machine, facts), "of the processor around an emulator"


def test_an_old_processor_is_refused(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "explain_processor", lambda: "it has no avx2")
    with pytest.raises(PreflightError, match="this processor"):
        library.find()


def test_a_cache_without_room_is_an_error_and_no_other_kernels_are_chosen(
    tmp_path: Path, fresh: None, quick: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.posix_fallocate", refuse)
    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.find.cache_clear()  # `quick` has found one
    with pytest.raises(library.CacheError, match=str(tmp_path)) as caught:
        kernel_choice.explain_stock(parse(["digits"]))
    assert caught.value.exit_code == 4
    assert "XDG_CACHE_HOME" in caught.value.remedy


@pytest.mark.parametrize("change", ["others may write it", "it is damaged", "others may write its folder", "a link"])
def test_a_library_that_others_may_have_written_is_built_again(tmp_path: Path, quick: list[Path], change: str) -> None:
    first = library.build(tmp_path)
    if change == "others may write it":
        first.path.chmod(0o777)
    elif change == "others may write its folder":
        tmp_path.chmod(0o777)
    elif change == "a link":
        first.path.rename(tmp_path / "other")
        first.path.symlink_to(tmp_path / "other")
    else:
        first.path.write_bytes(b"no library")
    assert library.build(tmp_path) == first
    assert len(quick) == 2
    assert not first.path.is_symlink()
    assert not (tmp_path.stat().st_mode | first.path.stat().st_mode) & 0o022


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_somebody_else_is_not_loaded_from(tmp_path: Path, quick: list[Path]) -> None:
    first = library.build(tmp_path)
    os.chown(first.path, 12345, -1)
    library.build(tmp_path)
    assert len(quick) == 2
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(library.CacheError, match="belongs to the user 12345"):
        library.build(tmp_path)
