"""A reader who types the commands of a page in order, in a folder that holds no more than the page asks for.

A page says what it needs in a paragraph that begins with ``Before:``. A link in it leads to a page that is followed
first, and a name in code is a file of the reader's own. Where a page shows a file by its name, the reader writes it.
`guides.yaml` says what stands for a GPU, a registry, a cluster or hours. A reader whose machine has a container engine
types the commands in a clone, and those that say so run in containers.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from tests import loaded
from tests.command import Run
from tests.makers.data_files import make_split, write_parquet
from tests.makers.pages import ROOT
from tests.makers.publication import LOCK, finish_build, publish
from tests.unit.exchange.oci import Registry
from tests.unit.records import maker
from tests.unit.train.own.making import write_classes
from toolkit.base import project
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan

PORT = "8767"
"""The port of `docker compose up serve`, which is not the usual one: somebody may use that."""

VERSIONS = {"TOOLKIT_TENSORFLOW": "2.19.0", "TOOLKIT_PYTHON": "3.11"}
NO_NETWORK = {"DOCKER_HOST": "tcp://127.0.0.1:1", "PIP_INDEX_URL": "http://127.0.0.1:1", "PIP_RETRIES": "0"}
_BLOCK = re.compile(r"(?:`([\w.-]+)`[^`\n]*:\n\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MADE = re.compile(r"(\.?[\w]+)/([a-z]+-)?(NAME|ONE|TWO|A|B)\b")
_SERVED = re.compile(r"^TOOLKIT_SERVE_RUN=NAME\b")
_IMAGE = re.compile(r"toolkit/train:NAME\b")
_COMMENT = re.compile(r"\s#\s.*")
_BEFORE = re.compile(r"^Before: .*?(?=\n\n)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """What is done in place of a command that begins with `start`."""

    start: str
    because: str = ""
    how: str = ""
    add: str = ""
    makes: str = ""
    engine: str | None = None

    def with_engine(self) -> "Rule":
        """Return what is done where a container engine is: commands that the other test replaces do not run again."""
        if self.engine is None:
            return replace(self, how="skip" if self.how else "")
        return replace(self, how="", add=self.engine, makes="")


def read_rules() -> tuple[list[Rule], dict[str, str], dict[str, list[str]]]:
    """Return the rules, those with the longest start first, the words that others replace, and what readers have."""
    data = yaml.safe_load((Path(__file__).parent / "guides.yaml").read_text())
    rules = sorted((Rule(**row) for row in data["commands"]), key=lambda rule: -len(rule.start))
    return rules, data["words"], data["has"]


RULES, WORDS, HAS = read_rules()


def find_rule(line: str) -> Rule:
    return next((rule for rule in RULES if f"{line} ".startswith(rule.start)), Rule(line))


def list_guides() -> list[Path]:
    """Return the README, and the tutorials and how-to guides of the site."""
    text = (ROOT / "mkdocs.yml").read_text()
    part = text[text.index("- Tutorials:") : text.index("- Reference:")]
    return [ROOT / "README.md", *(ROOT / name for name in re.findall(r"docs/[\w-]+\.md", part))]


def list_commands(page: Path) -> list[str]:
    return [line for _, kind, text in _BLOCK.findall(page.read_text()) if kind == "sh" for line in _join(text)]


def read_needs(page: Path) -> tuple[list[Path], list[str]]:
    """Return the pages that a page wants followed first, and the things that a reader must have."""
    text = "\n".join(_BEFORE.findall(page.read_text()))
    links = [(page.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", text)]
    return links, [name for name in re.findall(r"`([^`]+)`", text) if name in THINGS]


def _write_wheel(folder: Path) -> None:
    if not (folder / "dist").is_dir():
        (folder / "dist").mkdir()
        publish(finish_build(folder / ".staging"), folder / "dist" / "made", plan(LOCK, BuildOptions()))


def _write_lock(folder: Path) -> None:
    shutil.copy(project.locate("docker/toolkit.lock.yaml"), folder / "toolkit.lock.yaml")


def _copy_sources(folder: Path) -> None:
    shutil.copytree(project.locate("tests/fixtures/mini_tensorflow"), folder / "tensorflow", dirs_exist_ok=True)


def _write_run(folder: Path) -> None:
    maker.train(
        folder / "runs", "--steps", "6", "--epochs", "1", parent=maker.describe_environment(folder / ".toolkit")
    )


def _write_copy(folder: Path) -> None:
    for split in ("train", "test"):
        write_parquet(folder / "my-copy", f"{split}.parquet", make_split(64), "img", "label")


def _write_photo(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (40, 30), "teal").save(path)


def _write_weights(folder: Path) -> None:
    names = " ".join(f"conv{block}_block{count}_1_conv" for block, count in enumerate((6, 12, 48, 32), start=2))
    (folder / "densenet201_weights_tf_dim_ordering_tf_kernels_notop.h5").write_text(names)


THINGS: Mapping[str, Callable[[Path], object]] = {
    "my-photos": lambda folder: write_classes(folder / "my-photos", size=(40, 40)),
    "my-photos.zip": lambda folder: shutil.make_archive(
        str(folder / "my-photos"), "zip", write_classes(folder / ".packed", size=(16, 16))
    ),
    "photo.jpg": lambda folder: _write_photo(folder / "photo.jpg"),
    "photos": lambda folder: _write_photo(folder / "photos" / "first.jpg"),
    "my-copy": _write_copy,
    "my-tables": lambda folder: (folder / "my-tables").mkdir(exist_ok=True),
    "build.log": lambda folder: (folder / "build.log").write_text("all is well\n"),
    "my.log": lambda folder: (folder / "my.log").write_text("all is well\n"),
    "secrets.bazelrc": lambda folder: (folder / "secrets.bazelrc").write_text(""),
    "densenet201_weights_tf_dim_ordering_tf_kernels_notop.h5": _write_weights,
    "wheel": _write_wheel,
    "lock": _write_lock,
    "run": _write_run,
    "tensorflow": _copy_sources,
    "downloads": lambda folder: (folder / "downloads" / "distdir").mkdir(parents=True, exist_ok=True),
}
"""What a reader has, by the name that a page gives it; and at the end, what a command makes that is a dry run here."""


@dataclass
class Reader:
    folder: Path
    registry: Registry
    project: str = ""  # of compose; empty where there is no container engine
    variables: dict[str, str] = field(default_factory=dict)
    served: list[subprocess.Popen[str]] = field(default_factory=list)
    port: str = ""

    def follow(self, page: Path) -> list[str]:
        """Type all commands of a page. Returns those that did not end well, with what they said."""
        faults = []
        for name, kind, text in _BLOCK.findall(page.read_text()):
            if kind == "sh":
                faults += [f"{line}: {fault}" for line in _join(text) if (fault := self.type(line))]
            elif name:
                (self.folder / name).write_text(self._replace(text))
        return faults + self.end()

    def end(self) -> list[str]:
        """End the servers; return what those said that did not end well."""
        if self.project:
            self._call("docker compose --profile '*' down")
        return [f"{process.args!r}: {fault}" for process in self.served if (fault := _end(process))]

    def type(self, line: str) -> str:
        """Run a command; return what it said if it did not end well."""
        rule = find_rule(line).with_engine() if self.project else find_rule(line)
        if rule.makes:
            THINGS[rule.makes](self.folder)
        if rule.how == "skip" or (rule.how == "optional" and not shutil.which(line.split(maxsplit=1)[0])):
            return ""
        line = _SERVED.sub(lambda _: f"TOOLKIT_SERVE_RUN=$(basename {self._name('runs/NAME')})", line)
        line = _IMAGE.sub(self._find_image, self._name(_COMMENT.sub("", line)))
        line = self._replace(line)
        own, dashes, passed_on = line.partition(" -- ")
        line = " ".join([own, rule.add, "--dry-run" if rule.how == "dry" else ""]) + dashes + passed_on
        words = shlex.split(line)
        match words:
            case ["export", *settings]:
                self.variables |= dict(setting.split("=", 1) for setting in settings)
                return ""
            case ["toolkit", "serve", *_]:
                return self._serve(line, words)
            case ["toolkit", *arguments] if "|" not in words and not self.project:
                done = Run(self.folder)(*arguments, **self._set(line))
            case _:
                done = self._call(line)
        # The doctor's exit code 4 says that this machine lacks something; the command itself worked.
        good = {0, 4} if words[:2] == ["toolkit", "doctor"] else {0}
        return "" if done.returncode in good else f"exit code {done.returncode}: {done.stderr}"

    def _replace(self, text: str) -> str:
        places = {"registry": self.registry.address, "port": self.port, "project": self.project}
        for word, other in WORDS.items():
            text = text.replace(word, other.format(**places))
        return text

    def _set(self, line: str) -> dict[str, str]:
        """Return the variables of a command. One that starts a job without naming versions takes those of the tests.

        Where there is an engine, nothing is set that the reader of a page has not set.
        """
        if self.project:
            return {"COMPOSE_PROJECT_NAME": self.project, "TOOLKIT_SERVE_PORT": PORT, **self.variables}
        job = re.match(r"(find .*\| |for .*; do )?toolkit (train|up|predict|evaluate|serve|export)\b", line)
        versions = VERSIONS if job and not re.search("--(card|cuda|tensorflow)", line) else {}
        state = str(self.folder / ".toolkit")
        return {"TOOLKIT_ENGINE": "host", "TOOLKIT_STATE": state, **versions, **NO_NETWORK, **self.variables}

    def _call(self, line: str) -> subprocess.CompletedProcess[str]:
        programs = self.folder / ".programs"
        if not programs.is_dir():
            programs.mkdir()
            (programs / "python").symlink_to(sys.executable if self.project else loaded.start())
            (programs / "toolkit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m toolkit "$@"\n')
            (programs / "toolkit").chmod(0o755)
        variables = self._inherit(line) | {"PATH": f"{programs}:{os.environ['PATH']}"}
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(["sh", "-c", line], cwd=self.folder, env=variables, check=False, **pipes)

    def _inherit(self, line: str) -> dict[str, str]:
        """Return the variables of a process. It runs the code of the clone that the reader is in, or of this one."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
        return others | {"PYTHONPATH": str(self.folder if self.project else ROOT)} | self._set(line)

    def _serve(self, line: str, words: list[str]) -> str:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        argv = [sys.executable, "-m", *words, "--port", self.port]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(argv, cwd=self.folder, env=self._inherit(line), **pipes)
        said = ""
        for text in process.stdout or ():
            said += text
            if f":{self.port}" in text:
                self.served.append(process)
                return ""
        return said

    def _name(self, text: str) -> str:
        """Return the text with the names of what was made."""
        return _MADE.sub(self._find, text)

    def _find(self, match: re.Match[str]) -> str:
        """Return the path of what was made last, in place of one that ends with NAME."""
        parent, kind, name = match.groups(default="")
        kind = "image-" if self.project and kind == "environment-" else kind  # an engine makes images
        made = [path for path in (self.folder / parent).glob(f"{kind}*") if {each.name for each in path.glob("*.json")}]
        made.sort(key=lambda path: path.stat().st_mtime)
        place = -2 if name in {"ONE", "A"} else -1
        return f"{parent}/{made[place].name}" if len(made) >= -place else match[0]

    def _find_image(self, match: re.Match[str]) -> str:
        """Return the name of the image that was made last."""
        made = sorted((self.folder / ".toolkit").glob("image-*/manifest.json"), key=lambda path: path.stat().st_mtime)
        return str(json.loads(made[-1].read_text())["facts"]["tag"]) if made else match[0]


