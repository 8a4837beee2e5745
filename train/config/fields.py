"""Says which fields of a configuration decide what a run computes, and digests them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

INCIDENTAL: Final = frozenset(
    {
        "out",
        "data_dir",
        "cache_dir",
        "progress",
        "json",
        "keep",
        "checkpoint_every",
        "log_every",
        "log_to",
        "profile",
        "init_from",
        "continue_from",
    }
)
"""Fields that do not change what is computed, only places of files, output and times of saving."""


OPEN: Final[Mapping[str, Any]] = {"threads": 0, "batch_size": 0, "kernels": "auto"}
"""Fields that may have these values. The run then chooses the value itself and records it."""

LATER: Final = {
    "tf32": False,
    "kernels": "stock",
    "data_sha256": "",
    "image_size": 0,
    "image_column": "",
    "label_column": "",
    "split": "",
    "crop": "auto",
    "flip": True,
    "skip_broken": False,
    "by_size": False,
    "normalize": "channels",
    "warm_up": 0.0,
    "label_smoothing": 0.0,
    "class_weights": "equal",
    "cutout": 0,
    "randaugment": 0,
    "magnitude": 9,
    "mixup": 0.0,
    "decay_norms": True,
    "clip_norm": 0.0,
    "accumulate": 1,
    "shards": 1,
    "sync_norm": False,
    "ema": 0.0,
    "best": False,
    "patience": 0,
    "init_sha256": "",
    "continue_sha256": "",
    "freeze": 0,
    "padding": "same",
}
"""Fields that older runs lack, with the values that these runs used. The digest leaves out fields with these values."""


FOUND: Final = frozenset({"image_shape", "class_names"})
"""Fields that follow from the data. A run fills them in after it has read the data."""

MODEL: Final = frozenset({"model", "stem", "layers", "growth", "bottleneck", "compression"})


def digest_fields(fields: Mapping[str, Any]) -> str:
    # The digest of the files stands for their name, and the rule that chose a model by their size for the model.
    implied = FOUND | INCIDENTAL
    implied |= {"dataset"} if fields.get("data_sha256") else set()
    implied |= MODEL if fields.get("by_size") else set()
    decisive = {name: value for name, value in fields.items() if name not in implied and LATER.get(name, ...) != value}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
