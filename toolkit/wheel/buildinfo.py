"""What TensorFlow's build wrote down about itself, read without running it.

``tensorflow/python/platform/build_info.py`` is one assignment of literal pairs. It is code from outside, so it is
parsed, never executed or imported.
"""

import ast
from dataclasses import dataclass

MEMBER = "tensorflow/python/platform/build_info.py"


@dataclass(frozen=True, kw_only=True)
class BuildInfo:
    """The values that matter here; empty where the build wrote none, as a CPU build does.

    Attributes:
        cuda: CUDA release, such as ``12.6.1``.
        cudnn: cuDNN version as far as the build knows it: hermetic builds write ``9``.
        capabilities: such as ``sm_75``, ``compute_75``.
    """

    is_cuda: bool = False
    cuda: str = ""
    cudnn: str = ""
    capabilities: tuple[str, ...] = ()


def parse(source: str) -> BuildInfo:
    """Read the module's text.

    Raises:
        ValueError: there is no assignment of literal pairs to ``build_info``.
    """
    try:
        values = _evaluate(_find_value(ast.parse(source)))
        return BuildInfo(
            is_cuda=bool(values.get("is_cuda_build")),
            cuda=_text(values.get("cuda_version", "")),
            cudnn=_text(values.get("cudnn_version", "")),
            capabilities=tuple(_text(item) for item in values.get("cuda_compute_capabilities", ())),
        )
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"build_info cannot be read: {error}") from error


def _find_value(module: ast.Module) -> ast.expr:
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="build_info")], value=ast.Call(args=[argument], keywords=[])):
                return argument
            case ast.Assign(targets=[ast.Name(id="build_info")], value=value):
                return value
    raise ValueError("nothing is assigned to build_info")


def _evaluate(value: ast.expr) -> dict[str, list[str] | str]:
    # literal_eval builds constants and containers, and nothing else.
    return dict(ast.literal_eval(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text is expected, not {value!r:.40}")
    return value
