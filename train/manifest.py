"""Writes ``manifest.json``: what a run depended on and what came out."""

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from train.config import TrainConfig
from train.errors import UsageError
from train.files import write_text

FILE: Final = "manifest.json"
SCHEMA: Final = 1
PACKAGES: Final = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "nvidia-cudnn-cu12", "nvidia-cuda-runtime-cu12")


def read_parent() -> dict[str, Any] | None:
    """Return the image or environment of this run, as the launcher says in TOOLKIT_PARENT."""
    text = os.environ.get("TOOLKIT_PARENT", "")
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError("TOOLKIT_PARENT is not JSON", why=str(error)) from error
    if value is not None and not isinstance(value, dict):
        raise UsageError("TOOLKIT_PARENT must be a JSON object")
    return value


def describe_software() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def make(config: TrainConfig, *, status: str, **parts: Any) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "run",
        "status": status,
        "dataset": config.dataset,
        **parts,
        "parent": read_parent(),
        "software": describe_software(),
        "config_sha256": config.digest,
        "config": config.as_dict(),
    }


def write(folder: Path, manifest: dict[str, Any]) -> None:
    write_text(folder / FILE, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
