import ctypes
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.makers.native_runs import BFLOAT16, NATIVE, PRECISIONS
from tests.unit.train import runs
from train.cli import main
from train.command_line import parse
from train.config.resolution import resolve
from train.errors import CheckError, PreflightError, UsageError
from train.model.densenet import build
from train.model.formulation import FOR_NATIVE
from train.native import library, operations
from train.step import evaluation, kernel_choice, training
from train.use import export

EXACT = {
    *("Const", "Placeholder", "Identity", "IdentityN", "NoOp", "Fill", "Cast", "Transpose", "Pack", "Unpack"),
    *("Reshape", "Pad", "Slice", "InvertPermutation"),
    *("ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
    # IEEE 754 says how these are rounded.
    *("Mul", "AddV2", "Sub", "RealDiv", "Square", "Sqrt"),
    # Of whole numbers, or a choice.
    *("ArgMax", "Equal", "Sum", "OneHot", "Minimum", "ConcatV2", "StridedSlice"),
}
"""TensorFlow's operations whose results do not depend on the processor or the number of threads."""

OTHER_LIBRARIES = {
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""Variables that let NumPy and TensorFlow choose other functions, as on another processor."""


def list_operations(function: Any, *inputs: tf.TensorSpec) -> list[tf.Operation]:
    return list(function.get_concrete_function(*inputs).graph.get_operations())


@pytest.mark.parametrize(
    ("dataset", "changes", "blocks"),
    [
        ("digits", {"depth": 16, "optimizer": "adam", "learning_rate": 0.002, "dropout": 0.2}, 3),
        ("digits", {"depth": 16, "label_smoothing": 0.1, "mixup": 0.2, "clip_norm": 1.0, "ema": 0.9}, 3),
        ("cifar10", {"model": "121", "layers": (1, 1, 1, 1), "growth": 4}, 5),
        ("cifar10", {"model": "121", "layers": (1, 1, 1, 1), "growth": 4, "precision": "mixed_bfloat16"}, 5),
    ],
    ids=["adam and dropout", "other options", "imagenet", "bfloat16"],
)
def test_no_operation_depends_on_the_processor(dataset: str, changes: dict[str, Any], blocks: int) -> None:
    config = resolve(dataset, kernels="native", **changes)
    state, rule = training.start(config)
    one = np.ones(1)
    images, labels = tf.TensorSpec((8, *config.shape), tf.uint8), tf.TensorSpec((8,), tf.int32)
    labels = tf.TensorSpec((8, 10), tf.float32) if config.mixup else labels
    train = training.compile_train_step(training.make_train_step(state, rule, config, one, one), config)
    evaluate = evaluation.compile_evaluation_step(
        evaluation.make_evaluation_step(state.model, one, one, form=FOR_NATIVE), config
    )
    found = list_operations(train, images, labels, tf.TensorSpec((), tf.float32))
    found += list_operations(evaluate, images)
    other = {each.type for each in found if not each.type.startswith("Toolkit")} - EXACT
    assert not other
    assert all(each.outputs[0].dtype == tf.int64 for each in found if each.type == "Sum")
    assert sum(each.type == "ToolkitBlockGradient" for each in found) == blocks


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_is_the_same_with_other_libraries_and_threads(
    tmp_path: Path, no_drawing: None, threads: int, options: tuple[str, ...], expected: str
) -> None:
    folder = runs.make(tmp_path / "here", *options)
    arguments = [*runs.ARGUMENTS, *options, "--threads", str(threads), "--out", str(tmp_path / "there")]
    command = [sys.executable, "-m", "train", *arguments]
    subprocess.run(command, env={**os.environ, **OTHER_LIBRARIES}, check=True, capture_output=True)
    other = next((tmp_path / "there").glob("*/manifest.json")).parent
    assert json.loads((other / "manifest.json").read_text())["weights_sha256"] == expected
    assert runs.read_lines(other) == runs.read_lines(folder)


@PRECISIONS
def test_weights_do_not_depend_on_threads_or_instructions(
    tmp_path: Path,
    no_drawing: None,
    kernels: ctypes.CDLL,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    expected: str,
) -> None:
    found = set()
    # TensorFlow's own threads cannot change any more in this process.
    monkeypatch.setattr(operations, "set_threads", lambda _: None)
    for number, (instructions, threads) in enumerate([(b"avx2", 1), (b"avx512", 2), (b"amx", 3)]):
        if kernels.toolkit_choose(instructions):
            kernels.toolkit_set_threads(threads)
            folder = runs.make(tmp_path / str(number), *options)
            found.add(json.loads((folder / "manifest.json").read_text())["weights_sha256"])
    assert found == {expected}


def test_native_kernels_hide_no_nan_from_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    normalize = evaluation.normalize_images
    monkeypatch.setattr(
        evaluation, "normalize_images", lambda *arguments, **named: normalize(*arguments, **named) * np.nan
    )
    assert runs.run(tmp_path, *NATIVE) == CheckError.exit_code
    assert "the loss of step 1 is nan" in capsys.readouterr().err


def test_every_loop_gives_the_same_weights(tmp_path: Path, no_drawing: None) -> None:
    options = [(*NATIVE, "--steps", "4", "--loop", loop) for loop in ("function", "fit", "eager")]
    for chosen in options:
        runs.make(tmp_path, *chosen)
    assert len({runs.read_digest(tmp_path, *chosen) for chosen in options}) == 1


@pytest.mark.slow
def test_a_native_run_is_exported_by_stock_kernels(tmp_path: Path, no_drawing: None) -> None:
    folder = runs.make(tmp_path, *NATIVE, "--steps", "3")
    model = build(resolve("digits", depth=10))
    assert not any(each.__class__.__name__.startswith("Native") for each in model.layers)
    (difference,) = export.export(folder, tmp_path / "export", ["saved-model"]).values()
    assert difference < 1e-4
    written = (tmp_path / "export" / "saved-model" / "saved_model.pb").read_bytes()
    assert b"Conv2D" in written
    assert b"Toolkit" not in written


@pytest.mark.parametrize(
    "options",
    [
        ("--precision", "mixed_float16"),
        ("--precision", "float64"),
        ("--memory", "plain"),
        ("--memory", "recompute"),
        ("--recompute-blocks", "1"),
        ("--jit",),
        ("--no-bottleneck",),
    ],
    ids=" ".join,
)
def test_what_native_kernels_cannot_do(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["digits", *NATIVE, *options]) == UsageError.exit_code
    assert f"does not work with {options[0]}" in capsys.readouterr().err or options == ("--no-bottleneck",)
    monkeypatch.setattr(library, "find", lambda: pytest.fail("no library is needed to say so"))
    config, reason = kernel_choice.fix_kernels(parse(["digits", "--kernels", "auto", *options]), {})
    assert config.kernels == "stock"
    assert reason.startswith("stock kernels: native ones do not work with ")


def test_auto_refuses_bfloat16_where_it_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = replace(library.find(), instructions="amx")
    monkeypatch.setattr(library, "find", lambda: fast)
    config = parse(["digits", "--kernels", "auto", *BFLOAT16])
    assert kernel_choice.fix_kernels(config, {}).config.kernels == "native"
    monkeypatch.setattr(library, "find", lambda: replace(fast, instructions="avx512"))
    with pytest.raises(PreflightError, match="training is slower than in float32"):
        kernel_choice.fix_kernels(config, {})
    assert kernel_choice.fix_kernels(config, {"kernels": "0" * 64}).config.kernels == "native"
    assert kernel_choice.fix_kernels(parse(["digits", *NATIVE, *BFLOAT16]), {}).config.kernels == "native"


@pytest.mark.parametrize(("recorded", "used"), [({"kernels": "0" * 64}, "native"), ({"threads": 2}, "stock")])
def test_a_resumed_run_keeps_its_kernels(recorded: dict[str, object], used: str) -> None:
    config, reason = kernel_choice.fix_kernels(parse(["digits", "--kernels", "auto"]), recorded)
    assert (config.kernels, reason) == (used, "")


def fail() -> library.Library:
    raise PreflightError("the native kernels cannot be built", why="there is no C++ compiler")


def test_without_a_library_auto_says_why_and_native_is_refused(
    tmp_path: Path, no_drawing: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "find", fail)
    short = ("--kernels", "auto", "--steps", "1")
    assert runs.run(tmp_path, *short) == 0
    printed = capfd.readouterr().err
    assert printed.startswith("stock kernels: the native kernels cannot be built: there is no C++ compiler\n")
    assert ", native kernels\n" not in printed
    assert "kernels" not in runs.read_manifest(tmp_path, *short)["environment"]
    operations.load.cache_clear()
    assert runs.run(tmp_path, *NATIVE, "--steps", "1") == PreflightError.exit_code
