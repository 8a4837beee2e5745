import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tools import pages, picture
from tools.layers import CHECKS, LEVELS, ROOT, list_imports, list_modules, read_graph


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _reaches(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    return [
        name for name in list_imports(path) if any(name == each or name.startswith(f"{each}.") for each in forbidden)
    ]


def test_the_toolkit_needs_its_own_locked_packages_alone() -> None:
    names = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "docker/requirements/toolkit.txt").read_text(), re.MULTILINE)
    installed = packages_distributions()
    foreign = [
        name for name, homes in installed.items() if not {_normalize(home) for home in homes} & {*names, "toolkit"}
    ]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in list_modules("toolkit")]
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


@pytest.mark.parametrize(
    ("paths", "forbidden"),
    [
        pytest.param(list_modules("toolkit"), ("tensorflow", "keras", "datasets", "numpy"), id="toolkit"),
        pytest.param(list_modules("train"), ("toolkit", "docker"), id="train"),
        pytest.param(
            sorted(CHECKS.rglob("*.py")), ("toolkit", "train", "docker", "yaml", "typer", "rich"), id="checks"
        ),
    ],
)
def test_each_package_stands_alone(paths: list[Path], forbidden: tuple[str, ...]) -> None:
    assert {path: reached for path in paths if (reached := _reaches(path, forbidden))} == {}


def _find_upward(graph: Mapping[str, set[str]]) -> list[str]:
    upward = []
    for name, targets in graph.items():
        package, _, rest = name.partition(".")
        if not rest or package not in LEVELS:
            continue
        levels, part = LEVELS[package], rest.partition(".")[0]
        assert part in levels, f"{name} belongs to no layer: add it to the list"
        for target in targets:
            other = target.partition(".")[2].partition(".")[0]
            if other and target.startswith(f"{package}.") and levels.get(other, 99) > levels[part]:
                upward.append(f"{name} imports {target}")
    return upward


def test_each_package_imports_lower_layers_alone() -> None:
    assert not _find_upward(read_graph())


def test_no_module_imports_itself_by_way_of_others() -> None:
    try:
        TopologicalSorter(read_graph(types=True)).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert picture.draw() == pages.PICTURE.read_text(), "run: python -m tools.pages"
