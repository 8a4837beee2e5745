"""Exports the network of a run for other programs: ``toolkit export RUN --format FORMAT``.

A format is published only if its file, loaded again, gives the probabilities of the run's own network for parts of real
photographs. All formats take images as bytes but the SavedModel, which takes encoded files and does the rest itself.
"""

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from train.cli import run_command
from train.config.configuration import FORMATS, Format, Precision
from train.config.presets import require_choice
from train.data import images
from train.errors import CheckError, PreflightError
from train.record.reader import Inputs
from train.system import output
from train.system.files import replacing_folder, write_text, writing
from train.use import network

if TYPE_CHECKING:
    from train.use.network import Network

FILES: Final[dict[Format, str]] = {
    "keras": "model.keras",
    "saved-model": "saved-model",
    "tflite": "model.tflite",
    "stablehlo": "model.stablehlo.mlir",
    "onnx": "model.onnx",
}
LABELS: Final = "labels.txt"
"""Names of the classes, one a line, in the order of the probabilities."""

BATCH: Final = 4
"""Images in a batch of StableHLO, whose shapes are fixed."""

TOLERANCES: Final[dict[Precision, float]] = {
    "float32": 1e-4,
    "float64": 1e-4,
    "mixed_float16": 0.02,
    "mixed_bfloat16": 0.1,
}
"""Largest allowed difference of log-probabilities, relative to the largest. Other kernels round differently, and half
precision, which only the run's own network has, rounds after each of hundreds of operations.
"""

ROUNDED: Final = 0.01
"""The same for the SavedModel, which scales images itself: a pixel can differ by one level where a sum lies between
two.
"""

NOTE: Final = """\
The signature `serving_default` takes `images`: the contents of image files, as a list of any length. It gives `labels`
and `probabilities`. It takes JPEG, PNG, GIF, and BMP that is not compressed and has 8, 24 or 32 bits for a pixel. Any
other file is an error of the whole call: convert it to PNG. Of an animation the first frame counts. Images are not
turned as their EXIF data says, and transparent pixels are taken for opaque.
"""
"""Description of a SavedModel, in the folder that TensorFlow has for extra files: a signature cannot have one."""

FLOOR: Final = -40.0
"""Log-probabilities below this are taken for equal."""

Values = NDArray[np.floating[Any]]
Compute = Callable[[list[bytes], NDArray[np.uint8]], Values]
"""A function of encoded images, and of the same images decoded and fitted, to probabilities (batch, classes)."""


def export(folder: Path, out: Path, formats: Sequence[Format]) -> dict[Format, float]:
    """Export a run; returns the largest relative difference of each format's log-probabilities from the network's.

    Other formats in `out` stay there. Raises a CheckError if a difference is too large; then nothing is changed.
    """
    if "onnx" in formats:
        require_onnx()
    trained = network.load(folder)
    from tensorflow import errors

    from train.use import portable

    model = portable.build(trained)
    encoded = make_samples(trained.inputs)
    pixels = np.stack(
        [images.center_crop(images.load(content), trained.inputs.shape, trained.inputs.center) for content in encoded]
    )
    expected = trained.compute_probabilities(pixels)
    allowed = TOLERANCES[trained.config.precision]
    differences: dict[Format, float] = {}
    with replacing_folder(out, (*FILES.values(), LABELS)) as new, writing(out, errors.OpError):
        for name in formats:
            compute = _WRITERS[name](trained, model, new / FILES[name])
            tolerance = max(allowed, ROUNDED) if name == "saved-model" else allowed
            differences[name] = compare(name, compute(encoded, pixels), expected, tolerance)
        for name in set(FILES) - set(formats):
            _keep(out / FILES[name], new / FILES[name])
        write_text(new / LABELS, "".join(f"{label}\n" for label in trained.inputs.class_names))
    return differences


def compare(name: str, actual: Values, expected: Values, tolerance: float) -> float:
    """Return the largest difference of log-probabilities, relative to the largest; raises a CheckError if too large."""
    logs = [np.log(np.maximum(np.asarray(values, np.float64), np.exp(FLOOR))) for values in (actual, expected)]
    difference = float(np.abs(logs[0] - logs[1]).max() / np.abs(logs[1]).max())
    if not difference < tolerance:
        raise CheckError(
            f"the exported {name} differs from the network of the run",
            why=f"its log-probabilities differ by {difference:.1e} of the largest, and {tolerance:.0e} are allowed",
            remedy="nothing was published; report this with the versions of Python, TensorFlow and Keras",
        )
    return difference


