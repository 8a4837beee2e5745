import base64
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from tests.threads import THREADS
from tests.unit.train.runs import without_drawing
from toolkit.base import digest, manifest, project, seals
from toolkit.base.manifest import Manifest
from toolkit.engine import EnvironmentPlan, EnvironmentSpec, content, custody, packages
from toolkit.engine.host import HostEngine
from toolkit.engine.packages import Recorded, read_installed
from train.cli import main

WHEEL = "tensorflow_cpu-2.19.0-cp311-cp311-linux_x86_64.whl"
WHEEL_DIGEST = "sha256:" + "7" * 64
SPEC = EnvironmentSpec(tensorflow="2.19.0", python="3.11")
OPTIONS = ("digits", "--depth", "10", "--epochs", "2", "--progress", "quiet")
STOCK = ("--threads", str(THREADS), "--kernels", "stock")


def lock_digest() -> str:
    return digest.digest_file(project.locate("docker/requirements/cpu.txt"))


def describe_wheel() -> dict[str, Any]:
    lock = {"kind": "lock", "name": "cpu.txt", "digest": lock_digest()}
    return {"kind": "wheel", "name": WHEEL, "digest": WHEEL_DIGEST, "parent": lock}


def plan_environment(state: Path) -> EnvironmentPlan:
    return HostEngine(state).plan(SPEC)


def describe_environment(state: Path) -> dict[str, Any]:
    planned = plan_environment(state)
    code = digest.digest_paths(project.ROOT, [project.locate("train")])
    return {
        "kind": "environment",
        "digest": planned.digest,
        "reference": str(planned.folder),
        "parent": describe_wheel(),
        "code": code,
    }


def make_environment(state: Path, python: Path | None = None) -> Path:
    planned = plan_environment(state)
    site = planned.folder / "venv" / "lib" / "python3.11" / "site-packages"
    info = site / "tensorflow_cpu-2.19.0.dist-info"
    info.mkdir(parents=True)
    (site / "tensorflow.py").write_text("VERSION = '2.19.0'\n")
    (site / "old.cpython-311.pyc").write_bytes(b"compiled anew")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.19.0\n")
    code = base64.urlsafe_b64encode(hashlib.sha256((site / "tensorflow.py").read_bytes()).digest()).rstrip(b"=")
    compiled = "old.cpython-311.pyc,sha256=not-compared,13\n"
    (info / "RECORD").write_text(f"tensorflow.py,sha256={code.decode()},19\n{compiled}{info.name}/RECORD,,\n")
    if python:
        (planned.folder / "venv" / "bin").mkdir()
        (planned.folder / "venv" / "bin" / "python").symlink_to(python)
    write_records(planned)
    return planned.folder


def borrow_environment(state: Path) -> Path:
    """Link the tests' virtual environment where the toolkit expects its own, so that jobs can run in it."""
    planned = plan_environment(state)
    (planned.folder / "venv").mkdir(parents=True)
    for name in ("bin", "lib", "pyvenv.cfg"):
        (planned.folder / "venv" / name).symlink_to(Path(sys.prefix) / name)
    found = read_installed(planned.folder / "venv")
    write_records(planned, {name: item.version for name, item in found.items() if name != "tensorflow-cpu"})
    return planned.folder


def write_records(planned: EnvironmentPlan, others: Mapping[str, str] | None = None) -> None:
    recorded = {"tensorflow-cpu": Recorded(version="2.19.0", file=WHEEL, digest=WHEEL_DIGEST)}
    for name, version in (others or {}).items():
        recorded[name] = Recorded(version=version, file=f"{name}-{version}-py3-none-any.whl", digest="")
    packages.save(planned.folder, recorded)
    manifest.write(planned.folder, Manifest(kind="environment", digest=planned.digest, parent=describe_wheel()))
    finish(planned.folder)


def finish(folder: Path) -> None:
    """Record and mark what is in an environment, as the toolkit does when it has made one."""
    listed, fingerprint = content.write(folder)
    change_json(folder / manifest.FILE, lambda value: value["facts"].update(files=listed))
    seals.make_key()
    custody.seal(folder, fingerprint)


def train(
    out: Path, *options: str, kernels: Sequence[str] = STOCK, parent: dict[str, Any] | None = None, draws: bool = False
) -> Path:
    drawing = nullcontext() if draws else without_drawing()
    with drawing, mock.patch.dict(os.environ, {"TOOLKIT_PARENT": json.dumps(parent)}):
        assert main([*OPTIONS, *kernels, *options, "--out", str(out)]) == 0
    return next(out.glob("digits-*/manifest.json")).parent


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def change_checkpoint(folder: Path, change: Callable[[dict[str, Any], bytearray], object]) -> None:
    record = max((folder / "checkpoints").glob("step-*.json"))
    arrays = record.with_suffix(".npz")
    facts, content = json.loads(record.read_text()), bytearray(arrays.read_bytes())
    facts.pop("sha256")
    change(facts, content)
    arrays.write_bytes(content)
    promised = hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + content).hexdigest()
    record.write_text(json.dumps({"sha256": promised, **facts}))
