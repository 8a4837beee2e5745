"""Dependencies point one way, and each room keeps to itself."""

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSIDE = ROOT / "toolkit" / "smoke" / "inside"
PROBE = ROOT / "toolkit" / "reproduction" / "inside"


def _modules(room: str) -> list[Path]:
    found = sorted((ROOT / room).rglob("*.py"))
    return [path for path in found if not {INSIDE, PROBE} & set(path.parents)]


def _imports(path: Path) -> Iterator[str]:
    for node in _walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _walk(child)


def _reaches(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    return [name for name in _imports(path) if any(name == each or name.startswith(f"{each}.") for each in forbidden)]


@pytest.mark.parametrize("path", _modules("toolkit"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_toolkit_never_imports_tensorflow(path: Path) -> None:
    allowed_of_train = ("train.cli", "train.config", "train.cores", "train.errors", "train.rehearsal.cli")
    assert not _reaches(path, ("tensorflow", "keras", "datasets", "numpy"))
    shared = {name.rpartition(".")[0] for name in _reaches(path, ("toolkit.smoke.inside",))}
    assert shared <= {"toolkit.smoke.inside.gpu_rules"}
    assert all(name.startswith(allowed_of_train) for name in _reaches(path, ("train",)))


def test_the_toolkit_needs_its_own_locked_packages_alone() -> None:
    names = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "docker/requirements/toolkit.txt").read_text(), re.MULTILINE)
    installed = packages_distributions()
    foreign = [
        name for name, homes in installed.items() if not {_normalize(home) for home in homes} & {*names, "toolkit"}
    ]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in _modules("toolkit")]
    code = """
        import importlib, sys
        foreign, modules = (names.split() for names in sys.argv[1:])
        sys.modules.update(dict.fromkeys(foreign))
        for name in modules:
            importlib.import_module(name)
    """
    words = [sys.executable, "-c", textwrap.dedent(code), " ".join(foreign), " ".join(modules)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "numpy" in foreign
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", _modules("train"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_training_job_never_imports_the_toolkit(path: Path) -> None:
    assert not _reaches(path, ("toolkit", "docker"))


@pytest.mark.parametrize("path", sorted(INSIDE.rglob("*.py")), ids=lambda path: path.name)
def test_the_checks_stand_alone(path: Path) -> None:
    assert not _reaches(path, ("toolkit", "train", "docker", "yaml", "typer", "rich"))


@pytest.mark.parametrize("path", sorted(PROBE.rglob("*.py")), ids=lambda path: path.name)
def test_what_runs_beside_the_job_knows_the_job_alone(path: Path) -> None:
    assert not _reaches(path, ("toolkit", "docker", "tensorflow", "yaml", "typer", "rich"))


def test_only_the_engine_room_talks_to_an_engine() -> None:
    rooms = (ROOT / "toolkit" / "engine", ROOT / "toolkit" / "clean.py")
    users = [path for path in _modules("toolkit") if _reaches(path, ("docker",))]
    assert all(any(path == room or room in path.parents for room in rooms) for path in users)


def test_no_shell_runs_a_string() -> None:
    for path in [*_modules("toolkit"), *_modules("train")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                pytest.fail(f"{path}: shell=")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.system", "os.popen"}:
                pytest.fail(f"{path}: {ast.unparse(node)}")