def _join(text: str) -> Iterator[str]:
    return (line for line in text.replace("\\\n", "").splitlines() if line.strip())


def _end(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[0]
    return "" if process.returncode == 0 else said


class Library:
    """The pages that were followed, each with the folder that it left and its faults."""

    def __init__(
        self, root: Path, registry: Registry, begin: Callable[[Path], object] = Path.mkdir, project: str = ""
    ) -> None:
        """``begin`` makes the folder of a page; ``project`` is that of compose, where there is a container engine."""
        self.root, self.registry, self.begin, self.project = root, registry, begin, project
        self.faults: dict[Path, list[str]] = {}

    def find_folder(self, page: Path) -> Path:
        return self.root / page.stem

    def prepare(self, page: Path) -> Reader:
        """Return a reader with what the page asks for."""
        folder = self.find_folder(page)
        self.begin(folder)
        pages, things = read_needs(page)
        for name in HAS.get(page.name, []):
            pages, things = ([*pages, ROOT / name], things) if name.endswith(".md") else (pages, [*things, name])
        for earlier in pages:
            self.follow(earlier)
        for earlier in reversed(pages):  # where two have made the same thing, that of the page named first stays
            if (self.find_folder(earlier) / ".toolkit").is_dir():
                shutil.rmtree(folder / ".toolkit", ignore_errors=True)
            passed = shutil.ignore_patterns(".programs")
            shutil.copytree(self.find_folder(earlier), folder, symlinks=True, dirs_exist_ok=True, ignore=passed)
        if not self.project and not (folder / ".toolkit").is_dir():
            maker.make_environment(folder / ".toolkit", loaded.start())
        for name in things:
            THINGS[name](folder)
        self.registry.copy(Registry())  # each page has an empty one
        return Reader(folder, self.registry, self.project)

    def follow(self, page: Path) -> list[str]:
        """Follow a page, after those that it wants followed first. Returns its faults."""
        if page not in self.faults:
            self.faults[page] = self.prepare(page).follow(page)
        return self.faults[page]
