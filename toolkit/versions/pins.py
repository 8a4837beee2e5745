"""Writes the pins of the version table and of pyproject.toml into the files that other programs read.

``python -m toolkit.versions.pins`` replaces the lines between the markers ``>>> pins`` and ``<<< pins`` of each file.
With ``--check`` it writes nothing and fails if a file differs.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toolkit.base import project
from toolkit.checks.nvidia import find_wheels
from toolkit.versions.rules import choose_versions
from toolkit.versions.sets import list_packages
from toolkit.versions.table import CudaRow, Table, load_table
from train.system import output

_BLOCK = re.compile(r"^([ ]*)# >>> pins.*?\n(.*?)^[ ]*# <<< pins\n", re.MULTILINE | re.DOTALL)


def generate(root: Path, table: Table) -> dict[Path, str]:
    """Return the new text of each file that holds pins. Raises ValueError if a file has no block for them."""
    packages = tomllib.loads((root / "pyproject.toml").read_text())
    blocks: dict[str, Iterable[str]] = {
        "docker/Dockerfile": _list_arguments(table),
        "compose.yaml": _list_compose(table),
        "compose.gpu.yaml": _list_gpu_compose(table),
        ".github/workflows/gpu.yml": [
            f'TOOLKIT_CUDA: "{table.default.cuda}"',
            f'TOOLKIT_CUDNN: "{table.default.cudnn}"',
        ],
        "examples/gitlab.yml": [f"image: {table.default.base_image}"],
        ".devcontainer/Dockerfile": [f"FROM {table.default.base_image}"],
        "pyproject.toml": [f'"tensorflow=={table.default.tensorflow}",'],
        **{f"docker/requirements/{name}.in": lines for name, lines in _list_requirements(table, packages).items()},
    }
    return {root / name: _replace(root / name, lines) for name, lines in blocks.items()}


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with ``--check``. Return the exit code."""
    files = generate(project.ROOT, load_table())
    stale = [path for path, text in files.items() if path.read_text() != text]
    for path in stale:
        output.show(f"{path.relative_to(project.ROOT)}: {'differs; run make pins' if arguments else 'written'}")
        if not arguments:
            path.write_text(files[path])
    return 7 if stale and arguments else 0


def _replace(path: Path, lines: Iterable[str]) -> str:
    text = path.read_text()
    match = _BLOCK.search(text)
    if match is None:
        raise ValueError(f"{path} has no block of pins")
    indent = match[1]
    body = "".join(f"{indent}{line}\n" for line in lines)
    return f"{text[: match.start(2)]}{body}{text[match.end(2) :]}"


def _list_arguments(table: Table) -> list[str]:
    default = table.default
    row = table.tensorflow(default.tensorflow)
    values = {
        "BASE_IMAGE": default.base_image,
        "LLVM_VERSION": choose_versions(table).clang,
        "GCC_VERSION": choose_versions(table).gcc,
        **default.libraries.arguments(),
        "COMPUTE_CAPABILITIES": ",".join(default.capabilities),
        "PYTHON_VERSION": default.python,
        "TENSORFLOW_VERSION": default.tensorflow,
        "TENSORFLOW_COMMIT": row.commit,
        "BAZEL_VERSION": row.bazel,
        "BAZEL_MACHINE": table.platform(default.platform).bazel,
        "BAZEL_SHA256": table.bazel_rows[row.bazel].sha256[table.platform(default.platform).bazel],
    }
    return [f"ARG {name}={value}" for name, value in values.items()]


def _list_compose(table: Table) -> list[str]:
    default, locked = table.default, table.find_newest(cuda=False)
    return [
        f'base: &base "${{TOOLKIT_BASE_IMAGE:-{default.base_image}}}"',
        f'epoch: &epoch "{default.source_date_epoch}"',
        f"image: &image toolkit/train:compose-{locked.requirements}",
        f"requirements: &requirements {locked.requirements}",
        f'tensorflow: &tensorflow "${{TOOLKIT_TENSORFLOW:-{locked.tensorflow}}}"',
    ]


def _list_gpu_compose(table: Table) -> list[str]:
    locked = table.find_newest(cuda=True)
    return [
        f'image: &image "toolkit/train:compose-${{TOOLKIT_REQUIREMENTS:-{locked.requirements}}}"',
        f'requirements: &requirements "${{TOOLKIT_REQUIREMENTS:-{locked.requirements}}}"',
        f'tensorflow: &tensorflow "${{TOOLKIT_TENSORFLOW:-{locked.tensorflow}}}"',
    ]


def _list_requirements(table: Table, packages: Mapping[str, Any]) -> dict[str, list[str]]:
    extras = packages["project"]["optional-dependencies"]
    sets = {item.requirements: list_packages(table, item) for item in table.published}
    sets |= {row.parts: _list_parts(row) for row in table.cuda_rows.values() if row.parts}
    sets |= {f"headers-{version}": [f"tensorflow-cpu=={version}"] for version in table.tensorflow_rows}
    return {
        **sets,
        "train": [item for item in extras["train"] if not item.startswith("tensorflow")],
        "toolkit": [*packages["project"]["dependencies"], *packages["build-system"]["requires"]],
        "dev": extras["dev"],
    }


def _list_parts(row: CudaRow) -> list[str]:
    parts = (name for name in ("cuda-runtime", "cuda-nvcc", "curand", "nvvm") if name in row.components)
    named, wheels = {**{name: row.components[name] for name in parts}, **row.headers}, find_wheels(row.version)
    return [f"{wheels[name].package}=={version}" for name, version in named.items()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
