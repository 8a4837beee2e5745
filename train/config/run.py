"""Defines the configuration of a run: one frozen object, complete and checked before TensorFlow is loaded."""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import yaml

from train.config import origin
from train.config.fields import LATER, digest_fields
from train.errors import UsageError

Optimizer = Literal["sgd", "adam", "adamw"]
Schedule = Literal["steps", "one-cycle", "cosine", "constant"]
Memory = Literal["plain", "recompute", "shared"]
Precision = Literal["float32", "mixed_float16", "mixed_bfloat16", "float64"]
Loop = Literal["function", "fit", "eager"]
Labels = Literal["fine", "coarse"]
Kernels = Literal["stock", "native", "auto"]
Normalize = Literal["channels", "range"]
ClassWeights = Literal["equal", "balanced"]
Progress = Literal["auto", "plain", "quiet"]
Crop = Literal["auto", "shift", "resized"]
Padding = Literal["same", "even"]
Format = Literal["keras", "saved-model", "tflite", "stablehlo", "onnx"]
FORMATS: tuple[Format, ...] = get_args(Format)

STRONGEST: Final = 30
"""Highest magnitude of RandAugment, at which each operation is as strong as AutoAugment's strongest."""

NAMED: Final = "keras:"
"""Start of names of weights of ``keras.applications``."""


@cache
def read_table(name: str) -> dict[str, Any]:
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    # libyaml is 20 times faster than the Python loader; wheels of PyYAML have it, some distributions' packages do not.
    value: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    return value


