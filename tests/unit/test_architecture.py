import ast
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
from tools.layers import CHECKS, LEVELS, PACKAGES, ROOT, UPWARD, list_imports, list_modules, read_graph

PROBE = ROOT / "train" / "use" / "probe.py"


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _reaches(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    return [
        name for name in list_imports(path) if any(name == each or name.startswith(f"{each}.") for each in forbidden)
    ]


def test_the_toolkit_never_imports_tensorflow() -> None:
    names = (
        "command_line",
        "cluster.tf_config",
        "config",
        "cores",
        "errors",
        "native.library",
        "peers",
        "record",
        "system.memory",
        "system.network",
        "system.addresses",
        "system.budget",
        "system.files",
        "system.output",
        "system.progress",
        "system.keyboard",
        "system.signals",
    )
    names += ("service.options", "use.compare")
    allowed_of_train = tuple(f"train.{name}" for name in names)
    shared = ("toolkit.smoke.checks.gpu_rules.", "toolkit.smoke.checks.check.Expectation")
    for path in list_modules("toolkit"):
        assert not _reaches(path, ("tensorflow", "keras", "datasets", "numpy")), path
        assert all(name.startswith(shared) for name in _reaches(path, ("toolkit.smoke.checks",))), path
        assert all(name.startswith(allowed_of_train) for name in _reaches(path, ("train",))), path


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
        pytest.param(list_modules("train"), ("toolkit", "docker"), id="train"),
        pytest.param(
            sorted(CHECKS.rglob("*.py")), ("toolkit", "train", "docker", "yaml", "typer", "rich"), id="checks"
        ),
    ],
)
def test_each_package_stands_alone(paths: list[Path], forbidden: tuple[str, ...]) -> None:
    assert {path: reached for path in paths if (reached := _reaches(path, forbidden))} == {}


def test_what_runs_beside_the_job_knows_the_job_alone() -> None:
    assert not _reaches(PROBE, ("toolkit", "docker", "tensorflow", "yaml", "typer", "rich"))


def test_only_the_engine_package_and_clean_import_the_docker_sdk() -> None:
    allowed = (ROOT / "toolkit" / "engine", ROOT / "toolkit" / "records" / "clean.py")
    users = [path for path in list_modules("toolkit") if _reaches(path, ("docker",))]
    assert all(any(path == each or each in path.parents for each in allowed) for path in users)


def test_no_shell_runs_a_string() -> None:
    for path in [path for package in PACKAGES for path in list_modules(package)]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                pytest.fail(f"{path}: shell=")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.system", "os.popen"}:
                pytest.fail(f"{path}: {ast.unparse(node)}")


def _find_upward(graph: Mapping[str, set[str]]) -> list[str]:
    upward = []
    for name, targets in graph.items():
        package, _, rest = name.partition(".")
        if not rest or package not in LEVELS or name.startswith("toolkit.smoke.checks"):
            continue
        levels, part = LEVELS[package], rest.partition(".")[0]
        assert part in levels, f"{name} belongs to no layer: add it to the list"
        for target in targets:
            other = target.partition(".")[2].partition(".")[0]
            allowed = any(part == below and target.startswith(above) for below, above in UPWARD)
            if other and target.startswith(f"{package}.") and levels.get(other, 99) > levels[part] and not allowed:
                upward.append(f"{name} imports {target}")
    return upward


def test_each_package_imports_lower_layers_alone() -> None:
    assert not _find_upward(read_graph())


def test_an_import_of_a_higher_layer_is_found() -> None:
    graph = {
        "toolkit.base.errors": {"toolkit.cli"},
        "toolkit.engine.host": {"toolkit.wheel.build_plan", "toolkit.base.errors"},
    }
    assert _find_upward(graph) == [
        "toolkit.base.errors imports toolkit.cli",
        "toolkit.engine.host imports toolkit.wheel.build_plan",
    ]
    with pytest.raises(AssertionError, match="belongs to no layer"):
        _find_upward({"toolkit.attic": set()})


def _read_documented_layers(text: str, package: str) -> dict[str, int]:
    rows = re.findall(rf"^\| (`{package}/.+?) \| (\d+) \|", text, re.MULTILINE)
    return {
        name.strip("/"): int(level) for names, level in rows for name in re.findall(rf"`(?:{package}/)?(.+?)`", names)
    }


@pytest.mark.parametrize("package", ["toolkit", "train"])
def test_the_documented_layers_are_those_that_exist(package: str) -> None:
    parts = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    parts |= {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert parts == LEVELS[package].keys()
    assert _read_documented_layers((ROOT / "CONTRIBUTING.md").read_text(), package) == LEVELS[package]


def test_no_module_imports_itself_by_way_of_others() -> None:
    try:
        TopologicalSorter(read_graph(types=True)).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert picture.draw() == pages.PICTURE.read_text(), "run: python -m tools.pages"
