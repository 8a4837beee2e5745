"""What a failed wheel build means, told by the step's exit code and by what was said before it.

docker/README.md lists the exit codes of our own steps; the rest are Bazel's and the installers'.
"""

import re

from toolkit.errors import BuildError, CheckError, EngineError, IntegrityError, PreflightError, ToolkitError

_CODE = re.compile(r"exit code: (\d+)")

_SAID: tuple[tuple[re.Pattern[str], type[ToolkitError], str, str], ...] = (
    (
        re.compile(r"digest mismatch|[Cc]hecksum was \S+ but wanted|DO NOT MATCH THE HASHES|[Hh]ash mismatch"),
        IntegrityError,
        "a download is not what was pinned",
        "the source changed it, or something between changes it: compare with another network, then `toolkit lock`",
    ),
    (
        re.compile(r"[Nn]o space left on device"),
        PreflightError,
        "the engine's disk filled up during the build",
        "free space (`toolkit clean`, `docker builder prune`): what is compiled already is kept and used again",
    ),
    (
        re.compile(
            r"error reading from server|unexpected EOF|connection refused|the daemon is not running|Unavailable desc"
        ),
        EngineError,
        "the container engine went away during the build",
        "start it and run this again: what is compiled already is kept",
    ),
    (
        re.compile(
            r"Could not resolve host|Temporary failure (?:in name )?resol|Unknown host|Connection timed out|"
            r"Error downloading|Could not connect|i/o timeout|no such host"
        ),
        BuildError,
        "a download failed",
        "run this again: what is there already is kept; off-line, give --downloads, --source and --bazel",
    ),
)

_CODES: dict[int, tuple[type[ToolkitError], str, str]] = {
    137: (
        BuildError,
        "a compiler was killed for memory",
        "run this again with --jobs at half of what it was: what is compiled already is kept",
    ),
    7: (
        CheckError,
        "the toolchain does not compile for the GPU",
        "the lines above name the capability and the pass; bazel_patches/README.md explains the two known causes",
    ),
}


def explain(error: BuildError) -> ToolkitError:
    """The same failure, as what it is, with what to do next. What is unknown stays as it was."""
    match = _CODE.search(error.why)
    code = int(match[1]) if match else 0
    if code in _CODES:
        kind, what, remedy = _CODES[code]
        return kind(what, why=error.why, remedy=remedy)
    for pattern, kind, what, remedy in _SAID:
        if pattern.search(error.why):
            return kind(what, why=error.why, remedy=remedy)
    return error