def make_samples(inputs: Inputs) -> list[bytes]:
    """Return parts of the photographs that come with scikit-learn, of other sizes than the network's, as PNG files.

    They get the mean and the deviation of the training images, because other images can make a network so sure of a
    class that nothing else shows.
    """
    from PIL import Image
    from sklearn.datasets import load_sample_images

    generator, samples = np.random.default_rng(0), []
    photographs = [(picture - picture.mean((0, 1))) / picture.std((0, 1)) for picture in load_sample_images().images]
    for index in range(BATCH):
        values = photographs[index % len(photographs)] * inputs.std + inputs.mean
        photograph = Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))
        side = min(photograph.height, int(max(inputs.shape[:2]) * (1 + index)))
        left = int(generator.integers(photograph.width - side + 1))
        top = int(generator.integers(photograph.height - side + 1))
        part = photograph.crop((left, top, left + side, top + side - index * side // 8))
        file = io.BytesIO()
        part.save(file, "PNG")
        samples.append(file.getvalue())
    return samples


def _keep(old: Path, new: Path) -> None:
    if old.is_dir():
        shutil.copytree(old, new)
    elif old.exists():
        shutil.copy2(old, new)


def _write_keras(trained: "Network", model: Any, path: Path) -> Compute:
    import keras

    del trained
    model.save(path)
    again = keras.models.load_model(path)
    return lambda _, pixels: np.asarray(again(pixels))


def _write_saved_model(trained: "Network", model: Any, path: Path) -> Compute:
    import tensorflow as tf

    names = tf.constant(trained.inputs.class_names)
    inputs = trained.inputs

    def serve(files: Any) -> dict[str, Any]:
        signature = tf.TensorSpec(inputs.shape, tf.uint8)
        probabilities = model(tf.map_fn(lambda file: decode(file, inputs), files, fn_output_signature=signature))
        return {"labels": tf.gather(names, tf.argmax(probabilities, axis=-1)), "probabilities": probabilities}

    module = tf.Module()
    specification = tf.TensorSpec([None], tf.string, name="images")
    module.model, module.serve = model, tf.function(serve, input_signature=[specification], autograph=False)
    tf.saved_model.save(module, str(path), signatures=module.serve.get_concrete_function())
    (path / "assets.extra").mkdir()
    write_text(path / "assets.extra" / "README.md", NOTE)
    again = tf.saved_model.load(str(path)).signatures["serving_default"]
    return lambda encoded, _: np.asarray(again(images=tf.constant(encoded))["probabilities"])


def decode(file: Any, inputs: Inputs) -> Any:
    """Decode and fit an image in a graph, as ``train.data.images`` does with Pillow: same filter, passes and rounding.

    It does not turn an image as its EXIF data says, and takes transparent pixels for opaque. It takes the formats that
    TensorFlow decodes: JPEG, PNG, GIF and BMP.
    """
    import tensorflow as tf

    height, width, channels = inputs.shape
    image = tf.io.decode_image(file, channels=3, expand_animations=False)
    is_bitmap = tf.equal(tf.strings.substr(file, 0, 2), b"BM")
    image = tf.cast(tf.cond(is_bitmap, lambda: _color_bitmap(file, image), lambda: image), tf.int32)
    if channels == 1:  # Pillow's integer formula
        image = (image[..., :1] * 19595 + image[..., 1:2] * 38470 + image[..., 2:] * 7471 + 0x8000) // 2**16
    sizes = tf.cast(tf.shape(image)[:2], tf.float32)
    share = inputs.center * tf.minimum(sizes[0] / height, sizes[1] / width)
    across = _scale(tf.cast(image, tf.float32)[None], 1, width, share)
    return tf.reshape(tf.cast(_scale(across, 0, height, share), tf.uint8), inputs.shape)


def _color_bitmap(file: Any, image: Any) -> Any:
    """Return the colours of a BMP. Of one with a palette, TensorFlow gives the numbers in the palette."""
    import tensorflow as tf

    def read(place: int, kind: Any) -> Any:
        return tf.cast(tf.io.decode_raw(tf.strings.substr(file, place, kind.size), kind)[0], tf.int32)

    start, header, bits, compression = read(10, tf.int32), read(14, tf.int32), read(28, tf.uint16), read(30, tf.int32)
    # TensorFlow takes 32 bits for blue, green, red and alpha, whatever the masks of a file say.
    usual = tf.equal(tf.strings.substr(file, 54, 12), b"\0\0\xff\0\0\xff\0\0\xff\0\0\0")
    plain = tf.equal(compression, 0) | (tf.equal(compression, 3) & tf.equal(bits, 32) & usual)
    has_depth = (header >= 40) & (tf.equal(bits, 8) | tf.equal(bits, 24) | tf.equal(bits, 32))
    words = "a BMP is taken if it is not compressed and has 8, 24 or 32 bits for a pixel; convert others to PNG"

    def look_up() -> Any:
        palette = tf.io.decode_raw(tf.strings.substr(file, 14 + header, start - 14 - header), tf.uint8)
        return tf.gather(tf.reshape(palette, (-1, 4))[:, 2::-1], tf.cast(image[..., 0], tf.int32))

    with tf.control_dependencies([tf.debugging.Assert(plain & has_depth, [words])]):
        return tf.cond(tf.equal(bits, 8), look_up, lambda: tf.identity(image))


def _scale(image: Any, axis: int, size: int, share: Any) -> Any:
    """Cut the middle of one axis and scale it by 1 / `share` to `size` pixels, rounded to whole values."""
    import tensorflow as tf

    target = tf.unstack(tf.shape(image)[1:3])
    start = (tf.cast(target[axis], tf.float32) - share * size) / 2
    scale, shift = [1.0, 1.0], [0.0, 0.0]
    scale[axis], shift[axis], target[axis] = 1 / share, -start / share, size
    scaled = tf.raw_ops.ScaleAndTranslate(
        images=image, size=tf.stack(target), scale=scale, translation=shift, kernel_type="triangle", antialias=True
    )
    return tf.clip_by_value(tf.floor(scaled + 0.5), 0, 255)


def _freeze(function: Any, pixels: Any) -> Any:
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    return convert_variables_to_constants_v2(tf.function(function, autograph=False).get_concrete_function(pixels))


def _write_tflite(trained: "Network", model: Any, path: Path) -> Compute:
    import tensorflow as tf

    frozen = _freeze(model, tf.TensorSpec((None, *trained.inputs.shape), tf.uint8, name="images"))
    path.write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([frozen]).convert())

    def run(_: list[bytes], pixels: NDArray[np.uint8]) -> Values:
        interpreter = tf.lite.Interpreter(str(path))
        place, *_ = interpreter.get_input_details()
        interpreter.resize_tensor_input(place["index"], pixels.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(place["index"], pixels)
        interpreter.invoke()
        return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))

    return run


