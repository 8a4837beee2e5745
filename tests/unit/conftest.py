import gc
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests import browser
from tests.browser import Browser
from tests.command import Run
from tests.makers.compiler import Compiler
from toolkit.base import manifest
from toolkit.base.manifest import Manifest
from toolkit.doctor import reading
from toolkit.engine import gpus

DRIVER = Path(__file__).parents[1] / "fixtures" / "driver"
SCHEMAS = Path(__file__).parents[2] / "toolkit" / "schemas"


@pytest.fixture(autouse=True)
def records_keep_to_their_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare each record that a test lets the toolkit write with the schema of records."""
    write = manifest.write

    def check(folder: Path, record: Manifest) -> None:
        value = json.loads((SCHEMAS / "manifest.json").read_text())
        Draft202012Validator(value).validate(json.loads(json.dumps(record.describe())))
        write(folder, record)

    monkeypatch.setattr(manifest, "write", check)


@pytest.fixture(autouse=True)
def find_library(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Let programs that play nvidia-smi be asked, also on a machine that has NVIDIA's library."""
    find_library = reading.has_library
    monkeypatch.setattr(reading, "has_library", lambda: False)
    return find_library


@pytest.fixture(scope="session")
def gcc(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    made = Compiler(tmp_path_factory.mktemp("gcc"))
    if not made.available:
        pytest.skip("no C compiler: the libraries of these tests cannot be made")
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def play() -> Callable[[str], dict[str, str]]:
    """Return the variables of a machine whose driver names the GPUs of that name; without a name, one without GPUs."""

    def play(machine: str) -> dict[str, str]:
        folder = f"{DRIVER}{os.pathsep}" if machine else ""
        return {"PATH": folder + os.environ["PATH"], "PLAYED_GPU": machine}

    if shutil.which("nvidia-smi") or gpus.has_gpu():
        pytest.skip("this machine has a GPU of its own")
    return play


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Put the handlers of signals back: a program that a test runs in this process leaves those of a program."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Stop the garbage collector, in whose callbacks and finalizers a KeyboardInterrupt is only printed, and lost."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    folder = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def write(name: str, script: str) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
        return folder / name

    return write


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that judges pages. See ``Browser.find_barriers``."""
    path = os.environ.get("TOOLKIT_AXE")
    if not path and os.environ.get("TOOLKIT_REQUIRE_BROWSER"):
        pytest.fail("TOOLKIT_REQUIRE_BROWSER is set, and TOOLKIT_AXE names no script of axe")
    if not path:
        pytest.skip("TOOLKIT_AXE names no script of axe")
    return Path(path).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not browser.PROGRAM and os.environ.get("TOOLKIT_REQUIRE_BROWSER"):
        pytest.fail("TOOLKIT_REQUIRE_BROWSER is set and there is no Chromium")
    if not browser.PROGRAM:
        pytest.skip("there is no Chromium")
    with browser.start(tmp_path_factory.mktemp("profile")) as started:
        yield started
