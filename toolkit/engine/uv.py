"""Runs uv, which resolves, downloads, checks and installs packages, and makes virtual environments.

uv reads neither pip's settings nor its variables. What they say of where packages come from is told to uv here, in one
place. What a variable or the current folder says of where packages go, or of pretending, is left out: uv installs where
the toolkit says.

uv is pinned as every other dependency. Its documentation: https://docs.astral.sh/uv/reference/environment/
"""

import configparser
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from toolkit import diagnosis
from toolkit.base import processes
from toolkit.base.errors import BuildError, IntegrityError, PreflightError, ToolkitError, UnsupportedError
from train.system.addresses import hide
from train.system.progress import Status, Work

_FROM_WHERE: Final = (
    "UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_KEYRING_PROVIDER",
    "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_OFFLINE", "UV_HTTP_", "UV_CACHE_DIR", "UV_LINK_MODE",
    "UV_CONCURRENT_", "UV_PYTHON_INSTALL_", "UV_PYTHON_DOWNLOADS", "UV_REQUEST_TIMEOUT",
)  # fmt: skip
"""How those of uv's variables begin that say where packages and Pythons come from, and how they are fetched."""

_NOT_OURS: Final = ("PIP_", "UV_", "PYTHON", "__PYVENV", "VIRTUAL_ENV", "CONDA_")
"""How the variables begin by which a caller would steer pip, uv or Python to another place."""

NO_INDEX: Final = "no-index"
"""Key of what uv takes only as an option."""

_SAME: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": NO_INDEX,
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "proxy": "ALL_PROXY",
}
"""The variable of uv for each setting of pip that says where packages come from."""

_SHOWN_LINES: Final = 12
_DOWNLOAD: Final = re.compile(r"Downloading (?P<name>\S+) \((?P<size>[\d.]+)(?P<unit>[KMG]iB)\)")
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class UnsolvableError(BuildError):
    """There are no versions of packages that fit together."""


