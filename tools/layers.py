"""The layers of the programs, and what their modules import: read from the sources, nothing is run."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = ROOT / "toolkit" / "checks"

LAYERS = (
    {"base", "checks"},
    {"versions"},
    {"diagnosis"},
    {"engine"},
    {"doctor", "smoke", "wheel"},
    {"graft"},
    {"records"},
    {"jobs"},
    {"install", "launch", "report"},
    {"cli", "__main__"},
)
"""The packages and modules of the toolkit, lowest first. Each imports from its own layer and from lower ones."""

JOB_LAYERS = (
    {"errors", "cores"},
    {"system"},
    {"config", "native"},
    {"data", "model", "record"},
    {"command_line", "input"},
    {"step"},
    {"cluster", "report"},
    {"run"},
    {"cli"},
    {"use", "service", "__main__", "peers"},
)
"""The same of the training job."""

PACKAGES = ("toolkit", "train")

LEVELS = {
    package: {part: number for number, layer in enumerate(layers) for part in layer}
    for package, layers in (("toolkit", LAYERS), ("train", JOB_LAYERS))
}


def list_modules(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    return [path for path in found if CHECKS not in path.parents]


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, but not imports for types alone."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from walk(child)


@cache
def read_imports(path: Path, read: Callable[[ast.AST], Iterator[ast.AST]]) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the import statements of a module. Several tests ask for those of every module."""
    return tuple(node for node in read(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom))


def list_imports(path: Path, read: Callable[[ast.AST], Iterator[ast.AST]] = walk) -> Iterator[str]:
    for node in read_imports(path, read):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def read_graph(*, types: bool = False) -> Mapping[str, set[str]]:
    """Return what each module imports. ``types``: count imports for types alone too."""
    read = ast.walk if types else walk
    paths = {name_module(path): path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        targets = set(list_imports(path, read))
        for node in read_imports(path, read):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                targets |= {".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names}
        graph[name] = {found for target in targets if (found := find_module(target, paths))} - {name}
    return graph


def find_module(target: str, known: Mapping[str, Path]) -> str:
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target


def list_shared() -> list[str]:
    """Return the packages of the training job, and its modules outside of packages, that the toolkit imports."""
    targets = {target for name, below in read_graph().items() if name.startswith("toolkit") for target in below}
    return sorted({".".join(target.split(".")[:2]) for target in targets if target.startswith("train.")})
