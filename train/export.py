"""Exports a model as SavedModel and StableHLO, from bytes to logits: ``python -m train.export RUN [--out DIR]``."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from train import checkpoint, runtime
from train.cli import make_app
from train.config import Precision
from train.errors import CheckError, DataError, explain_errors
from train.files import replacing_folder, write_text, writing
from train.reader import read_folder_config

BATCH: Final = 4
"""Images in a batch of StableHLO, whose shapes are fixed."""

TOLERANCES: Final[dict[Precision, float]] = {
    "float32": 1e-4,
    "float64": 1e-4,
    "mixed_float16": 0.02,
    "mixed_bfloat16": 0.1,
}
"""Largest allowed difference of logits, relative to the largest logit. Other kernels round differently, and half
precision rounds after each of hundreds of operations.
"""

SAVED_MODEL, STABLE_HLO = "savedmodel", "model.stablehlo.mlir"

Function = Callable[[Any], Any]


def export(folder: Path, out: Path) -> dict[str, float]:
    """Export a run; returns each format's largest relative difference. Raises a CheckError, and writes nothing."""
    config = read_folder_config(folder)
    saved, _ = checkpoint.load(folder / "checkpoints")
    if saved is None:
        raise DataError(f"{folder} has no good checkpoint to export")
    checkpoint.require_same_run(saved, config.digest)
    runtime.prepare(saved.position.environment["threads"], tf32=config.tf32)
    import tensorflow as tf

    tf.random.set_seed(0)  # saving draws random names, which deterministic TensorFlow refuses without a seed
    from train import state, step
    from train.model.densenet import build
    from train.model.formulation import FOR_CPU

    # The formulation for CPUs runs on every device, whatever the model was trained on.
    model = build(config, FOR_CPU)
    for name, variable in state.name_weights(model).items():
        variable.assign(saved.values[name])
    moments = (np.asarray(saved.position.environment[name]) for name in ("mean", "std"))
    evaluation_step = step.make_evaluation_step(model, *moments)
    function = tf.function(
        evaluation_step,
        input_signature=[tf.TensorSpec((None, *config.shape), tf.uint8, name="images")],
        autograph=False,
    )
    images = np.random.default_rng(0).integers(0, 256, (BATCH, *config.shape)).astype(np.uint8)
    expected = function(tf.constant(images)).numpy()
    with replacing_folder(out, (SAVED_MODEL, STABLE_HLO)) as new, writing(out, tf.errors.OpError):
        loaded = {
            "savedmodel": write_saved_model(function, model, new / SAVED_MODEL),
            "stablehlo": write_stable_hlo(evaluation_step, images, expected, new / STABLE_HLO),
        }
        tolerance = TOLERANCES[config.precision]
        return {name: _compare(name, again(tf.constant(images)), expected, tolerance) for name, again in loaded.items()}


def _compare(name: str, found: Any, expected: NDArray[np.floating[Any]], tolerance: float) -> float:
    difference = float(np.abs(np.asarray(found) - expected).max() / np.abs(expected).max())
    if not difference < tolerance:
        raise CheckError(f"the exported {name} differs from the model by {difference:.1e} of its largest logit")
    return difference


def write_saved_model(function: Any, model: Any, path: Path) -> Function:
    import tensorflow as tf

    module = tf.Module()
    module.model, module.serve = model, function
    tf.saved_model.save(module, str(path), signatures=function.get_concrete_function())
    again = tf.saved_model.load(str(path)).signatures["serving_default"]
    return lambda images: next(iter(again(images=images).values()))


def write_stable_hlo(
    function: Function, images: NDArray[np.uint8], expected: NDArray[np.floating[Any]], path: Path
) -> Function:
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    # Turn the variables into constants, so that the text contains the weights.
    concrete = tf.function(function, autograph=False).get_concrete_function(tf.constant(images))
    frozen = convert_variables_to_constants_v2(concrete)
    compiled = tf.function(lambda images: frozen(images)[0], jit_compile=True, autograph=False)
    text = compiled.experimental_get_compiler_ir(tf.constant(images))(stage="stablehlo")
    write_text(path, text)
    module = path.read_text(encoding="utf-8")
    platform = "CUDA" if tf.config.list_logical_devices("GPU") else "CPU"

    def run(images: Any) -> Any:
        return gen_xla_ops.xla_call_module(
            [images], version=5, module=module, Sout=[expected.shape], Tout=[expected.dtype], platforms=[platform]
        )[0]

    loaded: Function = tf.function(run, jit_compile=True, autograph=False)
    return loaded


def _collect(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; by default into the run.", metavar="DIR")] = None,
) -> None:
    """Export the model of a run and check what was written."""
    out = out or run / "export"
    print(json.dumps({"folder": str(out), "differences": export(run, out)}))


@explain_errors
def main(argv: Sequence[str] | None = None) -> int:
    make_app(_collect)(None if argv is None else list(argv), standalone_mode=argv is None)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
