"""Checks the versions that a command asks for against the version table, before anything starts.

Each rule returns reasons instead of raising. So an error can name them all, and the search for a suggestion uses the
same rules.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.errors import UnsupportedError
from toolkit.smoke.inside.gpu_rules import compare_cudnn
from toolkit.versions import numbers
from toolkit.versions.table import Failure, Locked, Table, TensorflowRow, Toolchain


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A requested set of versions. Their form is correct; whether they work together is not checked yet."""

    tensorflow: str
    python: str
    cuda: str
    cudnn: str
    capabilities: tuple[str, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """The compute capabilities as plain numbers such as ``7.5``."""
        return numbers.list_plain(self.capabilities)

    def render(self) -> str:
        flags = [f"--tensorflow {self.tensorflow}", f"--python {self.python}"]
        flags += [f"--cuda {self.cuda}", f"--cudnn {self.cudnn}"]
        return " ".join([*flags, *(f"--compute-capability {item}" for item in self.capabilities)])


@dataclass(frozen=True, kw_only=True)
class Spec(Asked):
    bazel: str  # version that this TensorFlow is built with
    clang: str  # major version of the toolchain's compiler
    requirements: str  # the locked run-time set of this Python, CUDA and cuDNN; empty if none is locked
    # flags that the version of TensorFlow needs, then those that avoid known failures
    bazel_arguments: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # about this set, one line each
    answered: tuple[str, ...] = ()  # known failures of every set that the toolchain avoids, one line each


def resolve(
    table: Table,
    *,
    tensorflow: str | None = None,
    python: str | None = None,
    cuda: str | None = None,
    cudnn: str | None = None,
    capabilities: Sequence[str] = (),
) -> Spec:
    """Return the set to build from source.

    A value of None takes the table's default. Raises UsageError: a value is not a version; UnsupportedError, with every
    reason and the nearest set that can: the set cannot work.
    """
    asked = _read(table, tensorflow=tensorflow, python=python, cuda=cuda, cudnn=cudnn, capabilities=capabilities)
    reasons = find_reasons(table, asked)
    if reasons:
        nearest = suggest(table, asked).render()
        raise UnsupportedError(
            reasons[0], why="; ".join(f"also, {each}" for each in reasons[1:]), remedy=f"nearest that works: {nearest}"
        )
    locked = find_locked(table, asked.tensorflow, asked.python, asked.cuda, asked.cudnn)
    failures = find_failures(table, asked)
    row = table.tensorflow(asked.tensorflow)
    return Spec(
        **vars(asked),
        bazel=row.bazel,
        clang=find_toolchains(table, asked)[0].clang,
        requirements=locked.requirements if locked else "",
        bazel_arguments=(*row.flags, *(flag for failure in failures for flag in failure.flags)),
        warnings=(*_warn(table, asked, locked), *(_describe(failure) for failure in failures if failure.when)),
        answered=tuple(_describe(failure) for failure in failures if not failure.when),
    )


def find_locked(table: Table, tensorflow: str, python: str, cuda: str, cudnn: str) -> Locked | None:
    wanted = (tensorflow, cuda, cudnn)
    fitting = (item for item in table.published if (item.tensorflow, item.cuda, item.cudnn) == wanted)
    return next((item for item in fitting if python in item.python), None)


def find_toolchains(table: Table, asked: Asked) -> list[Toolchain]:
    """Return the compilers that compile a whole set, best first."""
    served = (item for item in table.toolchains if item.serves(asked.tensorflow, asked.cuda))
    return [item for item in served if not {*asked.numbers} - {*item.capabilities}]


def find_failures(table: Table, asked: Asked) -> list[Failure]:
    values = {
        "tensorflow": [asked.tensorflow],
        "cuda": [asked.cuda],
        "cudnn": [asked.cudnn],
        "capability": [numbers.strip_suffix(item) for item in asked.numbers],
    }
    return [failure for failure in table.failures if failure.affects(**values)]


def find_reasons(table: Table, asked: Asked) -> list[str]:
    """Return all reasons why a set cannot be built. Raises UnsupportedError: its TensorFlow is not in the table."""
    row = table.tensorflow(asked.tensorflow)
    reasons = []
    if asked.python not in row.python:
        reasons.append(f"TensorFlow {row.version} has no Python {asked.python}, only {', '.join(row.python)}")
    reasons += _find_unknown_keys(row, asked)
    reasons += _find_unknown_capabilities(table, asked)
    reasons += _find_refused(table, asked)
    reasons += _find_missing_parts(table, asked)
    reasons += _find_unfit_runtime(table, asked)
    return reasons


def suggest(table: Table, asked: Asked) -> Asked:
    """Return the nearest set that can be built: first by TensorFlow, then by CUDA, then by cuDNN."""
    default = table.default
    for version in _order_by_nearness(asked.tensorflow, list(table.tensorflow_rows), default.tensorflow):
        row = table.tensorflow_rows[version]
        python = numbers.find_nearest(asked.python, row.python, prefer=default.python)
        for cuda in _order_by_nearness(asked.cuda, row.cuda, default.cuda):
            fitted = _fit(asked.capabilities, _compilable(table, version, cuda))
            for cudnn in _order_by_nearness(asked.cudnn, row.cudnn, default.cudnn):
                found = Asked(tensorflow=version, python=python, cuda=cuda, cudnn=cudnn, capabilities=fitted)
                if not find_reasons(table, found):
                    return found
    raise LookupError("the table has no set that can be built")  # test_table.py shows that it has


def _find_unknown_keys(row: TensorflowRow, asked: Asked) -> list[str]:
    reasons = []
    for label, value, known in (("CUDA", asked.cuda, row.cuda), ("cuDNN", asked.cudnn, row.cudnn)):
        if value in known:
            continue
        note = " (the full x.y.z is needed)" if value.count(".") < 2 else ""
        reasons.append(f"TensorFlow {row.version} has no {label} {value} in its tables{note}: {', '.join(known)}")
    return reasons


def _find_unknown_capabilities(table: Table, asked: Asked) -> list[str]:
    cuda = table.cuda_rows.get(asked.cuda)
    unknown = [item for item in asked.numbers if cuda and item not in cuda.capabilities]
    reasons = [f"CUDA {asked.cuda} does not know compute capability {item}" for item in unknown]
    if reasons or find_toolchains(table, asked):
        return reasons
    # The last of the table compiles the most.
    newest = table.toolchains[-1]
    missing = [item for item in asked.numbers if item not in newest.capabilities] or [", ".join(asked.numbers)]
    return [f"clang {newest.clang} of the toolchain does not know compute capability {item}" for item in missing]


def _find_refused(table: Table, asked: Asked) -> list[str]:
    return [
        f"{failure.symptom} ({', '.join(failure.issues)})" for failure in find_failures(table, asked) if failure.refuse
    ]


def _find_missing_parts(table: Table, asked: Asked) -> list[str]:
    cuda = table.cuda_rows.get(asked.cuda)
    if cuda is None or cuda.parts:
        return []
    return [
        f"the toolchain's parts of CUDA {asked.cuda} are not locked here, so that it could not be proven to compile"
    ]


def _find_unfit_runtime(table: Table, asked: Asked) -> list[str]:
    """Return why the cuDNN of the locked run-time set for this CUDA does not fit the one asked for."""
    held = [item.cudnn for item in table.published if (item.tensorflow, item.cuda) == (asked.tensorflow, asked.cuda)]
    if not held or asked.cudnn in held:
        return []
    relation = "older" if numbers.parse(asked.cudnn) < numbers.parse(held[0]) else "newer"
    why = {
        "major": "TensorFlow loads only the major version that it was built for",
        "older": "TensorFlow does not load an older cuDNN than it was built for",
        "": "the wheel would load, but in an image without the cuDNN asked for",
    }[compare_cudnn(asked.cudnn, held[0])]
    return [
        f"cuDNN {asked.cudnn} is {relation} than the {held[0]} of the locked run-time set of CUDA {asked.cuda}: {why}"
    ]


def _compilable(table: Table, tensorflow: str, cuda: str) -> list[str]:
    # Without those such as 9.0a: their code runs on one architecture only.
    served = {number for item in table.toolchains if item.serves(tensorflow, cuda) for number in item.capabilities}
    known = table.cuda_rows[cuda].capabilities
    return [item for item in known if item == numbers.strip_suffix(item) and item in served]


def _fit(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    nearest = {name: numbers.find_nearest_capability(numbers.to_plain(name), known) for name in names}
    return numbers.normalize_capabilities(
        f"{name.partition('_')[0]}_{number.replace('.', '')}" for name, number in nearest.items()
    )


def _order_by_nearness(asked: str, known: Sequence[str], prefer: str) -> list[str]:
    rest, ordered = list(known), []
    while rest:
        ordered.append(numbers.find_nearest(asked, rest, prefer=prefer))
        rest.remove(ordered[-1])
    return ordered


def _read(
    table: Table,
    *,
    tensorflow: str | None,
    python: str | None,
    cuda: str | None,
    cudnn: str | None,
    capabilities: Sequence[str],
) -> Asked:
    default = table.default
    asked = Asked(
        tensorflow=default.tensorflow if tensorflow is None else tensorflow,
        python=default.python if python is None else python,
        cuda=default.cuda if cuda is None else cuda,
        cudnn=default.cudnn if cudnn is None else cudnn,
        capabilities=numbers.normalize_capabilities(capabilities or default.capabilities),
    )
    for name in ("TensorFlow", "Python", "CUDA", "cuDNN"):
        numbers.parse(getattr(asked, name.lower()), name)
    return asked


def _warn(table: Table, asked: Asked, locked: Locked | None) -> Iterable[str]:
    row = table.tensorflow(asked.tensorflow)
    if not row.tested:
        yield f"TensorFlow {row.version} has not been run by this project: its row comes from {', '.join(row.sources)}"
    documented, clang = row.clang.partition(".")[0], find_toolchains(table, asked)[0].clang
    if documented != clang:
        yield f"upstream documents clang {documented} for {row.version}; this set is compiled by clang {clang}"
    if locked is None:
        yield "no run-time set is locked for this TensorFlow, Python, CUDA and cuDNN: build-image will refuse the wheel"


def _describe(failure: Failure) -> str:
    return f"{failure.id}: {failure.symptom} ({', '.join(failure.issues)}); answer: {failure.ours}"
