"""Makes the sources of the version table: a package index, and TensorFlow's repository."""

import datetime as dt
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server import Handler, QuietHandler
from toolkit import inquiry, refresh
from toolkit.versions import patch, table

COMMIT = table.load_table().tensorflow_rows["2.21.0"].commit
TEXT = table.PATH.read_text().replace(f"    commit: {COMMIT}\n", "")
TABLE = table.build_table(table.read_yaml(TEXT))
"""The table without the commit of 2.21.0, which the made repositories cannot have."""
ROWS = {**TABLE.tensorflow_rows, **TABLE.incomplete}
TODAY = dt.date(2027, 1, 2)
ASK = inquiry.run
CUDA = {release: row.redist for release, row in TABLE.cuda_rows.items() if release in ROWS["2.21.0"].cuda}
CUDNN = {release: row.redist for release, row in TABLE.cudnn_rows.items() if release in ROWS["2.21.0"].cudnn}
LABEL = 'load(\n    "@{}//third_party/gpus/cuda/hermetic:cuda_json_init_repository.bzl",\n    "x",\n)\n'


class Index:
    """Answers as pip does for an index that says what the table says. Git is the real one."""

    def __init__(self) -> None:
        wheels = {row.candidate or version: list(row.python) for version, row in ROWS.items()}
        nvidia = {
            "nvidia-cudnn-cu12": [row.wheel for row in TABLE.cudnn_rows.values() if row.wheel],
            "nvidia-nccl-cu12": [row.nccl for row in ROWS.values()],
            "cuda-toolkit": list(TABLE.cuda_rows),
        }
        self.wheels = {"tensorflow": wheels, "tensorflow-cpu": {key: list(value) for key, value in wheels.items()}}
        self.wheels |= {name: {version: ["3.11"] for version in versions} for name, versions in nvidia.items()}
        self.requires: dict[str, list[str]] = {}
        for version, row in ROWS.items():
            self.require(row.candidate or version, nccl=row.nccl, **row.and_cuda)
        for version, cuda in TABLE.cuda_rows.items():
            pins = {**cuda.components, **cuda.headers}
            self.requires[f"cuda-toolkit=={version}"] = [
                f"nvidia-{name}-cu12=={number.partition('.post')[0]}.*; extra == 'all'" for name, number in pins.items()
            ]
        self.answers: dict[str, str] = {}
        self.service = ""
        """Address of a server with the index's data of each release."""
        self.vulnerabilities: dict[str, list[dict[str, Any]]] = {}

    @property
    def answer_release(self) -> Handler:
        def answer(request: QuietHandler) -> None:
            version = request.path.split("/")[-2]
            value = {"info": {"version": version}, "vulnerabilities": self.vulnerabilities.get(version, [])}
            request.answer(200, json.dumps(value).encode())

        return answer

    def require(self, version: str, *others: str, nccl: str, cuda: str, cudnn: str) -> None:
        self.requires[f"tensorflow=={version}"] = [
            "numpy",
            *others,
            f'nvidia-cuda-nvcc-cu12<13.0,>={cuda}.82; extra == "and-cuda"',
            f'nvidia-cudnn-cu12<10.0,>={cudnn}.75; extra == "and-cuda"',
            f'nvidia-nccl-cu12<3.0,>={nccl}; extra == "and-cuda"',
        ]

    def __call__(self, *command: str) -> str:
        if command[0] == "git":
            return ASK(*command)
        name = command[-1]
        if "-vv" in command:
            return f"1 location(s) to search for versions of {name}:\n* {self.service}/simple/{name}/\n"
        if name in self.answers:
            return self.answers[name]
        if "install" in command:
            return json.dumps({"install": [{"metadata": {"requires_dist": self.requires[name]}}]})
        python = command[command.index("--python-version") + 1] if "--python-version" in command else ""
        found = [version for version, pythons in self.wheels[name].items() if not python or python in pythons]
        if not found:
            raise inquiry.UnreadableError(f"ERROR: No matching distribution found for {name}")
        return f"{name} ({found[0]})\nAvailable versions: {', '.join(found)}\n"


class Upstream:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cuda, self.cudnn = dict(CUDA), dict(CUDNN)
        self.files = {
            ".bazelversion": "7.4.1\n# a note",
            "WORKSPACE": LABEL.format("local_xla"),
            "tensorflow/workspace0.bzl": "",
            "tensorflow/workspace3.bzl": 'tf_vendored(name = "local_xla", relpath = "third_party/xla")\n',
        }
        self.place = "third_party/xla/third_party/gpus/cuda/hermetic/cuda_redist_versions.bzl"

    def write(self) -> str:
        return commit_files(self.folder, {**self.files, self.place: write_tables(self.cuda, self.cudnn)}, "v2.21.0")


def write_tables(cuda: dict[str, str], cudnn: dict[str, str]) -> str:
    entries = [{name: [f"redistrib_{name}.json", value] for name, value in each.items()} for each in (cuda, cudnn)]
    lines = [json.dumps(each, indent=4) for each in entries]
    return f"CUDA_REDIST_JSON_DICT = {lines[0]}\n\nCUDNN_REDIST_JSON_DICT = {lines[1]}\n"


def commit_files(folder: Path, files: dict[str, str], tag: str) -> str:
    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *author, "-C", str(folder), *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git("init", "--quiet")
    for name in ("allowFilter", "allowAnySHA1InWant"):
        git("config", f"uploadpack.{name}", "true")
    git("add", ".")
    git("commit", "--quiet", "--message", "all")
    git("tag", "--annotate", "--message", tag, tag)
    return git("rev-parse", "HEAD")


def redirect(monkeypatch: pytest.MonkeyPatch, places: dict[str, str]) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(places)))
    for number, (address, place) in enumerate(places.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", f"url.{place}.insteadOf")
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", address)


def collect() -> tuple[refresh.Report, dict[tuple[str, ...], Any]]:
    report = refresh.collect(TABLE, TODAY)
    return report, {change.path: change.value for change in report.changes}


def apply(folder: Path, report: refresh.Report) -> table.Table:
    path = folder / "table.yaml"
    path.write_text(patch.apply(TEXT, report.changes))
    return table.load_table(path)
