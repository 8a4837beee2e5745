"""What is wanted, checked against the version table before anything starts: a doomed build costs hours."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit import capability, rules, versions
from toolkit.errors import UnsupportedError
from toolkit.matrix import Failure, Matrix, Published
from toolkit.rules import Asked


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A set of versions that the table allows.

    Attributes:
        tensorflow, python, cuda, cudnn: exact versions.
        capabilities: as TensorFlow's build reads them, such as ``compute_75``.
        bazel: version that this TensorFlow is built with.
        clang: major version of our toolchain's compiler.
        requirements: the locked run-time set of this Python, CUDA and cuDNN; empty where none is locked.
        bazel_arguments: flags that the version of TensorFlow needs, then those that answer known failures.
        warnings: what is worth knowing of this very set before the build, one line each.
        answered: known failures that every set meets and that the toolchain answers, one line each.
    """

    tensorflow: str
    python: str
    cuda: str
    cudnn: str
    capabilities: tuple[str, ...]
    bazel: str
    clang: str
    requirements: str
    bazel_arguments: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """Compute capabilities as plain numbers: ``7.5``."""
        return tuple(dict.fromkeys(capability.number(item) for item in self.capabilities))


def resolve(
    matrix: Matrix,
    *,
    tensorflow: str | None = None,
    python: str | None = None,
    cuda: str | None = None,
    cudnn: str | None = None,
    capabilities: Sequence[str] = (),
) -> Spec:
    """Decide whether a wheel of this set can be built from source.

    What is None is taken from the table's default.

    Raises:
        UsageError: a value is not written as a version.
        UnsupportedError: the set cannot work; the message has every reason and the nearest set that can.
    """
    asked = _read(matrix, tensorflow=tensorflow, python=python, cuda=cuda, cudnn=cudnn, capabilities=capabilities)
    reasons = rules.find_reasons(matrix, asked)
    if reasons:
        nearest = rules.suggest(matrix, asked).render()
        raise UnsupportedError(
            reasons[0], why="; ".join(f"also, {each}" for each in reasons[1:]), remedy=f"nearest that works: {nearest}"
        )
    locked = _find_locked(matrix, asked)
    failures = rules.find_failures(matrix, asked)
    row = matrix.tensorflow(asked.tensorflow)
    return Spec(
        tensorflow=asked.tensorflow,
        python=asked.python,
        cuda=asked.cuda,
        cudnn=asked.cudnn,
        capabilities=asked.capabilities,
        bazel=row.bazel,
        clang=matrix.toolchain.clang,
        requirements=locked.requirements if locked else "",
        bazel_arguments=(*row.flags, *(flag for failure in failures for flag in failure.flags)),
        warnings=(*_warn(matrix, asked, locked), *(_describe(failure) for failure in failures if failure.when)),
        answered=tuple(_describe(failure) for failure in failures if not failure.when),
    )


def _read(
    matrix: Matrix,
    *,
    tensorflow: str | None,
    python: str | None,
    cuda: str | None,
    cudnn: str | None,
    capabilities: Sequence[str],
) -> Asked:
    default = matrix.default
    asked = Asked(
        tensorflow=default.tensorflow if tensorflow is None else tensorflow,
        python=default.python if python is None else python,
        cuda=default.cuda if cuda is None else cuda,
        cudnn=default.cudnn if cudnn is None else cudnn,
        capabilities=capability.normalize(capabilities or default.capabilities),
    )
    for name in ("TensorFlow", "Python", "CUDA", "cuDNN"):
        versions.parse(getattr(asked, name.lower()), name)
    return asked


def _find_locked(matrix: Matrix, asked: Asked) -> Published | None:
    wanted = (asked.tensorflow, asked.cuda, asked.cudnn)
    fitting = (item for item in matrix.published if (item.tensorflow, item.cuda, item.cudnn) == wanted)
    return next((item for item in fitting if asked.python in item.python), None)


def _warn(matrix: Matrix, asked: Asked, locked: Published | None) -> Iterable[str]:
    row = matrix.tensorflow(asked.tensorflow)
    if not row.tested:
        yield f"TensorFlow {row.version} has not been run by this project: its row comes from {', '.join(row.sources)}"
    documented = row.clang.partition(".")[0]
    if documented != matrix.toolchain.clang:
        yield f"upstream documents clang {documented} for {row.version}; our toolchain has {matrix.toolchain.clang}"
    if locked is None:
        yield "no run-time set is locked for this TensorFlow, Python, CUDA and cuDNN: build-image will refuse the wheel"


def _describe(failure: Failure) -> str:
    return f"{failure.id}: {failure.symptom} ({', '.join(failure.issues)}); ours: {failure.ours}"
