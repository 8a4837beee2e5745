import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.cli import main
from train.command_line import parse
from train.config.presets import read_table
from train.errors import UsageError

SHARDS = ("digits", "--shards", "3", "--batch-size", "24", "--kernels", "stock")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digit"], "did you mean digits"),
        (["digits", "--depth", "23"], "use --depth 22 or --depth 28"),
        (["digits", "--nonsense"], "No such option"),
        (["digits", "--epochs", "0"], "--epochs must be at least 1"),
        (
            ["digits", "--dropout", "1"],
            "--dropout must be less than 1, not 1.0\n  why: it is the share of values dropped",
        ),
        (["digits", "--labels", "coarse"], "no coarse labels"),
        (["digits", "--profile", "9"], "10:15"),
        (["digits", "--recompute-blocks", "1,x"], "not a list"),
        (["digits", "--model", "121"], "needs images of 32x32"),
        (["digits", "--recompute-blocks", "1", "--memory", "plain"], "saves none"),
        (["digits", "--weight-decay", "nan"], "--weight-decay must be a number"),
        (["digits", "--seed", str(2**31)], "--seed must be at most"),
        (["digits", "--growth", "1", "--compression", "0.01"], "leaves no channels"),
        (["cifar10", "--model", "121", "--jit"], "--jit cannot compile model 121"),
        (["cifar10", "--model", "121", "--depth", "40"], "choose by --model: 121, 169, 201, 264"),
        ([], "Missing argument"),
        (["digits", "--best"], "--best chooses an epoch, and needs images held out"),
        (["digits", "--patience", "2"], "--patience chooses an epoch"),
        (
            ["digits", "--batch-size", "240", "--accumulate", "7"],
            "--accumulate 7 cuts a batch into that many equal parts",
        ),
        (["digits", "--warm-up", "1"], "--warm-up and --schedule one-cycle both begin"),
        (["digits", "--mixup", "-1"], "--mixup must be at least 0"),
        (["digits", "--class-weights", "even"], "'even' is not one of 'equal', 'balanced'"),
        (["digits", "--shards", "5", "--batch-size", "24"], "--shards 5 cuts a batch into that many equal parts"),
        (["digits", "--shards", "3", "--batch-size", "auto"], "--shards 3 cuts a batch"),
        (["digits", "--shards", "0"], "--shards must be at least 1"),
        ([*SHARDS, "--accumulate", "2"], "--shards and --accumulate do not work together"),
        ([*SHARDS, "--loop", "fit"], "--shards and --loop fit do not work together"),
        ([*SHARDS, "--jit"], "--shards and --jit do not work together"),
        ([*SHARDS, "--kernels", "native", "--sync-norm"], "--kernels native does not work with --sync-norm"),
        (["digits", "--sync-norm"], "--sync-norm needs several shards, and this run has one"),
        (["digits", "--freeze", "1"], "say which by --init-from"),
        (["digits", "--freeze", "some"], "not a number of blocks"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(arguments)
    assert message in str(caught.value)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_reading_a_command_line_loads_nothing_slow() -> None:
    code = (
        "import sys; from train.command_line import parse; parse(['digits']);"
        "print(*{'tensorflow', 'keras', 'numpy', 'matplotlib', 'datasets', 'sklearn'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.split() == []


def test_an_option_wins_over_its_recipe() -> None:
    assert parse(["cifar10"]).epochs == 300
    assert parse(["cifar10"]).learning_rate == 0.1
    config = parse(["cifar10", "--recipe", "quick", "--learning-rate", "0.3", "--no-augment"])
    assert (config.learning_rate, config.schedule, config.augment) == (0.3, "one-cycle", False)


def test_every_preset_is_a_configuration() -> None:
    for preset in read_table("presets"):
        config = parse(["cifar10", "--model", preset])
        assert config.model == preset
        depth = str(4 + sum(config.layers) * (2 if config.bottleneck else 1))
        if config.stem == "cifar":
            assert parse(["cifar10", "--model", preset, "--depth", depth]).layers == config.layers


@given(st.integers(0, 400), st.booleans())
def test_any_depth_is_a_model_or_an_error_with_depths_that_are_one(depth: int, bottleneck: bool) -> None:
    options = ["--bottleneck" if bottleneck else "--no-bottleneck"]
    try:
        config = parse(["cifar10", "--depth", str(depth), *options])
    except UsageError as error:
        for near in re.findall(r"--depth (\d+)", error.remedy):
            assert abs(int(near) - depth) < 25
            assert parse(["cifar10", "--depth", near, *options])
    else:
        assert 4 + sum(config.layers) * (2 if bottleneck else 1) == depth


def test_the_run_folder_depends_on_what_decides_the_numbers() -> None:
    one = parse(["digits", "--out", "here", "--progress", "quiet", "--json"])
    assert one.run_dir.name == parse(["digits"]).run_dir.name
    assert one.run_dir.parent == Path("here")
    assert one.run_dir.name != parse(["digits", "--seed", "1"]).run_dir.name
    assert one.run_dir.name.startswith("digits-bc-22-12-")
    # These options may change when a run is resumed: how often it saves, and what it logs.
    again = parse(["digits", "--checkpoint-every", "5", "--log-every", "1", "--keep", "3", "--profile", "2:3"])
    assert again.run_dir.name == parse(["digits"]).run_dir.name


def test_missing_data_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["cifar10", "--data-dir", str(tmp_path / "none"), "--out", str(tmp_path / "runs")]
    assert main(arguments) == UsageError.exit_code == 2
    assert "there is no folder" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_no_network_is_said_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port, where nothing listens
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    for dataset in ("cifar10", "cifar100", "fashion_mnist", "svhn"):
        assert main([dataset, "--cache-dir", str(tmp_path), "--out", str(tmp_path / "runs")]) == 9
        said = capsys.readouterr().err
        assert "cannot get the data" in said
        assert "--data-dir" in said
    assert time.monotonic() - began < 10
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_wrong_parent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLKIT_PARENT", "not json")
    assert main(["digits", "--out", str(tmp_path)]) == 2
    assert "TOOLKIT_PARENT" in capsys.readouterr().err
