import csv
import ctypes
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.makers.compiler import Compiler
from tests.unit.graft import maker
from tests.unit.graft.maker import Graft
from tests.unit.wheel.maker import hash_for_record, make_build_info, make_wheel
from toolkit.base.errors import IntegrityError
from toolkit.graft import graft_plan, search_paths
from toolkit.wheel import inspection

LOADER = "tensorflow/libtensorflow_framework.so.2"
SOLVER = "$ORIGIN/../nvidia/cusolver/lib"
SPARSE = "$ORIGIN/../nvidia/cusparse/lib"
RUNTIME = "$ORIGIN/../nvidia/cuda_runtime/lib"
OUTSIDE = "$ORIGIN/../../nvidia/cusparse/lib"
OPEN = "_ZN3tsl8internal18LoadDynamicLibraryEPKcPPv"


def install(
    folder: Path, loader: bytes, gcc: Compiler, *, cuda: str = "12.5.1", solver: str = "cusolver/lib/libcusolver.so.11"
) -> Path:
    """Install a TensorFlow whose library is ``loader``, and cuSOLVER beside it, as pip does."""
    site = folder / "site-packages"
    info = site / "tensorflow-2.21.0.dist-info"
    build = make_build_info(cuda=cuda).encode()
    for name, content in {
        LOADER: loader,
        f"nvidia/{solver}": gcc("int solve;"),
        inspection.BUILD_INFO: build,
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
    info.mkdir()
    (info / "RECORD").write_text(f"{LOADER},{hash_for_record(loader)},{len(loader)}\n{info.name}/RECORD,,\n")
    return site


def read_record(site: Path) -> dict[str, str]:
    rows = csv.reader((site / "tensorflow-2.21.0.dist-info/RECORD").read_text().splitlines())
    return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((SPARSE, RUNTIME, SPARSE), id="a repetition of the same length"),
        pytest.param((SPARSE, RUNTIME, f"{RUNTIME}/"), id="a longer repetition"),
        pytest.param((OUTSIDE, SPARSE), id="a folder outside of the installation"),
    ],
)
def test_a_library_is_found_after_the_repair_and_not_before(
    tmp_path: Path, gcc: Compiler, parts: tuple[str, ...]
) -> None:
    loader = gcc.open_libraries(*parts)
    site = install(tmp_path, loader, gcc)
    before = ctypes.CDLL(str(shutil.copy(site / LOADER, site / "tensorflow/before.so")))
    assert before[OPEN](b"libcusolver.so.11") == 0
    foretold = search_paths.list_repairs(site)
    assert (site / LOADER).read_bytes() == loader
    (repaired,) = search_paths.repair_installed(site)
    assert [repaired] == foretold
    assert (repaired.added, repaired.impossible) == (("cusolver",), ())
    changed = (site / LOADER).read_bytes()
    assert len(changed) == len(loader)
    assert read_record(site)[LOADER] == hash_for_record(changed)
    kept = {part.rstrip("/") for part in parts} - {OUTSIDE}
    assert kept < {part.rstrip("/") for part in search_paths.read_as_loader(site / LOADER)}
    after = ctypes.CDLL(str(site / LOADER))
    assert after[OPEN](b"libcusolver.so.11") == 1
    assert search_paths.repair_installed(site) == [], "the second time there is nothing to do"


def test_the_one_folder_of_cuda_13_is_added(tmp_path: Path, gcc: Compiler) -> None:
    loader = gcc.open_libraries(SPARSE, SPARSE)
    site = install(tmp_path, loader, gcc, cuda="13.1.0", solver="cu13/lib/libcusolver.so.12")
    (repaired,) = search_paths.repair_installed(site)
    assert repaired.added == ("cu13",)
    assert "$ORIGIN/../nvidia/cu13/lib" in {part.rstrip("/") for part in search_paths.read_as_loader(site / LOADER)}
    assert ctypes.CDLL(str(site / LOADER))[OPEN](b"libcusolver.so.12") == 1
    assert search_paths.repair_installed(site) == []