@dataclass(frozen=True, kw_only=True)
class Uv:
    """The program uv, with what it is told of indexes and certificates.

    ``ca_bundle``: PEM file, or empty. ``packages``: folder of wheels that is used in place of an index.
    """

    ca_bundle: str = ""
    packages: Path | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What uv gets besides the caller's variables that are not about Python or packages."""
        return {name: value for name, value in self.told.items() if name != NO_INDEX}

    @property
    def told(self) -> dict[str, str]:
        told = read_pip_settings()
        if self.ca_bundle:
            told |= {"SSL_CERT_FILE": self.ca_bundle}
        if self.packages:
            for name in ("UV_INDEX", "UV_DEFAULT_INDEX"):
                told.pop(name, None)
            told |= {NO_INDEX: "1", "UV_FIND_LINKS": str(self.packages.resolve())}
        return told

    def command(self, *arguments: str | Path, project: Path | None = None) -> tuple[str, ...]:
        """Return the words that run uv: in the project that is named, else without settings of the current folder."""
        if project:
            return (str(locate()), "--directory", str(project.resolve()), "--no-progress", *map(str, arguments))
        words = [str(argument) for argument in arguments]
        if (
            words[:2] in (["pip", "install"], ["pip", "compile"])
            and NO_INDEX in self.told
            and "--no-index" not in words
        ):
            words.insert(2, "--no-index")
        return (str(locate()), *_name_settings(), "--no-progress", *words)

    def shown(self, *arguments: str | Path) -> tuple[str, ...]:
        """Return the same words as a person would type them, with the variables that are not the caller's own.

        A plan may be shown where no uv is, as in an image that only starts jobs elsewhere.
        """
        mine = {name: value for name, value in self.variables.items() if os.environ.get(name) != value}
        named = ("env", *(f"{name}={hide(value)}" for name, value in mine.items())) if mine else ()
        try:
            return (*named, *self.command(*arguments))
        except PreflightError:
            return (*named, "uv", *map(str, arguments))

    def run(
        self,
        *arguments: str | Path,
        project: Path | None = None,
        show: Callable[[str], object] = lambda _line: None,
        locks: Sequence[int] = (),
    ) -> str:
        """Run uv to its end, and return what it wrote to standard output.

        ``project``: folder whose pyproject.toml uv reads. ``show`` gets each line that says how far it is. ``locks``:
        descriptors that uv inherits. Raises BuildError if uv fails, IntegrityError if a package has another hash, and
        PreflightError if the disk is full.
        """
        lines: list[str] = []
        with processes.starting(
            self.command(*arguments, project=project),
            partial(processes.stop, grace=10),
            cwd="/",
            # In a project, uv would write the indexes that it is told of into pyproject.toml.
            env={**_keep_neutral(os.environ), **({} if project else self.variables), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=locks,
        ) as process:
            for line in process.stdout or ():
                lines.append(hide(line.rstrip("\n")))
                show(lines[-1].strip())
            code = process.wait()
        if code:
            raise explain(lines, code)
        return "\n".join(lines)

    def run_locked(self, *arguments: str | Path, show: Callable[[str], object] = lambda _line: None) -> str:
        """Run uv on a set with hashes, and ask the index only for what uv's cache lacks.

        The hashes leave the index nothing to say of the rest, and to ask it takes seconds. Raises what `run` raises.
        """
        try:
            return self.run(*arguments, "--offline")
        except (BuildError, IntegrityError):
            return self.run(*arguments, show=show)


def locate() -> Path:
    """Return the path of uv, which is installed with the toolkit. Raises PreflightError if it is not."""
    for folder in (Path(sys.executable).parent, Path(sys.prefix) / "bin"):
        if (path := folder / "uv").is_file():
            return path
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return Path(find_uv_bin())
    raise PreflightError(
        "uv is missing, which installs packages",
        why=f"it belongs to the packages of {sys.executable}",
        remedy="install the toolkit again, or `pip install uv` in its environment",
    )


def read_pip_settings(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of uv that say what pip's settings, and its variables, say of where packages come from.

    Variables of uv that the caller has set count more. Raises UnsupportedError for what uv has nothing like.
    """
    told: dict[str, str] = {}
    settings = _read_files(variables)
    settings |= {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in variables.items()
        if name.startswith("PIP_")
    }
    if settings.get("keyring-provider") not in {None, "", "auto", "disabled", "subprocess"}:
        raise UnsupportedError(
            "uv cannot ask the keyring that pip is set to ask",
            why=f"pip has keyring-provider = {settings['keyring-provider']}, and uv has only `subprocess`",
            remedy="set UV_KEYRING_PROVIDER=subprocess, or name the index with user and password in UV_DEFAULT_INDEX",
        )
    for name, value in settings.items():
        if name in _SAME and value.strip():
            told[_SAME[name]] = " ".join(value.split())
    if told.get(NO_INDEX, "").lower() in {"0", "false", "no", "off"}:
        del told[NO_INDEX]
    if "UV_INDEX" in told:
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # all indexes count alike, as for pip; hashes are checked
    if "ALL_PROXY" in told:
        told |= dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY"), told.pop("ALL_PROXY"))
    own = {name: value for name, value in variables.items() if name.startswith(_FROM_WHERE) or name == "SSL_CERT_FILE"}
    return {**told, **{name: value for name, value in own.items() if name.startswith("UV_") or name not in told}}


def _read_files(variables: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings in the order in which its files count: of the system, of the user, of this Python."""
    settings: dict[str, str] = {}
    for path in _list_files(variables):
        parser = configparser.RawConfigParser()
        with suppress(OSError, UnicodeDecodeError, configparser.Error):
            parser.read(path, encoding="utf-8")
            for section in ("global", "install"):
                if parser.has_section(section):
                    settings |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    return settings


def _list_files(variables: Mapping[str, str]) -> Iterator[Path]:
    """See https://pip.pypa.io/en/stable/topics/configuration/."""
    named = variables.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = Path("~").expanduser()
    for folder in reversed(variables.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(folder, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    yield home / ".pip/pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if named:
        yield Path(named)


def _name_settings() -> tuple[str, ...]:
    """Name the settings of uv that belong to this user or the system; those of a folder or project do not count."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    for path in (home / "uv/uv.toml", Path("/etc/uv/uv.toml")):
        if path.is_file():
            return ("--config-file", str(path))
    return ("--no-config",)


def _keep_neutral(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(_NOT_OURS)}


def explain(lines: Sequence[str], code: int) -> ToolkitError:
    """Return the error of a uv that failed, by what it said."""
    last = [line for line in lines if line.strip()][-_SHOWN_LINES:]
    if any(processes.DISK_FULL.search(line) for line in last):
        return PreflightError(
            "the disk filled up while packages were installed",
            remedy="free space there, and in the cache of uv: `uv cache dir` names it, UV_CACHE_DIR moves it",
        )
    if any(processes.OTHER_BYTES.search(line) for line in lines):
        return processes.describe_wrong_package("uv says:\n    " + "\n    ".join(last))
    kind = UnsolvableError if any("No solution found" in line for line in lines) else BuildError
    return kind(
        f"uv failed with exit code {code}",
        why="uv says:\n    " + "\n    ".join(last),
        remedy="look at what it names; without a network, give the folder of "
        "`toolkit build-wheel --collect` with --downloads, and "
        f"behind a proxy that re-signs https, --ca-bundle\n{diagnosis.name_cause(chr(10).join(lines))}".strip(),
    )


class Downloads:
    """Shows how far uv's downloads are, by the lines that it prints at the start and at the end of each large one."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._sizes: dict[str, float] = {}  # bytes
        self._done: set[str] = set()

    def show(self, line: str) -> None:
        if started := _DOWNLOAD.fullmatch(line):
            self._sizes[started["name"]] = float(started["size"]) * _UNITS[started["unit"]]
        elif line.startswith("Downloaded "):
            self._done.add(line.removeprefix("Downloaded "))
        elif not line.startswith(("Prepared ", "Installed ", "Resolved ")):
            return
        total = sum(self._sizes.values())
        done = sum(size for name, size in self._sizes.items() if name in self._done)
        self._status.show(Work(line, done, total, "bytes", uneven=True))
