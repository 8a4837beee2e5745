"""Runs ``docker buildx build``, because the SDK cannot drive BuildKit (docker/docker-py#2230), and reads its output.

``--progress=rawjson`` prints a JSON object for each group of changes: vertexes (steps), statuses (downloads), logs.
buildx 0.13 spreads an object over many lines; later releases write it on one.
"""

import base64
import itertools
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.base import files, naming, processes, programs
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, EngineError, PreflightError, ToolkitError
from train.system.addresses import hide
from train.system.progress import Work

GRACE_SECONDS = 30
TAIL_LINES = 30

_CACHE_SECONDS = 120
_CACHE_RECORD = re.compile(r"^ID:\s+", re.MULTILINE)
_CACHE_ID = re.compile(r"\S+")
_CACHE_NAME = re.compile(rf'with id "/?{re.escape(naming.BAZEL_MOUNT)}([^"/]+)"')
_CACHE_SIZE = re.compile(r"^Size:\s+(\S+)", re.MULTILINE)
_CACHE_FREE = re.compile(r"^Reclaimable:\s+true", re.MULTILINE)


@dataclass
class Transcript:
    steps: dict[str, str] = field(default_factory=dict)  # name of each step by its digest, in the order of their start
    # done, cached: digests of the steps that ended, and of those that were found in the cache
    done: set[str] = field(default_factory=set)
    cached: set[str] = field(default_factory=set)
    failed: tuple[str, str] | None = None  # name of the step that failed, and BuildKit's message
    tail: list[str] = field(default_factory=list)  # the last lines that the latest running step printed
    current: str = ""
    _open: list[str] = field(default_factory=list)
    _unfinished: dict[str, bytes] = field(default_factory=dict)

    def feed(self, line: str) -> list[str]:
        """Read one line, and return the lines to log. Lines outside of JSON objects are logged as they are."""
        if not self._open and not line.startswith("{"):
            # After a failure, buildx shows the part of the Dockerfile that failed, which is as long as its step.
            if self.failed is None:
                self.tail = [*self.tail, line.rstrip()][-TAIL_LINES:]
            return [line.rstrip()]
        self._open.append(line)
        if len(self._open) > 1 and not line.startswith("}"):
            return []
        try:
            event = json.loads("".join(self._open))
        except ValueError:
            return []
        self._open.clear()
        return self._take(event)

    def _take(self, event: dict[str, Any]) -> list[str]:
        shown: list[str] = []
        for vertex in event.get("vertexes") or []:
            shown.extend(self._step(vertex))
        for log in event.get("logs") or []:
            key = f"{log.get('vertex', '')} {log.get('stream', '')}"
            # An entry is one write of the program, which may be part of a line: apt writes "E: " and its message apart.
            output = self._unfinished.pop(key, b"") + base64.b64decode(log.get("data") or "")
            lines, end, rest = output.rpartition(b"\n")
            shown.extend(self._print(lines + end))
            if rest:
                self._unfinished[key] = rest
        for key in list(self._unfinished):
            if key.partition(" ")[0] in self.done:
                shown.extend(self._print(self._unfinished.pop(key)))
        return shown

    def finish(self) -> list[str]:
        rest = list(self._unfinished.values())
        self._unfinished.clear()
        return [line for text in rest for line in self._print(text)]

    def _print(self, output: bytes) -> list[str]:
        lines = [part.rstrip() for part in output.decode(errors="replace").splitlines() if part.strip()]
        self.tail = [*self.tail, *lines][-TAIL_LINES:]
        return [f"    {line}" for line in lines]

    def _step(self, vertex: dict[str, str | bool]) -> list[str]:
        name, key = str(vertex.get("name", "")), str(vertex.get("digest", ""))
        lines = [] if key in self.steps else [name]
        self.steps[key] = name
        if vertex.get("started") and not vertex.get("completed"):
            self.current = name
        if vertex.get("completed"):
            self.done.add(key)
        if vertex.get("cached"):
            self.cached.add(key)
        if vertex.get("error") and "canceled" not in str(vertex["error"]):
            self.failed = (name, str(vertex["error"]))
        return lines

    @property
    def work(self) -> Work:
        """The steps that are done. One may take a thousand times as long as another, so they have no estimate."""
        return Work(self.current, len(self.done), len(self.steps), "steps", unknown=True)


