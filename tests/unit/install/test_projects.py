"""The programs that keep an environment for a project: what `install` says of them, and what each of them does."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.server import running
from tests.tiers import weekly
from tests.unit.install.index import Index
from toolkit.base import interpreters
from toolkit.base.errors import UsageError
from toolkit.engine.uv import Uv
from toolkit.install import installation, projects
from toolkit.install.resolution import Package

POETRY, PDM = "[tool.poetry]\npackage-mode = false\n", "[tool.pdm]\ndistribution = false\n"
SOURCE = '[[tool.{}.source]]\nname = "{}"\nurl = "{}"\n'


@pytest.mark.parametrize("manager", projects.MANAGERS, ids=lambda manager: manager.name)
def test_a_project_is_named_with_what_keeps_tensorflow_there(tmp_path: Path, manager: projects.Manager) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    assert not list(projects.describe([folder / ".venv", folder]))
    (folder / manager.lock).touch()
    (said,) = projects.describe([folder / ".venv", folder, tmp_path])
    for words in (str(folder), manager.name, manager.sync, manager.lock, manager.keep):
        assert words in said


@pytest.mark.parametrize(
    ("lock", "why"), [("", "there is no pyproject.toml"), ("requirements.in", "pip-tools"), ("pixi.lock", "pixi")]
)
def test_what_is_no_project_with_a_command_for_it_is_refused(tmp_path: Path, lock: str, why: str) -> None:
    if lock:
        (tmp_path / lock).touch()
    with pytest.raises(UsageError) as caught:
        projects.find(tmp_path)
    assert why in caught.value.why


@pytest.fixture
def packages(index: Index, tmp_path: Path) -> tuple[Package, ...]:
    """A graft, which no index has, and a library of NVIDIA that is not the newest."""
    for version in ("1.26.4", "2.4.6"):
        index.add("numpy", version)
    index.add("nvidia-cudnn-cu12", "9.28.0", lock=False)
    index.add("nvidia-cudnn-cu12", "9.10.2")
    wheel = index.add("tensorflow", "2.21.0+sm120", "numpy", lock=False)
    (tmp_path / "project/dist").mkdir(parents=True)
    graft = Path(shutil.move(wheel, tmp_path / "project/dist"))
    index.add("tensorflow", "2.21.0", "numpy", lock=False)
    return index.resolve(interpreters.ask(Path(sys.executable)), {}, "nvidia-cudnn-cu12", wheel=graft)


@pytest.fixture
def address(index: Index) -> Iterator[str]:
    """Serve the wheels as pages that each program can read. One folder of files has a page for each package."""
    site = index.folder.with_name("site")
    for wheel in index.folder.glob("*.whl"):
        place = site / wheel.name.partition("-")[0].replace("_", "-")
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, place)
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with running(ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(site)))) as server:
        yield f"http://127.0.0.1:{server.server_port}/"


TOOLS = {
    "uv": ((), '[[tool.uv.index]]\nurl = "{}"\ndefault = true\n'),
    "Poetry": (("poetry",), POETRY + SOURCE.format("poetry", "here", "{}") + 'priority = "primary"\n'),
    # Without its locked packages, PDM 2.29 has taken a hishel that it cannot use.
    "PDM": (("pdm[locked]",), PDM + SOURCE.format("pdm", "pypi", "{}")),
    "pip-tools": (("pip-tools",), ""),
}


@pytest.mark.parametrize("name", ["uv", weekly("Poetry"), weekly("PDM"), weekly("pip-tools")])
def test_a_graft_that_is_in_the_project_stays_there(
    index: Index, packages: tuple[Package, ...], address: str, tmp_path: Path, name: str
) -> None:
    """The programs are real, and come from the package index."""
    package, settings = TOOLS[name]
    manager = next(each for each in projects.MANAGERS if each.name == name)
    project, tools = tmp_path / "project", make_environment(tmp_path / "tools", *package)
    program = make_environment(project / ".venv", *(["pip"] if package == ("pip-tools",) else [])) / "python"
    variables = {
        "PATH": f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "POETRY_VIRTUALENVS_IN_PROJECT": "true",
        "PDM_CHECK_UPDATE": "false",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": address,
    }

    def call(command: str) -> None:
        done = subprocess.run(
            ["sh", "-ec", command], cwd=project, env=variables, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stdout + done.stderr

    head = '[project]\nname = "mine"\nversion = "0.1"\nrequires-python = ">=3.11,<3.14"\ndependencies = []\n'
    (project / "pyproject.toml").write_text(head + settings.format(address))
    index.uv.run(
        "pip", "install", "--python", program, "--no-deps", *[package.text.split(" \\")[0] for package in packages]
    )
    if manager.add:
        call(f"{name.lower()} lock")
        call(manager.sync)
        assert not ask(program), "what no lock names is removed"
        call(projects.write(projects.find(project), project, packages, index.uv)[1])
        call(manager.sync)
    else:
        (project / "requirements.in").touch()
        compile_and_sync = f"pip-compile -q --generate-hashes; {manager.sync} --python-executable {program}"
        call(compile_and_sync)
        assert not ask(program)
        installation.write_requirements(project / "tensorflow.txt", packages, "TensorFlow")
        (project / "requirements.in").write_text("-r tensorflow.txt\n")
        call(compile_and_sync)
    assert ask(program) == ["2.21.0+sm120", "9.10.2", "2.4.6"]


def ask(program: Path) -> list[str]:
    """Return the versions of the packages; nothing if one is missing."""
    code = (
        "import tensorflow, nvidia_cudnn_cu12 as cudnn, numpy; print(tensorflow.version, cudnn.version, numpy.version)"
    )
    return subprocess.run([program, "-c", code], capture_output=True, text=True, check=False).stdout.split()


def make_environment(folder: Path, *packages: str) -> Path:
    """Make an environment with packages of the package index, and return the folder of its programs."""
    Uv().run("venv", "--no-project", "--python", sys.executable, folder)
    if packages:
        Uv().run("pip", "install", "--python", folder / "bin/python", *packages)
    return folder / "bin"
