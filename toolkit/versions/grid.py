"""Lists every set of TensorFlow, CUDA, compute capability and Python of the table, each proven, refused or untried."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from toolkit.versions import numbers, proofs
from toolkit.versions.rules import Asked, find_reasons, find_toolchains
from toolkit.versions.table import Table, TensorflowRow

State = Literal["proven", "failed", "refused", "untried"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A set, for every Python that its TensorFlow has. ``why``: the reason of a refusal or failure."""

    tensorflow: str
    cuda: str
    capability: str
    pythons: tuple[str, ...]
    state: State
    clang: str = ""  # major version of its compiler; empty if it is refused
    why: str = ""
    date: str = ""  # date, digest: of the proof
    digest: str = ""


class Evidence(TypedDict):
    state: State
    why: NotRequired[str]
    date: NotRequired[str]
    digest: NotRequired[str]


def list_cells(table: Table) -> Iterator[Cell]:
    """Yield the cells, newest TensorFlow and CUDA first. Whether a toolchain works does not depend on Python."""
    known = proofs.read()
    for row in table.rows():
        for cuda in reversed(row.cuda):
            # One capability that every compiler knows tells whether the release is refused as a whole.
            whole = _find_reason(table, row, cuda, "9.0")
            for capability in table.cuda_rows[cuda].capabilities:
                name = {"tensorflow": row.version, "cuda": cuda, "capability": capability}
                why = whole or _find_reason(table, row, cuda, capability)
                if why:
                    yield Cell(**name, pythons=row.python, state="refused", why=why)
                    continue
                clang = find_toolchains(table, _ask(table, row, cuda, row.cudnn[-1], capability))[0].clang
                proof = known.get((row.version, cuda, clang))
                yield Cell(**name, pythons=row.python, clang=clang, **_look_up(proof, capability, clang))


def list_groups(table: Table) -> dict[tuple[str, str, str], list[str]]:
    """Return the capabilities to prove by TensorFlow, CUDA and clang."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell in list_cells(table):
        if cell.clang:
            groups.setdefault((cell.tensorflow, cell.cuda, cell.clang), []).append(cell.capability)
    return groups


def _look_up(proof: proofs.Proof | None, capability: str, clang: str) -> Evidence:
    if proof is None or proof.digest != proofs.digest_inputs(proof.tensorflow, proof.cuda, clang):
        return {"state": "untried"}
    evidence: Evidence = {"state": "proven", "date": proof.date, "digest": proof.digest}
    if capability in proof.failed:
        return {**evidence, "state": "failed", "why": proof.failed[capability]}
    return evidence if capability in proof.proven else {"state": "untried"}


def _find_reason(table: Table, row: TensorflowRow, cuda: str, capability: str) -> str:
    """Return why no cuDNN of a TensorFlow makes a set that can be built, or an empty string."""
    first = ""
    for cudnn in reversed(row.cudnn):
        reasons = find_reasons(table, _ask(table, row, cuda, cudnn, capability))
        if not reasons:
            return ""
        first = first or reasons[0]
    return first


def _ask(table: Table, row: TensorflowRow, cuda: str, cudnn: str, capability: str) -> Asked:
    return Asked(
        tensorflow=row.version,
        python=row.python[-1],
        cuda=cuda,
        cudnn=cudnn,
        capabilities=numbers.normalize_capabilities([capability]),
        base=table.default_base.codename,
    )
