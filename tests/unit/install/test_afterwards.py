"""What later commands do to a TensorFlow that `toolkit install` has put into an environment. pip and uv are real."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.makers.compiler import Compiler
from tests.unit.install.index import Index
from tests.unit.wheel.maker import make_build_info
from toolkit.base.console import Console
from toolkit.graft import search_paths
from toolkit.install import installation
from toolkit.install.installed import list_installed
from toolkit.install.target import Target
from toolkit.wheel import inspection

PLAIN, NEWER, GRAFT, CORRECTED = "2.21.0", "2.22.0", "2.21.0+sm120", "2.21.0 corrected"
QUIET = Console(verbosity=-1)
LIBRARY = "tensorflow/libtensorflow_framework.so.2"
CUDA = "nvidia-cusolver-cu12"


pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def after(
    index: Index, target: Target, tmp_path: Path, gcc: Compiler, request: pytest.FixtureRequest
) -> tuple[Target, str]:
    """An environment with a graft, or with a published TensorFlow that is corrected; and the line that keeps it."""
    needs = ("keras", CUDA)
    path = ["$ORIGIN/../nvidia/cusparse/lib"] * 2
    wanted = {LIBRARY: gcc.open_libraries(*path), inspection.BUILD_INFO: make_build_info()}
    index.add("keras", "3.12.0")
    index.add(CUDA, "11.7")
    graft = None
    if request.param == GRAFT:
        made = index.add("tensorflow", GRAFT, *needs, files={LIBRARY: b"grafted"}, lock=False)
        graft = made.rename(tmp_path / made.name)
    index.add("tensorflow", PLAIN, *needs, files=wanted)
    planned = index.plan(target, wheel=graft)
    installation.install(planned, QUIET)
    index.add("keras", "3.13.0", lock=False)
    index.add("tensorflow", NEWER, *needs, lock=False)
    return target, planned.constraint


def find(target: Target) -> str:
    """Return which TensorFlow an environment has; empty: none."""
    found = list_installed(target.python).get("tensorflow")
    corrected = found and any(path.endswith(search_paths.NOTE) for path in found.files)
    return "" if found is None else f"{found.version} corrected" if corrected else found.version


def call(index: Index, target: Target, tool: str, *words: str, keep: Path | None = None) -> str:
    """Run pip or uv in an environment. Return what it said, also where it failed."""
    with_constraint = ["--constraint", str(keep)] if keep else []
    if tool == "uv":
        argv = [*index.uv.command("pip", *words), *with_constraint, "--python", str(target.program)]
    else:
        argv = [sys.executable, "-m", "pip", "--python", str(target.program), *words, *with_constraint]
    places = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index.folder), "PIP_CONFIG_FILE": "/dev/null", "PATH": "/bin"}
    variables = {**places, **index.uv.variables, "UV_CACHE_DIR": str(index.folder.with_name("cache"))}
    done = subprocess.run(argv, capture_output=True, text=True, env=variables, check=False)
    return done.stdout + done.stderr


NOTHING = ("pip check", "uv check", "pip freeze")
LATER = {
    # commands, whether with the constraint that `install` prints, what becomes of a graft, and of a corrected one
    "what changes nothing": (NOTHING, False, GRAFT, CORRECTED),
    "pip updates": (("pip install -U tensorflow",), False, NEWER, NEWER),
    "an update, with the line": (("pip install -U tensorflow", "uv install -U tensorflow"), True, GRAFT, CORRECTED),
    "again, with the line": (
        ("pip install --force-reinstall tensorflow", "uv install --reinstall tensorflow"),
        True,
        GRAFT,
        PLAIN,
    ),
}


@pytest.mark.parametrize(
    ("after", "row", "result"),
    [
        pytest.param(kind, row, row[place], id=f"{name}-{kind}")
        for name, row in LATER.items()
        for place, kind in ((2, GRAFT), (3, CORRECTED))
    ],
    indirect=["after"],
)
def test_what_a_later_command_does(
    index: Index, after: tuple[Target, str], row: tuple[tuple[str, ...], bool, str, str], result: str, tmp_path: Path
) -> None:
    target, line = after
    keep = tmp_path / "constraints.txt"
    keep.write_text(f"{line}\n")
    for command in row[0]:
        tool, *words = command.split()
        said = call(index, target, tool, *words, keep=keep if row[1] else None)
        if words == ["check"]:
            assert said.strip().endswith(("No broken requirements found.", "All installed packages are compatible")), (
                said
            )
        if words == ["freeze"]:
            assert ("tensorflow @ file://" in said) == ("+" in result), said
    assert find(target) == result
    if result == PLAIN and "+" not in line:
        installation.install(index.plan(target), QUIET)
        assert find(target) == CORRECTED
