"""Reads which toolchains were proven to compile TensorFlow's headers for GPUs, and when: ``proven.yaml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolkit.base.errors import ToolkitError
from toolkit.versions.set import FIRST_PLATFORM
from toolkit.versions.table import BROKEN, read_yaml

PATH = Path(__file__).with_name("proven.yaml")


@dataclass(frozen=True, kw_only=True)
class Proof:
    tensorflow: str
    cuda: str
    clang: str  # full version
    date: str  # UTC
    proven: tuple[str, ...]  # capabilities
    failed: Mapping[str, str]  # reason for each capability that did not compile
    platform: str = FIRST_PLATFORM  # for which was compiled
    host: str = ""  # platform of the machine that compiled, if it is another

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.platform, self.tensorflow, self.cuda, self.clang.partition(".")[0]


def read(path: Path = PATH) -> dict[tuple[str, str, str, str], Proof]:
    """Return the proofs by platform, TensorFlow, CUDA and clang's major version.

    Raises ToolkitError if the file is damaged.
    """
    try:
        rows = read_yaml(path.read_bytes())["proofs"]
        proofs = [Proof(**{**row, "proven": tuple(row["proven"])}) for row in rows]
    except (OSError, *BROKEN) as error:
        raise ToolkitError(f"{path} is damaged", why=repr(error), remedy="restore it from the repository") from error
    return {proof.key: proof for proof in proofs}
