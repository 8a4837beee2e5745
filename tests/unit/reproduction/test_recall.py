"""From a manifest back to arguments: whatever was asked for, exactly that is asked again."""

from pathlib import Path
from typing import Any

import pytest

from toolkit.audit.record import RunRecord, digest_config
from toolkit.errors import UnsupportedError
from toolkit.reproduction import recall
from train.cli import parse


def make_record(*arguments: str, **changes: Any) -> RunRecord:
    config = {**parse(arguments).as_dict(), **changes}
    environment = {"threads": 2, "batch_size": 24}
    return RunRecord(folder=Path(), value={"config": config, "environment": environment})


@pytest.mark.parametrize(
    "arguments",
    [
        ["digits"],
        ["digits", "--depth", "10", "--epochs", "2", "--threads", "2"],
        ["digits", "--model", "bc-22-12", "--no-augment", "--seed", "7", "--steps", "12"],
        ["digits", "--batch-size", "auto", "--memory-budget", "1.5", "--jit"],
        ["digits", "--learning-rate", "0.1", "--momentum", "0.85", "--weight-decay", "0.0003", "--dropout", "0.2"],
        ["cifar10", "--recipe", "paper", "--model", "40-12", "--validation", "5000"],
        ["cifar10", "--model", "bc-100-12", "--growth", "16", "--compression", "0.75", "--optimizer", "adam"],
        ["cifar10", "--depth", "40", "--no-bottleneck", "--schedule", "cosine", "--precision", "mixed_float16"],
        ["cifar10", "--model", "121", "--growth", "16", "--memory", "recompute", "--recompute-blocks", "1,3"],
        ["cifar100", "--labels", "coarse", "--loop", "fit", "--checkpoint-every", "100"],
        ["svhn", "--extra", "--memory", "plain"],
        ["fashion_mnist", "--recipe", "adam", "--log-every", "3", "--keep", "5", "--progress", "quiet"],
    ],
)
def test_arguments_that_are_recalled_mean_the_same_run(arguments: list[str]) -> None:
    record = make_record(*arguments)
    again = parse(recall.recall_arguments(record))
    assert again.digest == parse(arguments).digest == digest_config(record.config)
    assert again.log_every == parse(arguments).log_every


def test_what_is_a_default_is_not_said() -> None:
    record = make_record("digits", "--depth", "10", "--seed", "3")
    words = recall.recall_arguments(record)
    assert words[0] == "digits"
    assert "--seed" in words
    assert not {"--epochs", "--recipe", "--momentum", "--memory", "--jit", "--no-jit"} & set(words)


def test_what_the_run_found_out_for_itself_is_said() -> None:
    assert recall.settle(make_record("digits", "--batch-size", "auto")) == ["--threads", "2", "--batch-size", "24"]
    assert recall.settle(make_record("digits", "--threads", "1", "--batch-size", "8")) == []


@pytest.mark.parametrize("changes", [{"growth": 0}, {"schedule": "unheard-of"}, {"new": 1}, {"layers": [1, 2, 3]}])
def test_a_run_that_this_clone_cannot_do_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="cannot do that run"):
        recall.recall_arguments(make_record("digits", **changes))