def build(
    argv: Sequence[str],
    *,
    log: Path,
    console: Console,
    step: str = "image",
    observe: Callable[[str], Work | None] | None = None,
    keep: Sequence[int] = (),
) -> Transcript:
    """Run a build to its end, and write its output to ``log``.

    ``observe`` gets each line of the log, and returns how far the work in it is, if the line says so. The command
    inherits the locks in ``keep``. Raises BuildError if a step failed, EngineError if no engine answers, and
    PreflightError if the disk is full.
    """
    files.require_writable(log.parent)
    transcript = Transcript()
    program = programs.docker(argv)
    with processes.starting(
        program.argv,
        # SIGINT lets buildx cancel the build in the engine too.
        partial(processes.stop, grace=GRACE_SECONDS, first=signal.SIGINT),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        errors="replace",
        env=program.variables,
        pass_fds=keep,
    ) as process:
        assert process.stderr is not None  # noqa: S101 - PIPE was asked for
        work: Work | None = None
        with console.follow(step) as status, log.open("w") as stream:
            for line in itertools.chain(process.stderr, [None]):
                for text in transcript.finish() if line is None else transcript.feed(line):
                    stream.write(hide(text) + "\n")
                    console.detail(text)
                    work = (observe(text) if observe else None) or work
                stream.flush()
                status.show(work or transcript.work)
        code = process.wait()
    if code:
        raise _explain(transcript, log, code)
    return transcript


def _explain(transcript: Transcript, log: Path, code: int) -> ToolkitError:
    text = "\n".join(transcript.tail)
    if "Cannot connect to the Docker daemon" in text or "error during connect" in text:
        return EngineError("the container engine went away during the build", remedy="start it and run this again")
    printed = [*transcript.tail, *(transcript.failed or ())[1:]]
    full = [line.strip() for line in printed if processes.DISK_FULL.search(line)]
    if full and processes.EXECUTOR_FULL not in text:
        return describe_full_disk(full[-1])
    name, reason = transcript.failed or ("docker buildx build", f"exit code {code}")
    lines = "\n    ".join([reason, *transcript.tail[-12:]])
    return BuildError(f"the build failed at {name}", why=lines, remedy=f"the whole log is {log}")


def describe_full_disk(why: str) -> PreflightError:
    from toolkit import diagnosis  # only a failure needs it

    failure = diagnosis.load_row("disk-engine")
    remedy = f"{diagnosis.to_clause(failure.remedy)}; {failure.reference}"
    return PreflightError("the engine's disk filled up during the build", why=why, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class CacheMount:
    id: str  # of BuildKit's record
    name: str  # the value of ``--cache``
    size: str  # as buildx writes it, such as ``31.2GB``
    used: bool  # whether a build has it open

    @property
    def bytes(self) -> int | None:
        match = re.fullmatch(r"([0-9.]+)([kMGT]?)B", self.size)
        try:
            return round(float(match[1]) * 1000 ** " kMGT".index(match[2] or " ")) if match else None
        except ValueError:
            return None


def find_caches() -> list[CacheMount]:
    answer = _call("du", "--verbose", "--filter", "type=exec.cachemount")
    return sorted(_read_caches(answer.stdout if answer else ""), key=lambda mount: (mount.name, mount.id))


def remove_cache(mount: CacheMount) -> str:
    """Remove a cache. Return an empty string, or why the cache stays: a build may be using it."""
    answer = _call("prune", "--force", "--filter", f"id={mount.id}")
    if mount.id not in {cache.id for cache in find_caches()}:
        return ""
    words = (answer.stderr if answer else "").strip().splitlines()
    return words[-1] if words else "a build is using it"


@contextmanager
def removing_caches(name: str, console: Console) -> Iterator[None]:
    try:
        yield
    finally:
        for mount in find_caches():
            if mount.name == name and (reason := remove_cache(mount)):
                console.say(f"Bazel's cache {name} ({mount.size}) stays: {reason}; `toolkit clean` removes it")


def _call(*arguments: str) -> "subprocess.CompletedProcess[str] | None":
    try:
        return programs.docker(["docker", "buildx", *arguments]).run(seconds=_CACHE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _read_caches(text: str) -> list[CacheMount]:
    caches = []
    for record in _CACHE_RECORD.split(text)[1:]:
        identity, name, size = _CACHE_ID.match(record), _CACHE_NAME.search(record), _CACHE_SIZE.search(record)
        if identity and name:
            used = _CACHE_FREE.search(record) is None
            caches.append(CacheMount(id=identity[0], name=name[1], size=size[1] if size else "?", used=used))
    return caches
