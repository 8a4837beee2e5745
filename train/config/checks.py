"""Checks a configuration: single values, the model, and combinations of options. Each raises a UsageError."""

from typing import TYPE_CHECKING, Literal, get_args, get_origin, get_type_hints

from train.config.option import fits, list_options, name_flag
from train.config.presets import read_table, require_choice
from train.errors import UsageError

if TYPE_CHECKING:
    from train.config.configuration import TrainConfig

SINKS = ("mlflow", "wandb")


def check(config: "TrainConfig") -> None:
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if get_origin(kind) is Literal and isinstance(value, str):
            require_choice(name, value, get_args(kind))
        if not fits(value, kind):
            raise UsageError(f"{name_flag(name)} has a value of the wrong type: {value!r}")
    for sink in config.log_to:
        require_choice("log_to", sink, SINKS)
    if not config.own:
        require_choice("dataset", config.dataset, tuple(read_table("datasets")))
        _refuse_own(config)
    _check_numbers(config)
    _check_model(config)
    _check_combinations(config)
    _check_shards(config)


def _refuse_own(config: "TrainConfig") -> None:
    usual = {field: type(config).__dataclass_fields__[field].default for field in OWN}
    for name, value in usual.items():
        if getattr(config, name) != value:
            raise UsageError(
                f"{name_flag(name)} is for your own images",
                why=f"the files of {config.dataset} are known",
                remedy="give the path of a folder of images, or hf:OWNER/NAME, in place of the name",
            )


OWN = ("image_size", "image_column", "label_column", "split", "skip_broken", "report_broken", "strict_data", "crop")
"""Options of a user's own images."""


def _check_numbers(config: "TrainConfig") -> None:
    for name, option in list_options(type(config)).items():
        if isinstance(value := getattr(config, name), int | float):
            option.check(name, value)


def _check_model(config: "TrainConfig") -> None:
    if not config.layers or min(config.layers) < 1:
        raise UsageError("the model has a dense block without layers", remedy="choose a greater --depth")
    if 0 in config.list_channels():
        raise UsageError(
            f"--compression {config.compression} leaves no channels",
            remedy="choose a greater --compression or --growth",
        )
    if config.stem == "imagenet" and 0 < config.shape[0] < 32:
        raise UsageError(
            f"model {config.model} needs images of 32x32 and more",
            why=f"those of {config.dataset} have {config.shape[0]}x{config.shape[1]}",
            remedy="use a CIFAR preset such as bc-100-12",
        )
    if not -1 <= config.freeze <= len(config.layers):
        raise UsageError(f"--freeze {config.freeze} is not a number of blocks; the model has {len(config.layers)}")
    wrong = [block for block in config.recompute_blocks if not 1 <= block <= len(config.layers)]
    if wrong:
        raise UsageError(f"--recompute-blocks names block {wrong[0]}; the model has blocks 1 to {len(config.layers)}")


def _check_combinations(config: "TrainConfig") -> None:
    if config.kernels == "native" and (reason := find_stock_option(config)):
        raise UsageError(
            f"--kernels native does not work with {reason}",
            remedy="use --kernels stock, or auto to take native kernels where they work",
        )
    if config.labels == "coarse" and "coarse_classes" not in config.facts:
        raise UsageError(f"{config.dataset} has no coarse labels", remedy="--labels coarse is for cifar100")
    if config.extra and (config.own or config.dataset != "svhn"):
        raise UsageError(f"{config.dataset} has no extra split", remedy="--extra is for svhn")
    if config.warm_up and config.schedule == "one-cycle":
        raise UsageError("--warm-up and --schedule one-cycle both begin with a low rate", remedy="leave one out")
    for name, parts in (("accumulate", config.accumulate), ("shards", config.shards)):
        if config.batch_size % parts or (parts > 1 and not config.batch_size):
            raise UsageError(
                f"--{name} {parts} cuts a batch into that many equal parts",
                why=f"the batch size is {config.batch_size or 'auto'}",
                remedy=f"give a --batch-size that {parts} divides",
            )
    if (config.best or config.patience) and not config.validation:
        raise UsageError(
            f"--{'best' if config.best else 'patience'} chooses an epoch, and needs images held out for that",
            why="the choice by test images would make their accuracy look better than it is",
            remedy="give --validation N",
        )
    if config.jit and config.loop == "eager":
        raise UsageError("--jit compiles the step, and --loop eager runs it uncompiled", remedy="leave one out")
    if config.jit and config.stem == "imagenet":
        raise UsageError(
            f"--jit cannot compile model {config.model}",
            why="XLA has no deterministic gradient of the maximum pooling that it begins with",
            remedy="leave out --jit, or use a CIFAR preset such as bc-100-12",
        )
    if config.freeze and not config.init_sha256:
        raise UsageError("--freeze keeps weights that were trained before", remedy="say which by --init-from")
    if config.recompute_blocks and config.memory == "plain":
        raise UsageError(
            "--recompute-blocks says where to save memory, and --memory plain saves none",
            remedy="use --memory shared or recompute",
        )


def _check_shards(config: "TrainConfig") -> None:
    if config.shards > 1 and (config.accumulate > 1 or config.loop == "fit" or config.jit):
        other = "--accumulate" if config.accumulate > 1 else "--loop fit" if config.loop == "fit" else "--jit"
        raise UsageError(
            f"--shards and {other} do not work together",
            why="one worker runs its shards one after the other, by calls of the same graph",
            remedy="leave one out",
        )
    if config.sync_norm and config.shards == 1:
        raise UsageError(
            "--sync-norm lets norms take mean and variance of all shards, and there is one",
            why="the norms of one shard have those of the whole batch anyway",
            remedy="give --shards, or leave --sync-norm out",
        )


def find_stock_option(config: "TrainConfig") -> str:
    """Return which option needs stock kernels; an empty text if native ones can run this configuration."""
    reasons = {
        f"--precision {config.precision}": config.precision not in {"float32", "mixed_bfloat16"},
        f"--memory {config.memory}: they have one way to keep maps": config.memory != "shared",
        "--recompute-blocks: they have one way to keep maps": bool(config.recompute_blocks),
        "--jit": config.jit,
        "--sync-norm": config.sync_norm,
        f"model {config.model}, which has no bottleneck": not config.bottleneck,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
