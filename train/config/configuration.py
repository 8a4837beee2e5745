"""Defines the configuration of a run: one frozen object, complete and checked before TensorFlow is loaded.

A new option is one entry of :class:`TrainConfig`: the command line, its help, the digest, the JSON schema and the page
of options follow from it.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from train.config import origin
from train.config.option import (
    UNSET,
    Option,
    derived,
    fits,
    list_options,
    name_flag,
    option,
    read_batch_size,
    read_blocks,
    read_freeze,
    read_names,
    read_pair,
)
from train.config.presets import read_table, require_choice
from train.errors import UsageError
from train.system.output import LogFormat, translate
from train.system.progress import Mode

Optimizer = Literal["sgd", "adam", "adamw"]
Schedule = Literal["steps", "one-cycle", "cosine", "constant"]
Memory = Literal["plain", "recompute", "shared"]
Precision = Literal["float32", "mixed_float16", "mixed_bfloat16", "float64"]
Loop = Literal["function", "fit", "eager"]
Labels = Literal["fine", "coarse"]
Kernels = Literal["stock", "native", "auto"]
Normalize = Literal["channels", "range"]
ClassWeights = Literal["equal", "balanced"]
Crop = Literal["auto", "shift", "resized"]
Padding = Literal["same", "even"]
Format = Literal["keras", "saved-model", "tflite", "stablehlo", "onnx"]
FORMATS: tuple[Format, ...] = get_args(Format)

STRONGEST: Final = 30
"""Highest magnitude of RandAugment, at which each operation is as strong as AutoAugment's strongest."""

NAMED: Final = "keras:"
"""Start of names of weights of ``keras.applications``."""

MODEL: Final = frozenset({"model", "stem", "layers", "growth", "bottleneck", "compression"})
"""Fields that say what the network is."""

WHITE: Final = 255
"""The value of white in image files, and in every data set that `datasets.yaml` gives no other for."""

OWN_IMAGES: Final = (
    "image_size",
    "image_column",
    "label_column",
    "split",
    "skip_broken",
    "report_broken",
    "strict_data",
    "crop",
)
"""Options of a user's own images."""

