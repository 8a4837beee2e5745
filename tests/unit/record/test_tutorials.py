"""Follow the tutorials: the commands of each, in order, in one folder with no more than the page asks of a reader.

What a command makes is there for the next one: runs, reports, keys. `runs/NAME` is the run that was made last. Where a
command takes hours, a GPU or a network, it is a dry run.
"""

import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from PIL import Image

from tests.command import Run
from tests.unit.record import maker
from tests.unit.test_docs import ROOT
from tests.unit.train.own.making import write_classes
from tests.unit.wheel.test_publication import LOCK, finish_build, publish
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan

DRY = {
    "toolkit train cifar10": "its data is on the network, and it takes hours",
    "toolkit train ./my-photos --init-from": "its weights are on the network",
    "toolkit train ./my-photos": "DenseNet-121 at 224x224 takes minutes",
    "toolkit train my-photos": "the same",
    "toolkit train digits --epochs 2 --loop": "the same run in another way takes half a minute",
    "toolkit graft": "it takes minutes",
    "toolkit install": "it takes gigabytes of the network",
    "toolkit reproduce": "it trains once more",
    "toolkit export": "it takes half a minute; tests/unit/train/test_export.py runs it",
    "toolkit evaluate": "tests/unit/train/test_evaluation.py runs it",
    "toolkit launch": "it needs a cluster",
}
"""Starts of commands that are dry runs here, each with the reason."""

REAL = ("toolkit train ./my-photos --image-size 32",)
"""Starts of commands that run, although a shorter start is in `DRY`."""

SAME = {"make run": "toolkit up digits"}
"""What the target of the Makefile runs."""

NOT_RUN = {
    "make test": "it runs the tests",
    "docker": "it needs a container engine",
    "python3": "the tests have an environment",
    ". ": "the tests have an environment",
    "pip": "the tests have an environment",
    "toolkit serve": "it runs until it is ended",
    "toolkit push": "it needs a registry",
    "my-env/": "the environment is a dry run",
    "toolkit smoke": "the environment is a dry run",
    ".toolkit/": "it runs until it is ended; that the program is there is tested",
}
STOCK = ["--epochs", "1", "--kernels", "stock"]
SHORT = dict.fromkeys(("toolkit up digits", "toolkit train digits --epochs 2", *REAL), STOCK)
"""What is added to a command so that it takes seconds."""

ENVIRONMENT = {"TOOLKIT_TENSORFLOW": "2.19.0", "TOOLKIT_PYTHON": "3.11", "TOOLKIT_ENGINE": "host"}


class Reader:
    """Somebody who types what a page says."""

    def __init__(self, folder: Path, page: str, state: Path) -> None:
        self.folder, self.page, self.state = folder, page, state
        self.run = Run(folder)

    def list_lines(self) -> list[str]:
        text = (ROOT / self.page).read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        return [line for block in blocks for line in block.splitlines() if line.strip()]

    def follow(self) -> list[str]:
        """Run all commands; return those that did not end well, with what they said."""
        return [f"{line}: {fault}" for line in self.list_lines() if (fault := self.type(line))]

    def type(self, line: str) -> str:
        line = next((command for start, command in SAME.items() if line.startswith(start)), line)
        if line.startswith(tuple(NOT_RUN)):
            return ""
        words = [self._resolve(word) for word in shlex.split(line, comments=True)[1:]]
        if line.startswith(tuple(DRY)) and not line.startswith(REAL):
            words.append("--dry-run")
        words += [word for start, added in SHORT.items() if line.startswith(start) for word in added]
        words += ["--offline"] if words[0] == "doctor" else []
        done = self.run(*words, TOOLKIT_STATE=str(self.state), **ENVIRONMENT)
        # The doctor's exit code 4 says that this machine lacks something; the command itself worked.
        return "" if done.returncode in ({0, 4} if words[0] == "doctor" else {0}) else done.stderr

    def _resolve(self, word: str) -> str:
        """Return a word with the name of the newest run in place of NAME."""
        if word != "runs/NAME":
            return word
        runs = [path.parent for path in (self.folder / "runs").glob("*/config.yaml")]
        return f"runs/{max(runs, key=lambda path: path.stat().st_mtime).name}" if runs else word


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a state folder with an environment, as the first command of a page makes it from the network.

    It is a small one, which finds all packages but its own in the environment of the tests.
    """
    state = tmp_path_factory.mktemp("tutorials") / "state"
    planned = maker.plan_environment(state)
    venv = planned.folder / "venv"
    packages = venv / "lib" / "python3.11" / "site-packages"
    info = packages / "tensorflow_cpu-2.19.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.19.0\n")
    (info / "RECORD").write_text(f"{info.name}/RECORD,,\n")
    (packages / "tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (venv / "bin").mkdir()
    for name in ("python", "tensorboard"):
        (venv / "bin" / name).symlink_to(Path(sys.prefix) / "bin" / name)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", venv)
    maker.write_records(planned)
    return state


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/rtx50.md", "docs/images.md", "docs/cifar10-evening.md", "README.md"])
def test_a_reader_can_follow_the_page(tmp_path: Path, state: Path, page: str) -> None:
    write_classes(tmp_path / "my-photos", size=(40, 40))
    Image.new("RGB", (40, 30), "teal").save(tmp_path / "photo.jpg")
    (tmp_path / "dist").mkdir()
    publish(finish_build(tmp_path / "staging"), tmp_path / "dist" / "NAME", plan(LOCK, BuildOptions()))
    assert Reader(tmp_path, page, state).follow() == []


@pytest.mark.slow
def test_the_environment_has_the_tensorboard_that_a_page_names(state: Path) -> None:
    assert list(state.glob("environment-cpu-*/venv/bin/tensorboard"))
