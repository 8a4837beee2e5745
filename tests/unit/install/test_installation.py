import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ending import end_in_child
from tests.unit.install.index import Index
from toolkit import digest, files, interpreters
from toolkit.console import Console
from toolkit.errors import BuildError, IntegrityError, PreflightError
from toolkit.install import exchange, installation
from toolkit.install.changes import compare, list_installed
from toolkit.install.installation import Installation
from toolkit.install.packages import describe_environment, read_locked, select_packages
from toolkit.install.pip import Pip
from toolkit.install.target import Target, find, plan_new
from toolkit.smoke.checks.installation import take_fingerprint

QUIET = Console(verbosity=-1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "NEEDED_BYTES", {"cpu": 0, "cuda": 0})


def take_stock(folder: Path) -> dict[str, bytes]:
    """Return the files of an environment; bytecode aside, which importing makes."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def fill(index: Index) -> None:
    index.add("tensorflow", "2.21.0", "numpy>=1.26", scripts=["toco"])
    index.add("numpy", "2.4.6", scripts=["f2py"])
    index.add("unrelated", "1.0")


def plan(index: Index, target: Target, *, wheel: Path | None = None) -> Installation:
    python = target.python
    locked = read_locked(index.locked, describe_environment(python))
    pip = index.make_pip(python)
    found = select_packages(
        pip,
        python,
        locked,
        () if wheel else ("tensorflow==2.21.0",),
        wheel=wheel,
        digest=digest.digest_file(wheel) if wheel else "",
    )
    there = {} if target.new else list_installed(python)
    return Installation(target=target, packages=found, changes=compare(found, there, python), pip=pip)


def ask(target: Target, code: str) -> str:
    argv = [str(target.program), "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def run_program(target: Target, name: str) -> str:
    return subprocess.run([target.folder / "bin" / name], capture_output=True, text=True, check=True).stdout.strip()


def test_tensorflow_comes_with_what_it_needs_and_the_rest_stays(index: Index, target: Target) -> None:
    fill(index)
    packages = target.python.packages
    own = index.add("own", "1.0", files={"own/data.txt": "kept"}, lock=False)
    old = index.add("numpy", "1.24.0", lock=False)
    for wheel in (own, old):
        unpack(wheel, packages)
    record = packages / "numpy-1.24.0.dist-info" / "RECORD"
    record.write_text(f"{record.read_text()}../../../bin/f2py-old,,\n")
    (target.folder / "bin" / "f2py-old").touch()
    # What a package left behind is replaced, and not written into: the environment is in use until the end.
    (packages / "tensorflow").mkdir()
    (packages / "tensorflow" / "__init__.py").write_text("before\n")
    os.link(packages / "tensorflow" / "__init__.py", target.folder / "linked")
    planned = plan(index, target)
    assert {each.name for each in planned.packages} == {"tensorflow", "numpy"}
    installation.install(planned, QUIET)
    assert ask(target, "import tensorflow, numpy; print(tensorflow.version, numpy.version)") == "2.21.0 2.4.6"
    assert (packages / "own" / "data.txt").read_text() == "kept"
    assert (target.folder / "linked").read_text() == "before\n"
    assert not (packages / "unrelated").exists()
    assert run_program(target, "toco") == "2.21.0"
    assert run_program(target, "f2py") == "2.4.6"
    assert not (target.folder / "bin" / "f2py-old").exists()
    assert not list(packages.parent.glob(".*"))
    assert not compare(planned.packages, list_installed(target.python), target.python).wanted
    # The program names its environment, and its record has the hash of that.
    rows = next(packages.glob("tensorflow-*.dist-info/RECORD")).read_text().splitlines()
    row = next(row.split(",") for row in rows if "bin/toco" in row)
    found = take_fingerprint(packages / row[0], "sha256")
    assert found
    assert row[1:] == [f"sha256={found.digest}", str(found.size)]


def unpack(wheel: Path, packages: Path) -> None:
    """Unpack a wheel as pip does, which replaces files and writes into none."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            (packages / name).unlink(missing_ok=True)
        archive.extractall(packages)