SINKS: Final = ("mlflow", "wandb")
"""Services that records may be sent to."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The configuration of a run. Raises a UsageError if a value or a combination of values makes no sense.

    A batch size of 0 means the largest that fits, 0 threads one for each core that this process may use.
    """

    dataset: str = derived()
    labels: Labels = option("Data", "Which labels of cifar100.", "fine")
    extra: bool = option("Data", "Also train on svhn's extra split, as the paper does.", False, asked=None)
    normalize: Normalize = option(
        "Data",
        "Mean 0 and deviation 1 by channel, or bytes divided by 255, as in the paper for svhn.",
        "channels",
        asked=None,
    )
    validation: int = option(
        "Data", "Training examples held out; the curves then show them, and the test split is for the end.", 0, least=0
    )
    data_sha256: str = derived("")
    image_column: str = option("Data", "Column of the images in your tables.", "", metavar="NAME")
    label_column: str = option("Data", "Column of the labels in your tables.", "", metavar="NAME")
    split: str = option("Data", "Splits of your data to train and to test on.", "", metavar="TRAIN[:TEST]")
    skip_broken: bool = option("Data", "Leave out images that cannot be read, and count them.", False)
    report_broken: str = option(
        "Data",
        "Write each image that cannot be read, and the reason, as a line of JSON.",
        "",
        metavar="FILE",
        decides=False,
    )
    strict_data: bool = option("Data", "Refuse data of which files would be left out.", False, decides=False)
    image_size: int = option(
        "Data",
        "Size of your images for the network; 0 keeps small ones of one size, and resizes all others to 224.",
        0,
        least=0,
    )
    image_shape: tuple[int, ...] = derived((), from_data=True)
    class_names: tuple[str, ...] = derived((), from_data=True)

    model: str = option("Model", "Preset: bc-100-12, 40-12, 121 and more; by default one that suits the data.")
    by_size: bool = derived(False)
    stem: Literal["cifar", "imagenet"] = derived()
    padding: Padding = derived("same")
    layers: tuple[int, ...] = derived()
    growth: int = option("Model", "Channels each layer adds.", least=1)
    compression: float = option("Model", "Share of channels a transition keeps.", above=0, most=1)
    bottleneck: bool = option("Model", "1x1 convolution before each 3x3.")
    dropout: float = option(
        "Model", "Share of values dropped after a convolution.", 0.0, asked=None, share="values dropped"
    )

    recipe: str = option("Training", "How to train: paper, quick or adam.")
    epochs: int = option("Training", "Passes over the training data.", least=1)
    steps: int = option("Training", "Length in steps, instead of epochs; the schedule follows.", 0, asked=None, least=0)
    batch_size: int = option(
        "Training",
        "Examples in a step; auto finds the most that fit.",
        read=read_batch_size,
        metavar="N|auto",
        least=0,
        open=0,
    )
    optimizer: Optimizer = option("Training", "Update rule.")
    learning_rate: float = option("Training", "Highest learning rate.", above=0, below=100)
    momentum: float = option("Training", "Momentum, or Adam's first decay.", share="the last update that is kept")
    weight_decay: float = option("Training", "L2 penalty, added to the gradient; adamw shrinks weights.", least=0)
    schedule: Schedule = option("Training", "Learning rate over time.")
    augment: bool = option("Training", "Pad, crop and (where it makes sense) mirror.", True, asked=None)
    crop: Crop = option(
        "Training", "Shift images, or take random parts of them, resized; auto goes by their size.", "auto"
    )
    flip: bool = option("Training", "Mirror images, where the data set does not forbid it.", True)
    warm_up: float = option("Training", "Epochs in which the learning rate rises to its highest.", 0.0, least=0)
    label_smoothing: float = option(
        "Training", "Share of each target that is spread evenly over all classes.", 0.0, share="a target that is spread"
    )
    class_weights: ClassWeights = option(
        "Training", "balanced: the fewer images a class has, the more each of them counts.", "equal"
    )
    cutout: int = option("Training", "Fill a square of so many pixels in each training image.", 0, least=0)
    randaugment: int = option(
        "Training", "Change each training image by so many random operations (RandAugment's N), such as 2.", 0, least=0
    )
    magnitude: int = option(
        "Training", "Strength of these operations (RandAugment's M), up to 30.", 9, least=0, most=STRONGEST
    )
    mixup: float = option(
        "Training", "Mix pairs of images; the parameter of the beta distribution, such as 0.2.", 0.0, least=0
    )
    decay_norms: bool = option("Training", "Weight decay also of norms and biases.", True)
    clip_norm: float = option(
        "Training", "Scale the gradient of all weights down if its norm is higher; 0 never does.", 0.0, least=0
    )
    accumulate: int = option(
        "Training", "Parts of a batch that are run one after the other, to save memory.", 1, least=1
    )
    shards: int = option(
        "Training",
        "Parts of a batch, shared by workers; they decide the weights, the number of workers does not.",
        1,
        least=1,
    )
    sync_norm: bool = option("Training", "Normalize by mean and variance of the whole batch, not of each shard.", False)
    ema: float = option(
        "Training",
        "Evaluate running averages of the weights, which keep this share at each step, such as 0.999.",
        0.0,
        share="its old value that an average keeps at each step",
    )
    best: bool = option("Training", "End with the weights of the epoch with the best validation accuracy.", False)
    patience: int = option("Training", "Stop after so many epochs without a better validation accuracy.", 0, least=0)
    seed: int = option("Training", "Source of all randomness.", 0, least=0, most=2**31 - 1)
    init_from: str = option(
        "Training",
        "Start from the weights of a run, of a file of keras.applications, or keras:densenet121 (169, 201); other "
        "classes get a new classifier.",
        "",
        asked=None,
        metavar="RUN|FILE|NAME",
        decides=False,
    )
    init_sha256: str = derived("")
    continue_from: str = option(
        "Training",
        "Go on with this finished run up to a greater --epochs or --steps, as a new run. Other options are "
        "those of the run, but --schedule and --learning-rate may change.",
        "",
        asked=None,
        flag="--continue",
        metavar="RUN",
        decides=False,
    )
    continue_sha256: str = derived("")
    freeze: int = option(
        "Training",
        "Dense blocks, from the first on, that keep their initial weights; all trains the classifier.",
        0,
        asked="0",
        read=read_freeze,
        metavar="N|all",
    )

    memory: Memory = option("Speed and memory", "How dense blocks keep or recompute their maps.", "shared")
    recompute_blocks: tuple[int, ...] = option(
        "Speed and memory",
        "Only these dense blocks save memory, as 1,2; the others run plain.",
        (),
        asked=None,
        read=read_blocks,
        metavar="N,…",
    )
    precision: Precision = option("Speed and memory", "Arithmetic of the layers; float64 is for proofs.", "float32")
    jit: bool = option("Speed and memory", "Compile the step by XLA.", False)
    tf32: bool = option(
        "Speed and memory", "On newer GPUs, multiply float32 with 10 bits of mantissa: faster, less exact.", False
    )
    kernels: Kernels = option(
        "Speed and memory",
        "TensorFlow's kernels, or our own for CPUs, which give the same weights on every x86-64 and 64-bit "
        "ARM processor; auto takes native where they work.",
        "stock",
        asked="auto",
        open="auto",
    )
    loop: Loop = option("Speed and memory", "Compiled step, Keras' fit, or eager; the same numbers.", "function")
    threads: int = option(
        "Speed and memory",
        "Threads inside an operation; 0 means all cores that may be used. They decide the last bits.",
        0,
        least=0,
        open=0,
    )
    memory_budget: float = option(
        "Speed and memory", "Gigabytes for --batch-size auto; 0 means most of what is free.", 0.0, least=0
    )

    keep: int = option("Output", "Checkpoints kept.", 2, least=1, decides=False)
    checkpoint_every: int = option("Output", "Also save every so many steps.", 0, least=0, decides=False)
    log_every: int = option("Output", "Steps between step records.", 10, least=1, decides=False)
    log_to: tuple[str, ...] = option(
        "Output",
        "Also send records to mlflow, wandb or both, as their environment variables say.",
        (),
        asked="",
        read=read_names,
        metavar="NAME,…",
        decides=False,
    )
    profile: tuple[int, int] | None = option(
        "Output", "Profile these steps for TensorBoard.", None, read=read_pair, metavar="FIRST:LAST", decides=False
    )
    out: str = option("Output", "Parent of run folders.", "runs", metavar="DIR", decides=False)
    data_dir: str = option("Data", "Local copy of the data set.", "", metavar="DIR", decides=False)
    cache_dir: str = option(
        "Data",
        "Where downloads are kept; TOOLKIT_DATA or ~/.cache/toolkit/data.",
        "",
        asked=None,
        metavar="DIR",
        decides=False,
    )
    progress: Mode = option(
        "Output",
        "How progress is shown: by the kind of output, as lines, as one redrawn line, or not.",
        "auto",
        decides=False,
    )
    log_format: LogFormat = option(
        "Output", "How the job says what happens: for people, or an object a line.", "text", decides=False
    )
    json: bool = option("Output", "Print the result as one JSON object.", False, decides=False)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def own(self) -> bool:
        """Whether the data is the user's own, not one of the known data sets."""
        return bool(self.data_sha256) or self.dataset.startswith("hf:")

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known about the data set before it is loaded, as in ``datasets.yaml``."""
        facts: Mapping[str, Any] = origin.OWN if self.own else read_table("datasets")[self.dataset]
        return facts

    @property
    def white(self) -> int:
        """The value of white in the images of the data set."""
        return int(self.facts.get("white", WHITE))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image; zeros if only the data can tell, and has not been read yet."""
        height, width, channels = self.image_shape or self.facts.get("shape", (self.image_size, self.image_size, 0))
        return height, width, channels

    @property
    def pad(self) -> int:
        """Number of pixels by which an image is shifted at most."""
        return int(self.facts.get("pad", max(1, self.shape[0] // 8)))

    @property
    def resized(self) -> bool:
        """Whether training takes random parts of images, scaled to their size, in place of shifted images."""
        return self.crop == "resized" or (self.crop == "auto" and self.own and self.shape[0] > origin.SMALL)

    @property
    def frozen(self) -> int:
        """Number of frozen dense blocks. What comes before them is frozen too; with all, only the classifier trains."""
        return len(self.layers) if self.freeze == -1 else self.freeze

    def list_channels(self) -> list[int]:
        channels = [2 * self.growth if self.bottleneck or self.stem == "imagenet" else 16]
        for layers in self.layers[:-1]:
            channels.append(int((channels[-1] + layers * self.growth) * self.compression))
        return channels

    @property
    def classes(self) -> int:
        if self.own:
            return len(self.class_names)
        return int(self.facts["coarse_classes" if self.labels == "coarse" else "classes"])

    @property
    def center(self) -> float:
        """Share of the shorter side that the center crop of an image keeps."""
        return origin.CENTER if self.resized else 1.0

    @property
    def fetches_weights(self) -> bool:
        """Whether the initial weights are given by a name, and not as a folder or file, so that they are downloaded."""
        return self.init_from.startswith(NAMED)

    @property
    def needs_network(self) -> bool:
        return self.fetches_weights or not (self.data_dir or self.facts.get("embedded", False))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """Make a configuration from the result of `as_dict`; raises a TypeError if a field is missing or unknown."""
        fields: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in values.items()}
        return cls(**{name: name_path(value, "~", find_home()) for name, value in fields.items()})

    @property
    def digest(self) -> str:
        return digest_fields(dataclasses.asdict(self), type(self))

    @property
    def run_dir(self) -> Path:
        """Folder of the run. The same command has the same folder, and so resumes the run."""
        name = re.sub(r"[^\w.-]+", "-", self.dataset)
        return Path(self.out) / "-".join([name, *([] if self.by_size else [self.model]), self.digest[:8]])

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a record has them.

        The data lie where the user has them, and not where a container does. A path in the user's home begins with
        ``~``, and names no user.
        """
        fields = dataclasses.asdict(self) | {"data_dir": translate(self.data_dir)}
        return {
            name: list(value) if isinstance(value, tuple) else name_path(value, find_home(), "~")
            for name, value in fields.items()
        }


def find_home() -> str:
    """Return the path of the user's home; empty if there is none."""
    home = os.path.expanduser("~").rstrip("/")  # noqa: PTH111 - Path.home raises an error where there is none
    return "" if home == "~" else home


def name_path(value: Any, start: str, other: str) -> Any:
    """Return a path below one folder as below another; any other value, or without the folders, as it is."""
    below = isinstance(value, str) and start and other and value.startswith(f"{start}/")
    return other + value[len(start) :] if below else value


OPTIONS: Final = list_options(TrainConfig)

DEPTH: Final = Option(help="Depth, instead of the preset's.", panel="Model")
"""The one option that is no field: it becomes the layers of the model."""

INCIDENTAL: Final = frozenset(name for name, option in OPTIONS.items() if not option.decides)
"""Fields that do not change what is computed, only places of files, output and times of saving."""

OPEN: Final = {name: option.open for name, option in OPTIONS.items() if option.open is not UNSET}
"""Fields that may have these values. The run then chooses the value itself and records it."""

DEFAULTS: Final = {field.name: field.default for field in dataclasses.fields(TrainConfig)}


def digest_fields(fields: Mapping[str, Any], configuration: type = TrainConfig) -> str:
    """Return the digest of the fields that decide what a run computes.

    A user's own data counts by the digest of its files, and not by its name. If the size of its images chose the model,
    that rule counts in place of the model.
    """
    options = list_options(configuration)
    implied = {name for name, option in options.items() if option.from_data or not option.decides}
    implied |= {"dataset"} if fields.get("data_sha256") else set()
    implied |= MODEL if fields.get("by_size") else set()
    decisive = {name: value for name, value in fields.items() if name not in implied}
    return hashlib.sha256(dumps(decisive, sort_keys=True).encode()).hexdigest()


def name_classes(config: TrainConfig) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers if the files of a known data set have no names."""
    names = config.class_names or read_table("data/sources").get(config.dataset, {}).get("names")
    return tuple(names or (str(number) for number in range(config.classes)))


def _check(config: TrainConfig) -> None:
    """Raise a UsageError if a value has the wrong type or makes no sense, alone or with other values."""
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


def _refuse_own(config: TrainConfig) -> None:
    usual = {field: type(config).__dataclass_fields__[field].default for field in OWN_IMAGES}
    for name, value in usual.items():
        if getattr(config, name) != value:
            raise UsageError(
                f"{name_flag(name)} is for your own images",
                why=f"the files of {config.dataset} are known",
                remedy="give the path of a folder of images, or hf:OWNER/NAME, in place of the name",
            )


def _check_numbers(config: TrainConfig) -> None:
    for name, declaration in list_options(type(config)).items():
        if isinstance(value := getattr(config, name), int | float):
            declaration.check(name, value)


def _check_model(config: TrainConfig) -> None:
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


def _check_combinations(config: TrainConfig) -> None:
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


def _check_shards(config: TrainConfig) -> None:
    if config.shards > 1 and (config.accumulate > 1 or config.loop == "fit" or config.jit):
        other = "--accumulate" if config.accumulate > 1 else "--loop fit" if config.loop == "fit" else "--jit"
        raise UsageError(
            f"--shards and {other} do not work together",
            why="one worker runs its shards one after the other, by calls of the same graph",
            remedy="leave one out",
        )
    if config.sync_norm and config.shards == 1:
        raise UsageError(
            "--sync-norm needs several shards, and this run has one",
            why="one shard is the whole batch, so its norms have mean and variance of that anyway",
            remedy="give --shards, or leave --sync-norm out",
        )


def find_stock_option(config: TrainConfig) -> str:
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
