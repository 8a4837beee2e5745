import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from toolkit.base import project

APPLY = project.ROOT / "docker/scripts/apply-patches"
KERNELS = project.ROOT / "bazel_patches/kernels"
HEADER = "tensorflow/core/kernels/gpu_prim.h"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    found = importlib.util.find_spec("tensorflow")
    assert found is not None
    assert found.submodule_search_locations is not None
    (tmp_path / HEADER).parent.mkdir(parents=True)
    shutil.copy(Path(found.submodule_search_locations[0]) / "include" / HEADER, tmp_path / HEADER)
    return tmp_path


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in KERNELS.glob("2.19.*/series")))
def test_the_patches_of_a_set_fit_its_headers(folder: str, tree: Path) -> None:
    done = subprocess.run([APPLY, KERNELS / folder, tree], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert (tree / HEADER).read_text().count("const volatile uint16_t") == 2


def test_a_patch_that_does_not_fit_exactly_is_refused(tree: Path) -> None:
    header = tree / HEADER
    first = "__device__ __forceinline__ Eigen::half ThreadLoadVolatilePointer<Eigen::half>("
    before = header.read_text().replace(first, f"/* moved */ {first}")
    header.write_text(before)
    argv = [APPLY, KERNELS / "2.19.1-12.8.0", tree]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "does not fit exactly" in done.stderr