@pytest.mark.slow
def test_a_wheel_of_ones_own_is_installed_by_a_file_for_pip_and_found_again(
    index: Index, target: Target, tmp_path: Path
) -> None:
    fill(index)
    built = index.add("tensorflow", "2.21.0+sm120", "numpy", lock=False)
    (tmp_path / "my image" / "dist").mkdir(parents=True)
    wheel = built.rename(tmp_path / "my image" / "dist" / built.name)
    packages = plan(index, target, wheel=wheel).packages
    file = tmp_path / "my image" / "requirements.txt"
    installation.write_requirements(file, packages, "TensorFlow")
    pip = [*index.make_pip(target.python).command, "--python", str(target.program), "install", "--no-index"]
    argv = [*pip, "--find-links", str(index.folder), "--require-hashes", "-r", file.name]
    subprocess.run(argv, cwd=file.parent, check=True, capture_output=True)
    assert ask(target, "import tensorflow; print(tensorflow.version)") == "2.21.0+sm120"
    assert not compare(packages, list_installed(target.python), target.python).wanted


def test_a_package_with_another_hash_is_not_installed(index: Index, target: Target) -> None:
    index.add("tensorflow", "2.21.0")
    planned = replace(plan_unpacking(index, target), pip=index.make_pip(target.python))
    before = take_stock(target.folder)
    index.add("tensorflow", "2.21.0", files={"tensorflow/evil.py": ""}, lock=False)
    with pytest.raises(IntegrityError):
        installation.install(planned, QUIET)
    assert take_stock(target.folder) == before


class Unpacker(Pip):
    """Unpacks wheels in place of pip, in milliseconds, with a program as pip writes it."""

    def install(self, python: Path, *arguments: str, **options: Any) -> None:
        packages = interpreters.ask(python).packages
        for place in sorted(Path(self.command[0]).glob("*.whl")):
            unpack(place, packages)
        program = python.parent / "toco"
        program.write_text(f"#!{python}\nimport tensorflow\nprint(tensorflow.version)\n")
        program.chmod(0o755)
        record = next(packages.glob("tensorflow-*.dist-info/RECORD"))
        record.write_text(record.read_text() + "../../../bin/toco,,\n")

    def uninstall(self, python: Path, names: Sequence[str], **options: Any) -> None:
        raise NotImplementedError


def plan_unpacking(index: Index, target: Target) -> Installation:
    text = index.locked
    packages = tuple(read_locked(text, describe_environment(target.python)).values())
    there = {} if target.new else list_installed(target.python)
    changes = compare(packages, there, target.python)
    return Installation(target=target, packages=packages, changes=changes, pip=Unpacker(command=(str(index.folder),)))


def test_a_new_environment_is_whole_and_names_its_own_folder(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("tensorflow", "2.21.0")
    monkeypatch.setattr(installation, "VENV", ("-m", "venv", "--without-pip"))
    place = plan_new(tmp_path / "mine", interpreters.ask(Path(sys.executable)))
    installation.install(plan_unpacking(index, place), QUIET)
    assert run_program(place, "toco") == "2.21.0"
    assert ask(place, "import sys; print(sys.prefix)") == str(place.folder)
    assert not [name for name, content in take_stock(place.folder).items() if f"{tmp_path}/.".encode() in content]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "mine"]


KILLED = {
    "before the copy": ("copy", False),
    "after the copy": ("copy", True),
    "before the exchange": ("exchange", False),
    "after the exchange": ("exchange", True),
    "before the programs name their folder": ("relocate", False),
    "before the commit": ("commit", False),
    "after the commit": ("commit", True),
}


