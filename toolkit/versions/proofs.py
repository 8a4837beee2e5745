"""Reads which toolchains were proven: ``proven.yaml``, which `toolkit matrix --prove` writes.

A proof is void as soon as one of its inputs changes: the proof's own files, the locked parts of CUDA, the locked wheel
whose headers are compiled, or the patches of the system's headers.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from toolkit import digest, files, project
from toolkit.errors import ToolkitError

PATH = Path(__file__).with_name("proven.yaml")
_FILES = ("docker/scripts/proof", "docker/scripts/take-headers", "docker/scripts/link-cuda")
_HEAD = "# What compiled, and what did not: written by `toolkit matrix --prove`. Do not edit.\n"


@dataclass(frozen=True, kw_only=True)
class Proof:
    tensorflow: str
    cuda: str
    clang: str  # full version
    date: str  # UTC
    digest: str  # of the inputs
    proven: tuple[str, ...]  # capabilities
    failed: Mapping[str, str]  # reason for each capability that did not compile

    @property
    def place(self) -> tuple[str, str, str]:
        return self.tensorflow, self.cuda, self.clang.partition(".")[0]


def read(path: Path = PATH) -> dict[tuple[str, str, str], Proof]:
    """Return the proofs by TensorFlow, CUDA and clang's major version. Raises ToolkitError: the file is damaged."""
    try:
        rows = yaml.safe_load(path.read_text())["proofs"]
        found = [Proof(**{**row, "proven": tuple(row["proven"])}) for row in rows]
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, LookupError, TypeError) as error:
        raise ToolkitError(f"{path} is damaged", why=repr(error), remedy="restore it from the repository") from error
    return {proof.place: proof for proof in found}


def write(proofs: Iterable[Proof], path: Path = PATH) -> None:
    rows = [{**asdict(proof), "proven": list(proof.proven)} for proof in sorted(proofs, key=lambda proof: proof.place)]
    text = yaml.safe_dump({"schema": 1, "proofs": rows}, sort_keys=False, width=120, default_flow_style=None)
    files.write_atomically(path, _HEAD + text)


@functools.cache
def digest_inputs(tensorflow: str, cuda: str, clang: str) -> str:
    """Return the digest of what a proof depends on; ``clang`` is its major version."""
    locks = (f"docker/requirements/toolchain-{cuda}.txt", f"docker/requirements/headers-{tensorflow}.txt")
    paths = [project.ROOT / name for name in (*_FILES, *locks)]
    return digest.digest_paths(project.ROOT, [*paths, *find_patches(f"headers/clang-{clang}")])


def find_patches(folder: str) -> list[Path]:
    """Return the series in a folder of ``bazel_patches`` and the patches that it names; none without a series."""
    root = project.locate("bazel_patches") / folder
    if not (root / "series").exists():
        return []
    lines = (line.partition("#")[0].strip() for line in (root / "series").read_text().splitlines())
    return sorted({root / "series", *((root / line).resolve() for line in lines if line)})