def _write_stable_hlo(trained: "Network", model: Any, path: Path) -> Compute:
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    specification = tf.TensorSpec((BATCH, *trained.inputs.shape), tf.uint8)
    frozen = _freeze(model, specification)
    compiled = tf.function(lambda images: frozen(images)[0], jit_compile=True, autograph=False)
    write_text(path, compiled.experimental_get_compiler_ir(tf.zeros(*_split(specification)))(stage="stablehlo"))
    module = path.read_text(encoding="utf-8")
    platform = "CUDA" if tf.config.list_logical_devices("GPU") else "CPU"
    shape = (BATCH, len(trained.inputs.class_names))

    def run(images: Any) -> Any:
        return gen_xla_ops.xla_call_module(
            [images], version=5, module=module, Sout=[shape], Tout=[tf.float32], platforms=[platform]
        )[0]

    loaded = tf.function(run, jit_compile=True, autograph=False)
    return lambda _, pixels: np.asarray(loaded(tf.constant(pixels)))


def _split(specification: Any) -> tuple[Any, Any]:
    return specification.shape, specification.dtype


def require_onnx() -> None:
    """Raise a PreflightError if the converter is missing. No locked set has it."""
    try:
        import onnxruntime
        import tf2onnx

        del onnxruntime, tf2onnx
    except ImportError as error:
        raise PreflightError(
            "--format onnx needs tf2onnx and onnxruntime",
            why=f"{error.name} is not installed, and the locked sets do not have it",
            remedy="install both into an environment of your own with this TensorFlow: pip install tf2onnx onnxruntime",
        ) from error


def _write_onnx(trained: "Network", model: Any, path: Path) -> Compute:
    import onnxruntime
    import tensorflow as tf
    import tf2onnx

    specification = tf.TensorSpec((None, *trained.inputs.shape), tf.uint8, name="images")
    function = tf.function(model, input_signature=[specification], autograph=False)
    tf2onnx.convert.from_function(function, [specification], opset=17, output_path=str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda _, pixels: np.asarray(session.run(None, {"images": pixels})[0])


_WRITERS: Final[dict[Format, Callable[["Network", Any, Path], Compute]]] = {
    "keras": _write_keras,
    "saved-model": _write_saved_model,
    "tflite": _write_tflite,
    "stablehlo": _write_stable_hlo,
    "onnx": _write_onnx,
}


def collect(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help=f"{', '.join(FILES)}; repeatable; by default all but onnx.", metavar="FORMAT"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; by default into the run.", metavar="DIR")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> int:
    """Export the network of a run for other programs, and check what was written on real photographs."""
    for name in formats or ():
        require_choice("format", name, FORMATS)
    out = out or run / "export"
    differences = export(run, out, [name for name in FILES if (name in formats if formats else name != "onnx")])
    if json:
        output.show_json({"folder": output.translate(str(out)), "differences": differences})
    for name, difference in differences.items() if not json else ():
        output.show(output.translate(f"{out / FILES[name]}  differs from the run by {difference:.1e}"))
    return 0


def main(argv: Sequence[str]) -> int:
    return run_command(collect, "export", argv)