def describe_datasets() -> str:
    """Return the help text of an argument DATASET."""
    *names, last = read_table("datasets")
    own = "the path of a folder, .zip or .tar of your own images, by class"
    return f"{', '.join(names)} or {last}; or {own}; or hf:OWNER/NAME[@REVISION]."


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The configuration of a run. Raises a UsageError if a value or a combination of values makes no sense.

    A batch size of 0 means the largest that fits, 0 threads one for each core that this process may use.
    """

    dataset: str
    labels: Labels = "fine"
    extra: bool = False
    normalize: Normalize = "channels"
    validation: int = 0
    data_sha256: str = ""
    image_column: str = ""
    label_column: str = ""
    split: str = ""
    skip_broken: bool = False
    image_size: int = 0
    image_shape: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()

    model: str
    by_size: bool = False
    stem: Literal["cifar", "imagenet"]
    padding: Padding = "same"
    layers: tuple[int, ...]
    growth: int
    bottleneck: bool
    compression: float
    dropout: float = 0.0

    recipe: str
    optimizer: Optimizer
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: Schedule
    batch_size: int
    epochs: int
    steps: int = 0
    augment: bool = True
    crop: Crop = "auto"
    flip: bool = True
    seed: int = 0
    warm_up: float = 0.0
    label_smoothing: float = 0.0
    class_weights: ClassWeights = "equal"
    cutout: int = 0
    randaugment: int = 0
    magnitude: int = 9
    mixup: float = 0.0
    decay_norms: bool = True
    clip_norm: float = 0.0
    accumulate: int = 1
    shards: int = 1
    sync_norm: bool = False
    ema: float = 0.0
    best: bool = False
    patience: int = 0
    init_from: str = ""
    init_sha256: str = ""
    continue_from: str = ""
    continue_sha256: str = ""
    freeze: int = 0

    memory: Memory = "shared"
    recompute_blocks: tuple[int, ...] = ()
    precision: Precision = "float32"
    jit: bool = False
    tf32: bool = False
    kernels: Kernels = "stock"
    loop: Loop = "function"
    threads: int = 0
    memory_budget: float = 0.0

    keep: int = 2
    checkpoint_every: int = 0
    log_every: int = 10
    log_to: tuple[str, ...] = ()
    profile: tuple[int, int] | None = None
    out: str = "runs"
    data_dir: str = ""
    cache_dir: str = ""
    progress: Progress = "auto"
    json: bool = False

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(TrainConfig).items():
            if get_origin(kind) is Literal:
                require_choice(name, getattr(self, name), get_args(kind))
        for sink in self.log_to:
            require_choice("log_to", sink, ("mlflow", "wandb"))
        if not self.own:
            require_choice("dataset", self.dataset, tuple(read_table("datasets")))
            self._refuse_own()
        self._check_numbers()
        self._check_model()
        self._check_combinations()
        self._check_shards()

    def _refuse_own(self) -> None:
        for name in ("image_size", "image_column", "label_column", "split", "skip_broken", "crop"):
            if getattr(self, name) != LATER[name]:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for your own images",
                    why=f"the files of {self.dataset} are known",
                    remedy="give the path of a folder of images, or hf:OWNER/NAME, in place of the name",
                )

    def _check_numbers(self) -> None:
        for name in ("growth", "epochs", "keep", "log_every", "accumulate", "shards"):
            _require(name, getattr(self, name), at_least=1)
        counts = (
            "steps",
            "batch_size",
            "validation",
            "checkpoint_every",
            "threads",
            "seed",
            "image_size",
            "cutout",
            "randaugment",
            "magnitude",
            "patience",
        )
        for name in counts:
            _require(name, getattr(self, name), at_least=0)
        for name in ("memory_budget", "weight_decay", "warm_up", "mixup", "clip_norm"):
            _require(name, getattr(self, name), at_least=0)
            if not math.isfinite(getattr(self, name)):
                raise UsageError(f"--{name.replace('_', '-')} must be a number, not {getattr(self, name)}")
        if self.magnitude > STRONGEST:
            raise UsageError(f"--magnitude is at most {STRONGEST}, not {self.magnitude}")
        if self.seed >= 2**31:
            raise UsageError(f"--seed must be less than {2**31}, not {self.seed}")
        if not 0 < self.learning_rate < 100:
            raise UsageError(f"the learning rate must be between 0 and 100, not {self.learning_rate}")
        shares = {
            "dropout": "is the share of values dropped",
            "label_smoothing": "is the share of a target that all classes get",
            "ema": "is the share of its old value that an average keeps at each step",
            "momentum": "is the share of the last update that is kept",
        }
        for name, meaning in shares.items():
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {meaning}, in [0, 1), not {getattr(self, name)}")
        if not 0 < self.compression <= 1:
            raise UsageError(
                f"--compression is the share of channels a transition keeps, in (0, 1], not {self.compression}"
            )

    def _check_model(self) -> None:
        if not self.layers or min(self.layers) < 1:
            raise UsageError("the model has a dense block without layers", remedy="choose a greater --depth")
        if 0 in self.list_channels():
            raise UsageError(
                f"--compression {self.compression} leaves no channels",
                remedy="choose a greater --compression or --growth",
            )
        if self.stem == "imagenet" and 0 < self.shape[0] < 32:
            raise UsageError(
                f"model {self.model} needs images of 32x32 and more",
                why=f"those of {self.dataset} have {self.shape[0]}x{self.shape[1]}",
                remedy="use a CIFAR preset such as bc-100-12",
            )
        if not -1 <= self.freeze <= len(self.layers):
            raise UsageError(f"--freeze {self.freeze} is not a number of blocks; the model has {len(self.layers)}")
        wrong = [block for block in self.recompute_blocks if not 1 <= block <= len(self.layers)]
        if wrong:
            raise UsageError(f"--recompute-blocks names block {wrong[0]}; the model has blocks 1 to {len(self.layers)}")

    def _check_combinations(self) -> None:
        if self.kernels == "native" and (reason := self.explain_stock()):
            raise UsageError(
                f"--kernels native does not work with {reason}",
                remedy="use --kernels stock, or auto to take native kernels where they work",
            )
        if self.labels == "coarse" and "coarse_classes" not in self.facts:
            raise UsageError(f"{self.dataset} has no coarse labels", remedy="--labels coarse is for cifar100")
        if self.extra and (self.own or self.dataset != "svhn"):
            raise UsageError(f"{self.dataset} has no extra split", remedy="--extra is for svhn")
        if self.warm_up and self.schedule == "one-cycle":
            raise UsageError("--warm-up and --schedule one-cycle both begin with a low rate", remedy="leave one out")
        for name, parts in (("accumulate", self.accumulate), ("shards", self.shards)):
            if self.batch_size % parts or (parts > 1 and not self.batch_size):
                raise UsageError(
                    f"--{name} {parts} cuts a batch into that many equal parts",
                    why=f"the batch size is {self.batch_size or 'auto'}",
                    remedy=f"give a --batch-size that {parts} divides",
                )
        if (self.best or self.patience) and not self.validation:
            raise UsageError(
                f"--{'best' if self.best else 'patience'} chooses an epoch, and needs images held out for that",
                why="the choice by test images would make their accuracy look better than it is",
                remedy="give --validation N",
            )
        if self.jit and self.loop == "eager":
            raise UsageError("--jit compiles the step, and --loop eager runs it uncompiled", remedy="leave one out")
        if self.jit and self.stem == "imagenet":
            raise UsageError(
                f"--jit cannot compile model {self.model}",
                why="XLA has no deterministic gradient of the maximum pooling that it begins with",
                remedy="leave out --jit, or use a CIFAR preset such as bc-100-12",
            )
        if self.freeze and not self.init_sha256:
            raise UsageError("--freeze keeps weights that were trained before", remedy="say which by --init-from")
        if self.recompute_blocks and self.memory == "plain":
            raise UsageError(
                "--recompute-blocks says where to save memory, and --memory plain saves none",
                remedy="use --memory shared or recompute",
            )

    def _check_shards(self) -> None:
        if self.shards > 1 and (self.accumulate > 1 or self.loop == "fit" or self.jit):
            other = "--accumulate" if self.accumulate > 1 else "--loop fit" if self.loop == "fit" else "--jit"
            raise UsageError(
                f"--shards and {other} do not work together",
                why="one worker runs its shards one after the other, by calls of the same graph",
                remedy="leave one out",
            )
        if self.sync_norm and self.shards == 1:
            raise UsageError(
                "--sync-norm lets norms take mean and variance of all shards, and there is one",
                why="the norms of one shard have those of the whole batch anyway",
                remedy="give --shards, or leave --sync-norm out",
            )

    def explain_stock(self) -> str:
        """Return which option needs stock kernels; an empty text if native ones can run this configuration."""
        reasons = {
            f"--precision {self.precision}": self.precision not in {"float32", "mixed_bfloat16"},
            f"--memory {self.memory}: they have one way to keep maps": self.memory != "shared",
            "--recompute-blocks: they have one way to keep maps": bool(self.recompute_blocks),
            "--jit": self.jit,
            "--sync-norm": self.sync_norm,
            f"model {self.model}, which has no bottleneck": not self.bottleneck,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

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
        """Number of dense blocks that are not trained, nor what comes before them; in all, only the classifier is."""
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
        """Whether the weights to start from are named, not those of a folder or file."""
        return self.init_from.startswith(NAMED)

    @property
    def needs_network(self) -> bool:
        return self.fetches_weights or not (self.data_dir or self.facts.get("embedded", False))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """Make a configuration from the result of `as_dict`; raises a TypeError if a field is missing or unknown."""
        fields: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in values.items()}
        return cls(**fields)

    @property
    def digest(self) -> str:
        return digest_fields(dataclasses.asdict(self))

    @property
    def run_dir(self) -> Path:
        """Folder of the run. The same command has the same folder, and so resumes the run."""
        name = re.sub(r"[^\w.-]+", "-", self.dataset)
        return Path(self.out) / "-".join([name, *([] if self.by_size else [self.model]), self.digest[:8]])

    def as_dict(self) -> dict[str, Any]:
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }


def name_classes(config: TrainConfig) -> tuple[str, ...]:
    """Return the names of the classes, which are numbers where a known data set's files have no names."""
    names = config.class_names or read_table("data/sources").get(config.dataset, {}).get("names")
    return tuple(names or (str(number) for number in range(config.classes)))


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise a UsageError that lists the choices and names the nearest if the value is none of them."""
    if value not in choices:
        import difflib  # slow to load, and only needed for this message

        near = difflib.get_close_matches(value, choices, n=2, cutoff=0.5)
        raise UsageError(
            f"unknown {name.replace('_', ' ')}: {value!r}",
            why=f"known are {', '.join(choices)}",
            remedy=f"did you mean {' or '.join(near)}?" if near else "",
        )


def _require(name: str, value: float, *, at_least: int) -> None:
    if value < at_least:
        raise UsageError(f"--{name.replace('_', '-')} must be at least {at_least}, not {value}")
