"""Why a set of versions cannot be built, and the nearest set that can.

Each rule returns reasons instead of raising, so that a refusal can name them all, and so that the suggestion is
searched for with the very same rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit import capability, versions
from toolkit.matrix import Failure, Matrix, TensorflowRow


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A set of versions, well written but not checked."""

    tensorflow: str
    python: str
    cuda: str
    cudnn: str
    capabilities: tuple[str, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Compute capabilities as plain numbers."""
        return tuple(dict.fromkeys(capability.number(item) for item in self.capabilities))

    def render(self) -> str:
        """As flags of ``toolkit build-wheel``."""
        flags = [f"--tensorflow {self.tensorflow}", f"--python {self.python}"]
        flags += [f"--cuda {self.cuda}", f"--cudnn {self.cudnn}"]
        return " ".join([*flags, *(f"--compute-capability {item}" for item in self.capabilities)])


def find_failures(matrix: Matrix, asked: Asked) -> list[Failure]:
    """Known upstream failures that touch a set."""
    values = {
        "tensorflow": [asked.tensorflow],
        "cuda": [asked.cuda],
        "cudnn": [asked.cudnn],
        "capability": [capability.base(item) for item in asked.numbers],
    }
    return [failure for failure in matrix.failures if failure.touches(**values)]


def find_reasons(matrix: Matrix, asked: Asked) -> list[str]:
    """All reasons why a set cannot be built; none if it can.

    Raises:
        UnsupportedError: the table does not know this TensorFlow.
    """
    row = matrix.tensorflow(asked.tensorflow)
    reasons = []
    if not row.hermetic:
        reasons.append(
            f"TensorFlow {row.version} cannot be built here: before 2.18 it wants CUDA installed beside the compiler"
        )
    if asked.python not in row.python:
        reasons.append(f"TensorFlow {row.version} has no Python {asked.python}, only {', '.join(row.python)}")
    reasons += _find_unknown_keys(row, asked) if row.hermetic else []
    reasons += _find_unknown_capabilities(matrix, asked)
    reasons += _find_refused(matrix, asked)
    reasons += _find_missing_parts(matrix, asked)
    reasons += _find_unfit_runtime(matrix, asked)
    return reasons


def suggest(matrix: Matrix, asked: Asked) -> Asked:
    """The nearest set without a reason against it: first by TensorFlow, then by CUDA, then by cuDNN."""
    buildable = {row.version: row for row in matrix.rows() if row.hermetic}
    default = matrix.default
    for version in _order_by_nearness(asked.tensorflow, list(buildable), default.tensorflow):
        row = buildable[version]
        python = versions.find_nearest(asked.python, row.python, prefer=default.python)
        for cuda in _order_by_nearness(asked.cuda, row.cuda, default.cuda):
            fitted = _fit(asked.capabilities, _compilable(matrix, cuda))
            for cudnn in _order_by_nearness(asked.cudnn, row.cudnn, default.cudnn):
                found = Asked(tensorflow=version, python=python, cuda=cuda, cudnn=cudnn, capabilities=fitted)
                if not find_reasons(matrix, found):
                    return found
    raise LookupError("the table has no set that can be built")  # test_matrix.py shows that it has


def _find_unknown_keys(row: TensorflowRow, asked: Asked) -> list[str]:
    reasons = []
    for label, value, known in (("CUDA", asked.cuda, row.cuda), ("cuDNN", asked.cudnn, row.cudnn)):
        if value in known:
            continue
        note = " (the full x.y.z is needed)" if value.count(".") < 2 else ""
        reasons.append(f"TensorFlow {row.version} has no {label} {value} in its tables{note}: {', '.join(known)}")
    return reasons


def _find_unknown_capabilities(matrix: Matrix, asked: Asked) -> list[str]:
    cuda = matrix.cuda_rows.get(asked.cuda)
    unknown = [item for item in asked.numbers if cuda and item not in cuda.capabilities]
    too_new = [item for item in asked.numbers if item not in unknown and _is_too_new(matrix, item)]
    reasons = [f"CUDA {asked.cuda} does not know compute capability {item}" for item in unknown]
    return reasons + [
        f"clang {matrix.toolchain.clang} of the toolchain does not know compute capability {item}" for item in too_new
    ]


def _find_refused(matrix: Matrix, asked: Asked) -> list[str]:
    return [
        f"{failure.symptom} ({', '.join(failure.issues)})" for failure in find_failures(matrix, asked) if failure.refuse
    ]


def _find_missing_parts(matrix: Matrix, asked: Asked) -> list[str]:
    cuda = matrix.cuda_rows.get(asked.cuda)
    if cuda is None or cuda.parts:
        return []
    return [
        f"the toolchain's parts of CUDA {asked.cuda} are not locked here, so that it could not be proven to compile"
    ]


def _find_unfit_runtime(matrix: Matrix, asked: Asked) -> list[str]:
    """The locked run-time set of this CUDA has one cuDNN: no other can be asked for.

    What TensorFlow does with another is IsSourceCompatibleWithCudnnLibrary in its cuda_dnn.cc: it loads a cuDNN of the
    same major version whose minor is not lower than the one it was built for; the patch number does not count.
    """
    held = [item.cudnn for item in matrix.published if (item.tensorflow, item.cuda) == (asked.tensorflow, asked.cuda)]
    if not held or asked.cudnn in held:
        return []
    built, loaded = versions.parse(asked.cudnn), versions.parse(held[0])
    relation = "older" if built < loaded else "newer"
    if built[0] != loaded[0]:
        why = "TensorFlow loads only the major version that it was built for"
    elif built[:2] > loaded[:2]:
        why = "TensorFlow does not load an older cuDNN than it was built for"
    else:
        why = "the wheel would load, but in an image without the cuDNN asked for"
    return [
        f"cuDNN {asked.cudnn} is {relation} than the {held[0]} of the locked run-time set of CUDA {asked.cuda}: {why}"
    ]


def _compilable(matrix: Matrix, cuda: str) -> list[str]:
    # Not 9.0a and its like: they are for one chip, nothing newer runs them.
    known = matrix.cuda_rows[cuda].capabilities
    return [item for item in known if item == capability.base(item) and not _is_too_new(matrix, item)]


def _is_too_new(matrix: Matrix, number: str) -> bool:
    # A letter, as in 9.0a, names code for one architecture alone, which clang 17 does not know either.
    base = capability.base(number)
    return base != number or versions.parse(base) > versions.parse(matrix.toolchain.capabilities_max)


def _fit(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    nearest = [(name.partition("_")[0], capability.find_nearest(capability.number(name), known)) for name in names]
    return capability.normalize(f"{prefix}_{number.replace('.', '')}" for prefix, number in nearest)


def _order_by_nearness(asked: str, known: Sequence[str], prefer: str) -> list[str]:
    rest, ordered = list(known), []
    while rest:
        ordered.append(versions.find_nearest(asked, rest, prefer=prefer))
        rest.remove(ordered[-1])
    return ordered