@pytest.mark.parametrize("cuda", ["", "99.0.0"])
def test_a_build_for_no_cuda_that_is_known_stays_as_it_is(tmp_path: Path, gcc: Compiler, cuda: str) -> None:
    site = install(tmp_path, gcc.open_libraries(SPARSE, SPARSE), gcc, cuda=cuda)
    assert search_paths.list_repairs(site) == []
    (site / inspection.BUILD_INFO).write_text("nothing = 1")
    with pytest.raises(IntegrityError, match="damaged"):
        search_paths.list_repairs(site)


def test_a_folder_without_room_is_named_and_nothing_is_written(tmp_path: Path, gcc: Compiler) -> None:
    site = install(tmp_path, gcc.open_libraries(SPARSE, "$ORIGIN", "$ORIGIN"), gcc)
    before = (site / LOADER).stat()
    (repaired,) = search_paths.repair_installed(site)
    assert (repaired.added, repaired.impossible) == ((), ("cusolver",))
    after = (site / LOADER).stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_a_file_that_others_share_stays_as_it_is(tmp_path: Path, gcc: Compiler) -> None:
    loader = gcc.open_libraries(SPARSE, SPARSE)
    site = install(tmp_path, loader, gcc)
    (tmp_path / "cache.so").hardlink_to(site / LOADER)
    search_paths.repair_installed(site)
    assert (tmp_path / "cache.so").read_bytes() == loader != (site / LOADER).read_bytes()


def test_a_repair_that_was_ended_between_its_two_files_goes_on(
    tmp_path: Path, gcc: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install(tmp_path, gcc.open_libraries(SPARSE, SPARSE), gcc)
    with monkeypatch.context() as patch:
        patch.setattr(search_paths, "_replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            search_paths.repair_installed(site)
    assert [repaired.added for repaired in search_paths.repair_installed(site)] == [("cusolver",)]
    assert read_record(site)[LOADER] == hash_for_record((site / LOADER).read_bytes())
    assert [path.name for path in (site / "tensorflow").iterdir() if path.is_file()] == [Path(LOADER).name]


def test_a_file_that_was_changed_since_is_not_taken_for_the_installed_one(tmp_path: Path, gcc: Compiler) -> None:
    site = install(tmp_path, gcc.open_libraries(SPARSE, SPARSE), gcc)
    (site / LOADER).write_bytes((site / LOADER).read_bytes() + b"more")
    before, record = (site / LOADER).read_bytes(), read_record(site)
    with pytest.raises(IntegrityError, match="not the file that was installed"):
        search_paths.repair_installed(site)
    assert ((site / LOADER).read_bytes(), read_record(site)) == (before, record)


def make_source(folder: Path, loader: bytes) -> Path:
    files = {
        maker.LIBRARY: maker.make_library([maker.make_container("one")]),
        LOADER: loader,
        inspection.BUILD_INFO: make_build_info("sm_80", "sm_89", "compute_90", cuda="12.5.1"),
    }
    return make_wheel(folder, version="2.21.0", files=files)


def read_search_path(wheel: Path, folder: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        (folder / "read.so").write_bytes(opened.read(LOADER))
    return search_paths.read_as_loader(folder / "read.so")


@pytest.mark.parametrize(("cards", "mode"), [((), "repair"), (("12.0",), "keep"), (("12.0",), "only")])
def test_each_graft_corrects_the_search_path(
    tmp_path: Path, graft: Graft, gcc: Compiler, cards: tuple[str, ...], mode: graft_plan.Mode
) -> None:
    made = graft(*cards, source=make_source(tmp_path, gcc.open_libraries(SPARSE, SPARSE)), mode=mode)
    assert read_search_path(made.wheel, tmp_path) == [SPARSE, SOLVER]
    found = {item["name"]: item["search_path"] for item in made.record.facts["graft"]["libraries"]}
    assert json.loads(json.dumps(found[LOADER])) == ["cusolver"]
