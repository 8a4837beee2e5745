import functools
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path

import typer

import toolkit
from tests.loaded import become
from toolkit.__main__ import main
from toolkit.cli import app
from toolkit.versions.table import load_table

NOWHERE = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "0"}
"""Variables that name an index which nobody serves, and which is asked once."""


class Run:
    """Run the command in a forked child with its own environment, folder, streams and signals, without an engine or
    other settings. `started` lists the programs that the last command started.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        """``variables``: of every command, unless it is given others."""
        self.folder, self.variables = folder, variables
        self.started: list[str] = []

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
        variables |= {"DOCKER_HOST": "tcp://127.0.0.1:1", "NO_COLOR": "1", **self.variables, **environment}
        argv = ["toolkit", *arguments]
        _load()
        with (
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as error,
            tempfile.TemporaryFile() as log,
        ):
            child = os.fork()
            if child == 0:
                sys.addaudithook(lambda event, arguments: _note(log.fileno(), event, arguments))
                become(main, argv, self.folder, variables, {1: out.fileno(), 2: error.fileno()})
            _, status = os.waitpid(child, 0)
            texts = []
            for stream in (out, error):
                stream.seek(0)
                texts.append(stream.read())
            log.seek(0)
            self.started = log.read().decode().splitlines()
        return subprocess.CompletedProcess(argv, os.waitstatus_to_exitcode(status), *texts)


@functools.cache
def _load() -> None:
    """Load what commands load, once and not in each forked child, where it takes longer than most commands."""
    importlib.import_module("docker")
    for module in pkgutil.walk_packages(toolkit.__path__, f"{toolkit.__name__}."):
        if ".checks." not in module.name:  # these belong to another program
            importlib.import_module(module.name)
    typer.main.get_command(app).make_context("toolkit", ["ls"])
    load_table()


def _note(log: int, event: str, arguments: tuple[object, ...]) -> None:
    if event in {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"}:
        os.write(log, f"{arguments[0]}\n".encode())
