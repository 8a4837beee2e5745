"""What was proven counts only while its inputs are the same."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit import project
from toolkit.errors import ToolkitError
from toolkit.versions import load_table, matrix, proven_toolchains

TABLE = load_table()
GROUPS = matrix.list_groups(TABLE)
PLACE = ("2.19.0", "12.6.1", "17")
PROOF = proven_toolchains.Proof(
    tensorflow=PLACE[0],
    cuda=PLACE[1],
    clang="17.0.6",
    date="2026-11-22",
    digest=proven_toolchains.digest_inputs(*PLACE),
    proven=("7.5", "8.0"),
    failed={"9.0": "an error"},
)


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "proven.yaml"
    monkeypatch.setattr(proven_toolchains.read, "__defaults__", (path,))
    proven_toolchains.write([PROOF], path)
    return path


CROSS_PLACE = ("2.21.0", "12.8.1", "18")
CROSS = proven_toolchains.Proof(
    tensorflow=CROSS_PLACE[0],
    cuda=CROSS_PLACE[1],
    clang="18.1.8",
    date="2026-11-24",
    digest=proven_toolchains.digest_inputs(*CROSS_PLACE, cross=True),
    proven=("8.7", "9.0"),
    failed={},
    platform="linux/arm64",
    host="linux/amd64",
)


def list_cross_states() -> dict[str, str]:
    cells = matrix.list_cells(TABLE, "linux/arm64")
    return {cell.capability: cell.state for cell in cells if (cell.tensorflow, cell.cuda, cell.clang) == CROSS_PLACE}


def list_states() -> dict[str, str]:
    cells = matrix.list_cells(TABLE)
    return {cell.capability: cell.state for cell in cells if (cell.tensorflow, cell.cuda, cell.clang) == PLACE}


def test_a_cell_is_proven_by_its_proof_alone() -> None:
    states = list_states()
    assert {name for name, state in states.items() if state == "proven"} == {"7.5", "8.0"}
    assert states["9.0"] == "failed"
    assert states["8.9"] == "untried"


def test_a_proof_of_other_inputs_is_void(written: Path) -> None:
    proven_toolchains.write([replace(PROOF, digest="sha256:" + "0" * 64)], written)
    assert set(list_states().values()) == {"untried"}


def test_a_proof_by_a_cross_compiler_counts_for_its_platform_alone_and_says_so(written: Path) -> None:
    before = written.read_bytes()
    proven_toolchains.write([PROOF, CROSS], written)
    assert written.read_bytes().startswith(before), "proofs that were there are written as before"
    assert proven_toolchains.read(written)["linux/arm64", *CROSS_PLACE] == CROSS
    assert {name for name, state in list_cross_states().items() if state == "proven (cross)"} == {"8.7", "9.0"}
    assert list_states()["7.5"] == "proven"
    proven_toolchains.write([replace(CROSS, platform="linux/amd64", host="")], written)
    assert set(list_cross_states().values()) == {"untried"}
    proven_toolchains.write([replace(CROSS, host="", digest=proven_toolchains.digest_inputs(*CROSS_PLACE))], written)
    assert list_cross_states()["9.0"] == "proven", "one made on such a machine"


def test_a_proof_by_a_cross_compiler_depends_on_its_own_files_too(written: Path) -> None:
    proven_toolchains.write([replace(CROSS, digest=proven_toolchains.digest_inputs(*CROSS_PLACE))], written)
    assert set(list_cross_states().values()) == {"untried"}


def test_the_grid_names_the_platform_and_marks_what_a_cross_compiler_proved(written: Path) -> None:
    proven_toolchains.write([CROSS], written)
    grid = matrix.render_grid(list(matrix.list_cells(TABLE, "linux/arm64")))
    assert "TensorFlow 2.21.0 for linux/arm64, Python" in grid
    assert "c proven (cross) (2)" in grid
    row = next(line for line in grid.splitlines() if line.startswith("  12.8.1"))
    assert row.split().count("c") == 2


def test_a_new_proof_keeps_what_the_same_inputs_proved_of_other_capabilities() -> None:
    made = replace(PROOF, proven=("9.0",), failed={"8.0": "an error"})
    joined = proven_toolchains.join(made, replace(PROOF, failed={"9.0": "another", "8.6": "a third"}))
    assert (joined.proven, joined.failed) == (("7.5", "9.0"), {"8.6": "a third", "8.0": "an error"})
    for other in (None, replace(PROOF, digest="sha256:0"), replace(PROOF, clang="17.0.7"), replace(PROOF, host="x")):
        assert proven_toolchains.join(made, other) == made


def test_only_what_is_untried_is_listed_where_that_is_asked(written: Path) -> None:
    known = matrix.list_groups(TABLE)[PLACE]
    assert matrix.list_groups(TABLE, untried=True)[PLACE] == [
        name for name in known if name not in ("7.5", "8.0", "9.0")
    ]
    proven_toolchains.write([replace(PROOF, digest="sha256:0")], written)
    assert matrix.list_groups(TABLE, untried=True)[PLACE] == known


def test_only_named_capabilities_are_listed_to_be_proven() -> None:
    groups = matrix.list_groups(TABLE, "linux/arm64", ("9.0", "12.1"))
    assert groups["2.21.0", "12.9.1", "22"] == ["12.1"]
    assert {name for names in groups.values() for name in names} == {"9.0", "12.1"}
    assert not matrix.list_groups(TABLE, "linux/arm64", ("1.0",))


@pytest.mark.parametrize(
    ("name", "void"),
    [
        ("docker/scripts/proof/kernels.cu", True),
        ("docker/scripts/proof/prove.py", True),
        ("docker/scripts/proof/missing/llvm/ADT/ArrayRef.h", True),
        ("docker/scripts/take-headers", True),
        ("docker/requirements/toolchain-12.6.1.txt", True),
        ("docker/requirements/headers-2.19.0.txt", True),
        ("bazel_patches/headers/glibc-floatn-float128.patch", True),
        ("bazel_patches/headers/clang-17/series", True),
        ("bazel_patches/headers/clang-18/series", False),
        ("docker/requirements/headers-2.20.0.txt", False),
        ("bazel_patches/kernels/cub-loads-from-constants.patch", False),
        ("docker/scripts/split-cuda", False),
        ("bazel_patches/kernels/cub-3-names-and-traits.patch", False),
    ],
)
def test_a_change_of_any_input_makes_a_proof_void(
    name: str, void: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    for folder in ("docker", "bazel_patches"):
        shutil.copytree(project.ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(project, "ROOT", root)
    patched = ("2.19.0", "12.8.0", "18") if "cub-loads" in name else ("2.21.0", "13.0.0", "22")
    with_patch = proven_toolchains.digest_inputs(*patched)
    with (root / name).open("a") as file:
        file.write("# changed\n")
    proven_toolchains.digest_inputs.cache_clear()
    try:
        assert (proven_toolchains.digest_inputs(*PLACE) != PROOF.digest) == void
        if name.startswith(("bazel_patches/kernels/", "docker/scripts/")):
            assert proven_toolchains.digest_inputs(*patched) != with_patch
    finally:
        proven_toolchains.digest_inputs.cache_clear()


def test_without_proofs_nothing_is_proven(written: Path) -> None:
    written.unlink()
    assert set(list_states().values()) == {"untried"}


def test_a_damaged_file_is_named(written: Path) -> None:
    written.write_text("proofs: [{tensorflow: 2.19.0}]")
    with pytest.raises(ToolkitError, match=r"proven\.yaml is damaged"):
        proven_toolchains.read(written)


def test_each_set_of_the_table_has_one_cell_and_each_refusal_a_reason() -> None:
    cells = list(matrix.list_cells(TABLE))
    places = [(cell.tensorflow, cell.cuda, cell.capability) for cell in cells]
    assert len(places) == len(set(places))
    assert {(row.version, cuda) for row in TABLE.rows() for cuda in row.cuda} == {place[:2] for place in places}
    assert all(bool(cell.why) == (cell.state in {"refused", "failed"}) for cell in cells)
    assert all(bool(cell.clang) == (cell.state != "refused") for cell in cells)


def test_every_set_that_is_not_refused_is_in_a_group() -> None:
    assert ("2.21.0", "12.8.1", "22") in GROUPS
    assert "12.0" in GROUPS["2.21.0", "12.8.1", "22"]
    assert sum(map(len, GROUPS.values())) == sum(cell.state != "refused" for cell in matrix.list_cells(TABLE))