@pytest.mark.parametrize("exchanges", [True, False], ids=["exchange", "two renames"])
@pytest.mark.parametrize("moment", list(KILLED))
def test_a_killed_command_leaves_the_environment_as_before_or_whole(
    index: Index, target: Target, moment: str, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("tensorflow", "2.21.0")
    (target.python.packages / "tensorflow").mkdir()
    (target.python.packages / "tensorflow" / "__init__.py").write_text("version = 'the one before'\n")
    before = take_stock(target.folder)
    name, after = KILLED[moment]
    owner: object = files if name == "exchange" else exchange
    function = getattr(owner, name)

    def kill(*arguments: Any) -> Any:
        result = function(*arguments) if after and (name != "exchange" or exchanges) else None
        os.kill(os.getpid(), signal.SIGKILL)
        return result

    def install() -> None:
        if not exchanges:
            monkeypatch.setattr(files, "exchange", lambda *_: False)
        monkeypatch.setattr(owner, name, kill)
        installation.install(plan_unpacking(index, target), QUIET)

    assert end_in_child(install) == signal.SIGKILL
    found = find(target.folder)  # as the next command does
    assert found
    version = ask(found, "import tensorflow; print(tensorflow.version)")
    if version == "the one before":
        stock = {name: content for name, content in take_stock(target.folder).items() if "/." not in name}
        assert stock == before
    else:
        assert version == "2.21.0"
        assert run_program(found, "toco") == "2.21.0"
    installation.install(plan_unpacking(index, found), QUIET)
    assert run_program(found, "toco") == "2.21.0"
    assert not list(target.python.packages.parent.glob(".*"))


def test_a_command_that_is_killed_between_two_renames_is_finished_by_the_next(
    index: Index, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file system cannot exchange two folders, the folder of packages has no name for a moment."""
    index.add("tensorflow", "2.21.0")
    planned = plan_unpacking(index, target)
    monkeypatch.setattr(files, "exchange", lambda *_: False)
    rename = Path.rename

    def kill(self: Path, place: Path) -> Path:
        done = rename(self, place)
        if place.name == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def install() -> None:
        monkeypatch.setattr(Path, "rename", kill)
        installation.install(planned, QUIET)

    assert end_in_child(install) == signal.SIGKILL
    assert not target.python.packages.exists()
    found = find(target.folder)
    assert found
    assert run_program(found, "toco") == "2.21.0"


def test_an_environment_that_is_changed_meanwhile_is_left_alone(
    index: Index, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("tensorflow", "2.21.0")
    planned = plan_unpacking(index, target)
    function = exchange.relocate

    def change(*arguments: Any) -> None:
        (target.python.packages / "other-1.0.dist-info").mkdir(exist_ok=True)
        function(*arguments)

    monkeypatch.setattr(exchange, "relocate", change)
    with pytest.raises(PreflightError, match="changed meanwhile"):
        installation.install(planned, QUIET)
    assert not (target.python.packages / "tensorflow").exists()
    assert (target.python.packages / "other-1.0.dist-info").exists()


def test_a_file_that_a_package_changes_in_its_place_is_not_shared(target: Target, tmp_path: Path) -> None:
    """An installer may write into the copy of a .pth file while the environment is still in use."""
    (target.python.packages / "paths.pth").write_text("before\n")
    copied = exchange.copy(target.python, target.folder, tmp_path / "stage")
    with (copied.packages / "paths.pth").open("a") as stream:
        stream.write("after\n")
    assert (target.python.packages / "paths.pth").read_text() == "before\n"


def test_a_pip_without_a_network_is_not_said_to_have_met_a_conflict(tmp_path: Path) -> None:
    script = tmp_path / "pip"
    script.write_text(
        "echo \"WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to "
        "establish a new connection: [Errno -2] Name or service not known')': /simple/x/\"\n"
        "echo 'ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/'\nexit 1\n"
    )
    with pytest.raises(BuildError) as caught:
        Pip(command=("sh", str(script)), variables={}).install(tmp_path, show=lambda _line: None, locks=())
    assert caught.value.remedy.endswith("see `toolkit diagnose --id network-names`")
