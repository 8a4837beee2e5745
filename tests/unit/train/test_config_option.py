import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from train.cli import main
from train.command_line import parse
from train.config.configuration import TrainConfig
from train.errors import UsageError

COMMANDS = [
    ["digits"],
    ["digits", "--batch-size", "auto", "--memory-budget", "1.5", "--jit", "--seed", "7", "--steps", "12"],
    ["cifar10", "--recipe", "paper", "--model", "40-12", "--validation", "5000", "--precision", "mixed_float16"],
    ["cifar10", "--model", "121", "--growth", "16", "--memory", "recompute", "--recompute-blocks", "1,3"],
    ["cifar100", "--labels", "coarse", "--loop", "fit", "--checkpoint-every", "100"],
]


def write(folder: Path, config: TrainConfig, **changes: Any) -> Path:
    path = folder / config.run_dir.name / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(config.as_dict() | changes))
    return path


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_file_means_the_run_that_wrote_it(tmp_path: Path, arguments: list[str]) -> None:
    first = parse(arguments)
    for again in (
        parse(["--config", str(write(tmp_path, first))]),
        parse([*arguments, "--config", str(tmp_path / first.run_dir.name / "config.yaml")]),
    ):
        assert again.digest == first.digest
        assert (again.log_every, again.keep, again.checkpoint_every, again.profile) == (
            first.log_every,
            first.keep,
            first.checkpoint_every,
            first.profile,
        )
        assert again.run_dir == tmp_path / first.run_dir.name, "the run is resumed where its file is"


def test_a_manifest_will_do(tmp_path: Path) -> None:
    first = parse(["digits", "--learning-rate", "0.00001"])  # in JSON it is 1e-05, which is a text in YAML
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "run", "config": first.as_dict()}))
    assert parse(["--config", str(tmp_path / "manifest.json")]).digest == first.digest


def test_places_and_presentation_are_the_command_lines(tmp_path: Path) -> None:
    path = write(tmp_path, parse(["digits", "--progress", "quiet", "--json", "--keep", "7"]))
    config = parse(["--config", str(path), "--out", "elsewhere", "--data-dir", "copy", "--keep", "1"])
    assert (config.out, config.data_dir, config.keep) == ("elsewhere", "copy", 1)
    assert (config.progress, config.json) == ("auto", False)


def test_what_the_run_left_open_may_be_filled_in(tmp_path: Path) -> None:
    path = write(tmp_path, parse(["digits", "--batch-size", "auto"]))
    config = parse(["--config", str(path), "--threads", "2", "--batch-size", "24"])
    assert (config.threads, config.batch_size) == (2, 24)


@pytest.mark.parametrize(
    ("options", "named"),
    [(["cifar10"], "--dataset cifar10"), (["--threads", "2"], "--threads 2"), (["--model", "40-12"], "--model 40-12")],
)
def test_an_option_that_means_another_run_is_refused(tmp_path: Path, options: list[str], named: str) -> None:
    path = write(tmp_path, parse(["digits", "--threads", "1", "--batch-size", "16", "--depth", "10"]))
    assert parse(["--config", str(path), "--depth", "10", "--seed", "0"]), "what says the same is no contradiction"
    with pytest.raises(UsageError) as caught:
        parse(["--config", str(path), *options])
    assert caught.value.what.startswith(f"{named} contradicts")


@pytest.mark.parametrize(
    "changes", [{"growth": 0}, {"schedule": "unheard-of"}, {"new": 1}, {"cutout": True}, {"mixup": "0.2"}]
)
def test_a_file_that_this_version_does_not_know_is_wrong_usage(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write(tmp_path, parse(["digits"]), **changes)
    with pytest.raises(UsageError, match="is not the configuration of a run"):
        parse(["--config", str(path)])


@pytest.mark.parametrize("content", [None, "{[", "a: b"])
def test_another_file_is_wrong_usage(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "file").write_text(content)
    assert main(["--config", str(tmp_path / "file")]) == 2
