from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest

from tests.unit.wheelbuild.conftest import SCRIPTS

compute_name = run_path(str(SCRIPTS / "name-toolchain"))["compute_name"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("usr/bin/clang", "usr/lib/python3/__pycache__/x.pyc", "opt/cuda/bin/ptxas", "etc/hosts"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "usr/bin/cc").symlink_to("clang")
    (tmp_path / "usr/lib64").symlink_to("lib")
    return tmp_path


def link(root: Path, name: str, target: str) -> None:
    (root / name).unlink()
    (root / name).symlink_to(target)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "usr/bin/clang").write_text("another"),
        lambda root: (root / "usr/bin/clang").chmod(0o755),
        lambda root: (root / "usr/bin/clang").rename(root / "usr/bin/clang-17"),
        lambda root: (root / "opt/cuda/bin/nvlink").touch(),
        lambda root: link(root, "usr/bin/cc", "gcc"),
        lambda root: link(root, "usr/lib64", "lib32"),
    ],
)
def test_changed_toolchain_has_another_name(root: Path, change: Callable[[Path], object]) -> None:
    before = compute_name(root)
    change(root)
    assert compute_name(root) != before
    assert len(before) == 16
