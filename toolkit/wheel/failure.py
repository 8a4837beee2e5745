"""What a failed wheel build means, told by the step's exit code and by what was said.

docker/README.md lists the exit codes of our own steps; the rest are Bazel's and the installers'.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from toolkit import processes
from toolkit.engine import buildx
from toolkit.errors import BuildError, CheckError, EngineError, IntegrityError, PreflightError, ToolkitError

_CODE = re.compile(r"exit code: (\d+)")
_STAGE = re.compile(r"\[([a-z][a-z-]*)(?: \d+/\d+)?\]")
_CAUSE = re.compile(
    r"\berror:|^\s*(?:ERROR|FATAL|fatal|proof|apply-patches|install-packages)\b.*:|^\s*E: |[Hh]ash mismatch|"
    r"was killed for memory|"
    r"^\s*wheel: (?:the remote executor|no action ran|the rc file|the disk is full)|" + processes.DISK_FULL.pattern
)
# What Bazel and BuildKit say of every failure tells nothing about this one.
_EMPTY = re.compile(r"did NOT complete successfully|failed to solve: process|the target bazel-log")
_KEY = re.compile(r"(?:ERROR|FATAL):")
"""Begins a message of Bazel; the cause itself is often in the lines after it."""
_MESSAGE = re.compile(
    r"(?:INFO|WARNING|DEBUG|FAILED|Loading|Analyzing|Fetching|Target //\S+|wheel|proof): ?|\[[\d,]+ / [\d,]+\]|"
    r'process "|Use --\w+|\[[a-z-]+ \d+/\d+\]'
)
"""Begins another message, which continues nothing."""
_DETAIL = re.compile(
    r'Traceback \(most recent|File "|# (?:Configuration|Execution platform):|.*\\$|[~^ ]+$|\(cd |/?[\w.+-]+/\S+ -.*\)$'
)
"""Frames of a trace and the parts of a command: the log has them."""
_CAUSES = 8
_CONTINUED = 6
_WIDTH = 300

_NO_SPACE: tuple[type[ToolkitError], str, str] = (PreflightError, buildx.FULL_DISK, buildx.FULL_DISK_REMEDY)

_SAID: tuple[tuple[re.Pattern[str], type[ToolkitError], str, str], ...] = (
    (
        processes.OTHER_BYTES,
        IntegrityError,
        "a download is not what was pinned",
        "the source changed it, or something between changes it: compare with another network, then `toolkit lock`",
    ),
    (
        re.compile(r"error reading from server|rpc error: code = Unavailable|the daemon is not running"),
        EngineError,
        "the container engine went away during the build",
        "start it and run this again: what is compiled already is kept",
    ),
    (
        re.compile(
            r"[Cc]ould not resolve host|[Tt]emporary failure (?:in name )?resol|Unknown host|no such host|"
            r"[Cc]onnection timed out|i/o timeout|Error downloading|[Ff]ailed to connect|[Cc]ould(?:n't| not) connect"
        ),
        BuildError,
        "a download failed",
        "run this again: what is there already is kept; off-line, give --downloads, --source and --bazel",
    ),
)

_CODES: dict[int, tuple[type[ToolkitError], str, str]] = {
    5: (
        BuildError,
        "Debian's packages cannot be fetched",
        "look at the day (--apt-snapshot), at the mirror of the base image, and behind a proxy at --ca-bundle",
    ),
    6: (
        BuildError,
        "nothing ran on the remote executor",
        "remove --spawn_strategy and --strategy from --bazelrc and --bazel-argument, or build without an executor",
    ),
    28: _NO_SPACE,
    34: (
        BuildError,
        "the remote executor does not answer, or refuses the work",
        "look at --remote-executor and at the credentials in --bazelrc; without the option everything is built here",
    ),
    137: (
        BuildError,
        "a compiler was killed for memory",
        "run this again with --jobs at half of what it was: what is compiled already is kept",
    ),
    7: (
        CheckError,
        "the toolchain does not compile for the GPU",
        "bazel_patches/README.md explains the two known causes",
    ),
}


def explain(error: BuildError, logs: Iterable[Path]) -> ToolkitError:
    """The same failure, as what it is: the lines that name the cause, and what to do next.

    Args:
        error: what was raised.
        logs: what was said, most telling first; files that are not there are passed over.
    """
    present = [path for path in logs if path.is_file()]
    causes = find_causes("\n".join([*(path.read_text(errors="replace") for path in present), error.why]))
    why = "\n       ".join(causes) or error.why
    if any(processes.DISK_FULL.search(line) for line in causes):
        # Before the exit code, which is that of whatever program met the full disk.
        kind, what, remedy = _NO_SPACE
        return kind(what, why=why, remedy=remedy)
    match = _CODE.search(error.why)
    if match and int(match[1]) in _CODES:
        kind, what, remedy = _CODES[int(match[1])]
        return kind(what, why=why, remedy=remedy)
    for pattern, kind, what, remedy in _SAID:
        if pattern.search(why):
            return kind(what, why=why, remedy=remedy)
    stage = _STAGE.search(error.what)
    what = f"the build failed in the stage {stage[1]}" if stage else error.what
    kept = f"the whole log is {present[0]}" if present else error.remedy
    return BuildError(what, why=why, remedy=kept)


def find_causes(said: str) -> list[str]:
    """Return the lines that name a cause, each once, in the order in which they were said.

    A message of Bazel comes with the lines that continue it, indented, without the frames of a trace and without the
    command that was run.

    Args:
        said: the text of one log or more.
    """
    told: dict[str, str] = {}
    causes = room = 0
    framed = False
    for raw in said.splitlines():
        line = raw.strip()
        # The line of code below a frame is that frame's.
        detail, framed = framed or bool(_DETAIL.match(line)), line.startswith('File "')
        if _CAUSE.search(line):
            room = _CONTINUED if _KEY.match(line) else 0
            if _EMPTY.search(line):
                room = 0
            elif line not in told:
                causes += 1
                if causes > _CAUSES:
                    break
                told[line] = _cut(line)
        elif _MESSAGE.match(line):
            room = 0
        elif room and line and line not in told and not detail and len(line) <= _WIDTH:
            told[line] = f"  {line}"
            room -= 1
    return list(told.values())


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"
