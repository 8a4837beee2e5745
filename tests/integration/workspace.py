import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tests.integration.docker import stages
from tests.makers.mini_tensorflow import edit, find_process

CACHE = "toolkit-tests-command"
PARTS = ("compose.yaml", "compose.gpu.yaml", ".dockerignore", "docker", "train", "bazel_patches", "toolkit")
"""What compose and the toolkit read of a clone."""


def copy_parts(folder: Path) -> Path:
    """Make a folder with the parts of a clone that users need."""
    folder.mkdir(exist_ok=True)
    for name in PARTS:
        copy = shutil.copytree if (stages.ROOT / name).is_dir() else shutil.copy2
        copy(stages.ROOT / name, folder / name)
    return folder


def forget_project(name: str) -> None:
    """Remove what compose made for a project: containers, networks, data, and images that have lost their name."""
    variables = {**os.environ, "COMPOSE_PROJECT_NAME": name}
    for words in (
        ("compose", "--profile", "*", "down", "--volumes"),
        ("image", "prune", "--force", "--filter", f"label=com.docker.compose.project={name}"),
    ):
        subprocess.run(["docker", *words], cwd=stages.ROOT, env=variables, capture_output=True, check=False)


class Workspace:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = Path(shutil.copytree(stages.MINI, folder / "mini_tensorflow"))
        self.root = stages.ROOT
        self.variables = {**os.environ, "TOOLKIT_STATE": str(folder / "state"), "NO_COLOR": "1"}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        words = ["build-wheel", "--source", str(self.source), "--bazel", "docker-image://toolkit/bazel:debian"]
        argv = [sys.executable, "-m", "toolkit", *words, "--cache", CACHE, *arguments]
        variables = self.variables | {"PYTHONPATH": str(self.root)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(argv, cwd=self.folder, env=variables, text=True, **pipes)  # type: ignore[call-overload,no-any-return]

    def build(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments)
        output, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def toolkit(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "toolkit", *arguments]
        variables = self.variables | {"PYTHONPATH": str(self.root)}
        return subprocess.run(argv, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)

    @contextlib.contextmanager
    def image(self, *arguments: str) -> Iterator[dict[str, Any]]:
        """Build an image and yield what the command says of it. Remove it, and what BuildKit kept of it, at the end."""
        before, name = list_layers(), f"toolkit/test:{uuid.uuid4().hex[:8]}"
        done = self.toolkit("build-image", *arguments, "--tag", name, "--json")
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)
        subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)
        forget_large_layers(before)

    @property
    def results(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "dist").glob("*"))

    def wait_for(self, process: "subprocess.Popen[str]", marker: bytes) -> int:
        end = time.monotonic() + 400
        while time.monotonic() < end and process.poll() is None:
            with contextlib.suppress(TimeoutError):
                return find_process(marker, seconds=1)
        process.kill()
        raise AssertionError(process.communicate()[1])

    def hold_packer(self) -> bytes:
        folder, name = self.source / "tensorflow/tools/pip_package", f"build_wheel_{uuid.uuid4().hex}.py"
        edit(folder / "BUILD", "build_wheel.py", name)
        edit(folder / "build_wheel.py", "\nmain()\n", "\ntime.sleep(600)\nmain()\n")
        (folder / "build_wheel.py").rename(folder / name)
        return f"tensorflow/tools/pip_package/{name}".encode()


def list_layers() -> dict[str, tuple[str, bool]]:
    """List what BuildKit keeps of steps: for each layer the one below it, and whether it has a gigabyte."""
    argv = ["docker", "buildx", "du", "--verbose", "--filter", "type=regular"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    entries = (dict(re.findall(r"^(\w+):\s+(\S+)", "ID:" + entry, re.MULTILINE)) for entry in said.split("ID:")[1:])
    return {entry["ID"]: (entry.get("Parent", ""), entry["Size"].endswith("GB")) for entry in entries}


def forget_large_layers(before: Collection[str]) -> None:
    """Remove the new layers with gigabytes. BuildKit removes none on which another stands, so these go first."""
    layers = {name: layer for name, layer in list_layers().items() if name not in before}

    def forget(name: str) -> None:
        for above, (below, _) in layers.items():
            if below == name:
                forget(above)
        argv = ["docker", "buildx", "prune", "--all", "--force", "--filter", f"id={name}"]
        subprocess.run(argv, capture_output=True, check=True)

    for name, (_, large) in layers.items():
        if large:
            forget(name)
