import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.tiers import weekly
from tests.unit.train import runs
from train.__main__ import start
from train.data import images
from train.errors import CheckError, PreflightError, UsageError
from train.record.reader import Inputs
from train.use import export, network, portable, prediction

OPTIONS = ("--checkpoint-every", "4")


@pytest.fixture
def run(finished: Path) -> Path:
    return runs.find_folder(finished, *OPTIONS)


@pytest.mark.slow
def test_all_formats_compute_what_the_network_does(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(["export", str(run), "--out", str(tmp_path / "export"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["differences"]
    assert set(found) == {"keras", "saved-model", "tflite", "stablehlo"}
    assert found.pop("saved-model") < 1e-3  # a pixel may be rounded to another level
    assert max(found.values()) < 1e-5
    names = {"model.keras", "saved-model", "model.tflite", "model.stablehlo.mlir", "labels.txt"}
    assert {path.name for path in (tmp_path / "export").iterdir()} == names
    assert "stablehlo.convolution" in (tmp_path / "export" / "model.stablehlo.mlir").read_text(encoding="utf-8")
    assert (tmp_path / "export" / "labels.txt").read_text(encoding="utf-8").split() == [str(i) for i in range(10)]


@pytest.mark.slow
def test_the_saved_model_takes_files_and_returns_names(run: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    export.export(run, tmp_path / "export", ["saved-model"])
    serve = tf.saved_model.load(str(tmp_path / "export" / "saved-model")).signatures["serving_default"]
    photo = tmp_path / "photo.png"
    Image.fromarray(load_sample_images().images[0]).save(photo)
    found = serve(images=tf.constant([photo.read_bytes()] * 2))
    (expected,) = prediction.predict(network.load(run), [photo], 10)
    assert found["labels"].numpy().tolist() == [expected.guesses[0].label.encode()] * 2
    assert found["probabilities"].shape == (2, 10)


@pytest.mark.slow
def test_a_second_format_leaves_the_first_and_other_files_are_kept_safe(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "export"
    export.export(run, out, ["keras"])
    first = (out / "model.keras").read_bytes()
    export.export(run, out, ["tflite"])
    assert (out / "model.keras").read_bytes() == first
    assert {path.name for path in out.iterdir()} == {"model.keras", "model.tflite", "labels.txt"}
    (out / "notes.txt").touch()
    with pytest.raises(PreflightError, match=r"holds something else: notes\.txt"):
        export.export(run, out, ["keras"])
    assert (out / "notes.txt").exists()


@pytest.mark.parametrize("defect", ["weight", weekly("order"), weekly("not a number")])
def test_an_export_that_differs_is_not_published(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    original = portable.build

    def build_wrong(trained: network.Network) -> Any:
        model = original(trained)
        layer = model.get_layer("block1_layer1_1x1_norm" if defect != "order" else "classifier")
        first, *rest = layer.get_weights()
        changes = {"weight": first * 1.01, "order": first[..., ::-1], "not a number": first * np.nan}
        layer.set_weights([changes[defect], *rest])
        return model

    export.export(run, tmp_path / "export", ["tflite"])
    monkeypatch.setattr(portable, "build", build_wrong)
    with pytest.raises(CheckError, match="the exported keras differs"):
        export.export(run, tmp_path / "export", ["keras"])
    assert {path.name for path in (tmp_path / "export").iterdir()} == {"model.tflite", "labels.txt"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--no-bottleneck",),
        weekly(("--compression", "1", "--dropout", "0.1")),
        ("--precision", "mixed_bfloat16", "--kernels", "native"),
        weekly(("--precision", "mixed_float16", "--growth", "4")),
        ("--precision", "float64"),
    ],
    ids=" ".join,
)
def test_other_networks_are_exported_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = runs.make(tmp_path, "--steps", "2", *options)
    precision = network.load(run).config.precision
    assert export.export(run, tmp_path / "export", ["keras"])["keras"] < export.TOLERANCES[precision]


@pytest.mark.parametrize(("shape", "center"), [((32, 32, 3), 0.875), ((8, 8, 1), 1.0), ((24, 40, 3), 1.0)])
def test_a_graph_decodes_images_as_pillow_does(shape: tuple[int, int, int], center: float) -> None:
    inputs = Inputs((), shape, (0.0,), (1.0,), center)
    photo = load_sample_images().images[1]
    for height, width in ((32, 32), (50, 70), (20, 15), (301, 200)):
        encoded = encode(photo[:height, :width])
        expected = images.center_crop(images.load(encoded), shape, center)
        found = export.decode(encoded, inputs).numpy()
        assert found.shape == shape
        assert np.abs(found.astype(int) - expected).max() <= 1
        assert (found != expected).mean() < 0.1  # where a sum lies between two levels


@pytest.mark.parametrize(("form", "mode"), [*(("BMP", mode) for mode in ("P", "L", "RGB", "RGBA")), ("GIF", "P")])
def test_a_graph_decodes_palettes_by_colour(form: str, mode: str) -> None:
    inputs = Inputs((), (8, 8, 3), (0.0,), (1.0,), 1.0)
    encoded = encode(Image.fromarray(load_sample_images().images[1][:8, :8]).convert(mode), form)
    expected = images.center_crop(images.load(encoded), inputs.shape)
    assert (export.decode(encoded, inputs).numpy() == expected).all()


def encode(image: Any, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, form)
    return file.getvalue()


def test_an_unknown_format_and_a_missing_converter_are_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(["export", str(run), "--format", "caffe"]) == UsageError.exit_code
    assert "unknown format: 'caffe'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(PreflightError, match="needs tf2onnx and onnxruntime"):
        export.export(run, tmp_path / "export", ["onnx"])
    assert not list(tmp_path.iterdir())


def test_onnx_computes_what_the_network_does(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tf2onnx")
    assert export.export(run, tmp_path / "export", ["onnx"])["onnx"] < 1e-5
