import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ending import end_in_child
from tests.makers.compiler import Compiler
from tests.unit.install.conftest import make_environment, take_stock
from tests.unit.install.index import Index
from tests.unit.wheel.maker import make_build_info
from toolkit.base import interpreters, seals
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError, PreflightError, UnsupportedError
from toolkit.engine.uv import Uv
from toolkit.install import installation, undo
from toolkit.install.installation import install, locking, recover, revert
from toolkit.install.installed import list_installed
from toolkit.install.target import Target, plan_new
from toolkit.records.own_environment import FILES
from toolkit.wheel import inspection

QUIET = Console(verbosity=-1)


pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def used(index: Index, target: Target) -> Target:
    """An environment with packages of its own, an older NumPy, and a file that nobody's record names."""
    index.add("tensorflow", "2.21.0", "numpy>=2", scripts=["toco"])
    index.add("numpy", "2.4.6", scripts=["f2py"])
    index.add("numpy", "1.24.0", scripts=["f2py", "f2py-old"], lock=False)
    index.add("own", "1.0", files={"own/data.txt": "kept"}, lock=False)
    index.fill(target, "numpy==1.24.0", "own==1.0")
    (target.python.packages / "tensorflow").mkdir()
    (target.python.packages / "tensorflow" / "__init__.py").write_text("left by another program\n")
    return target


def take_packages(target: Target) -> dict[str, bytes]:
    return {name: data for name, data in take_stock(target.folder).items() if undo.FOLDER not in name}


def ask(target: Target, code: str) -> str:
    argv = [str(target.program), "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def run_program(target: Target, name: str) -> str:
    return subprocess.run([target.folder / "bin" / name], capture_output=True, text=True, check=True).stdout.strip()


def require_whole(target: Target) -> None:
    assert ask(target, "import tensorflow, numpy; print(tensorflow.version, numpy.version)") == "2.21.0 2.4.6"
    assert (run_program(target, "toco"), run_program(target, "f2py")) == ("2.21.0", "2.4.6")
    assert not (target.folder / "bin" / "f2py-old").exists()


def test_tensorflow_comes_with_what_it_needs_and_all_of_it_can_be_undone(index: Index, used: Target) -> None:
    before = take_stock(used.folder)
    planned = index.plan(used)
    install(planned, QUIET)
    require_whole(used)
    assert (used.python.packages / "own" / "data.txt").read_text() == "kept"
    assert not index.plan(used).changes.wanted
    subprocess.run([used.program, "-c", "import tensorflow, numpy"], check=True)  # leaves bytecode
    revert(used, QUIET)
    assert take_stock(used.folder) == before
    assert run_program(used, "f2py-old") == "1.24.0"
    with pytest.raises(PreflightError, match="nothing to undo"):
        revert(used, QUIET)


def test_undo_leaves_alone_what_was_changed_since(index: Index, used: Target) -> None:
    install(index.plan(used), QUIET)
    index.fill(used, "numpy==1.24.0")
    before = take_stock(used.folder)
    with pytest.raises(PreflightError, match="were changed since") as caught:
        revert(used, QUIET)
    assert "numpy is 1.24.0, was 2.4.6" in caught.value.why
    assert take_stock(used.folder) == before


def test_what_pip_has_installed_is_corrected_in_one_file(index: Index, target: Target, gcc: Compiler) -> None:
    folder = "$ORIGIN/../nvidia/cusparse/lib"
    library = gcc.open_libraries(folder, folder)
    index.add("nvidia-cusolver-cu12", "11.7")
    files = {"tensorflow/library.so.2": library, inspection.BUILD_INFO: make_build_info()}
    index.add("tensorflow", "2.21.0", "nvidia-cusolver-cu12", files=files)
    index.fill(target, "tensorflow", "nvidia-cusolver-cu12")
    before = take_stock(target.folder)
    planned = index.plan(target)
    assert not planned.changes.needs_consent
    install(planned, QUIET)
    after = take_packages(target)
    changed = {Path(name).name for name in after if after[name] != before.get(name)}
    assert changed - {*FILES} == {"library.so.2", "RECORD", "REPAIRED"}
    assert after.keys() > before.keys()
    revert(target, QUIET)
    assert take_stock(target.folder) == before


def test_a_wheel_of_ones_own_takes_the_place_and_is_found_again(index: Index, target: Target) -> None:
    index.add("numpy", "2.4.6")
    wheel = index.add("tensorflow", "2.21.0+sm120", "numpy", lock=False)
    install(index.plan(target, wheel=wheel), QUIET)
    assert ask(target, "import tensorflow; print(tensorflow.version)") == "2.21.0+sm120"
    assert not index.plan(target, wheel=wheel).changes.wanted


def test_a_file_for_pip_installs_the_same(index: Index, target: Target, tmp_path: Path) -> None:
    index.add("numpy", "2.4.6")
    wheel = index.add("tensorflow", "2.21.0+sm120", "numpy", lock=False)
    packages = index.plan(target, wheel=wheel).packages
    file = tmp_path / "my image" / "requirements.txt"
    file.parent.mkdir()
    installation.write_requirements(file, packages, "TensorFlow")
    argv = [sys.executable, "-m", "pip", "--python", str(target.program), "install", "-q", "--no-index"]
    argv += ["--find-links", str(index.folder), "--require-hashes", "-r", file.name]
    subprocess.run(argv, cwd=file.parent, check=True, capture_output=True)
    assert ask(target, "import tensorflow; print(tensorflow.version)") == "2.21.0+sm120"


def test_a_package_with_another_hash_is_not_installed(index: Index, used: Target) -> None:
    planned = index.plan(used)
    before = take_stock(used.folder)
    index.add("tensorflow", "2.21.0", "numpy>=2", files={"tensorflow/evil.py": ""}, lock=False)
    with pytest.raises(IntegrityError):
        install(planned, QUIET)
    assert take_stock(used.folder) == before


def test_two_owners_of_one_file_are_found_before_anything_is_touched(index: Index, target: Target) -> None:
    index.add("tensorflow", "2.21.0", "library-cu12")
    index.add("library-cu12", "1.0", files={"nvidia/lib/libx.so": "twelve", "nvidia/__init__.py": ""})
    index.add("framework", "1.0", files={"nvidia/lib/libx.so": "thirteen", "nvidia/__init__.py": ""}, lock=False)
    index.fill(target, "framework")
    before = take_stock(target.folder)
    with pytest.raises(UnsupportedError) as caught:
        install(index.plan(target), QUIET)
    assert "library-cu12 would overwrite nvidia/lib/libx.so of framework 1.0" in caught.value.why
    assert take_stock(target.folder) == before


def test_a_new_environment_is_whole_and_works_where_it_lies(index: Index, tmp_path: Path) -> None:
    index.add("tensorflow", "2.21.0", scripts=["toco"])
    place = plan_new(tmp_path / "mine", interpreters.ask(Path(sys.executable)))
    install(index.plan(place), QUIET)
    assert run_program(place, "toco") == "2.21.0"
    assert ask(place, "import sys; print(sys.prefix)") == str(place.folder)
    place.folder.rename(tmp_path / "moved")
    assert (
        subprocess.run([tmp_path / "moved/bin/toco"], capture_output=True, text=True, check=True).stdout == "2.21.0\n"
    )
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


KILLED = {
    "before the download": ("run", 0, False),
    "after the download": ("run", 1, True),
    "before what was there is kept": ("save", 0, False),
    "after what was there is kept": ("save", 0, True),
    "before the change": ("run", 2, False),
    "after the change": ("run", 2, True),
    "before the end is recorded": ("finish", 0, False),
    "after the end is recorded": ("finish", 0, True),
}


def kill_at(monkeypatch: pytest.MonkeyPatch, name: str, count: int, *, after: bool) -> None:
    owner: Any = Uv if name == "run" else undo
    function, calls = getattr(owner, name), iter(range(100))

    def call(*arguments: Any, **options: Any) -> Any:
        last = next(calls) == count
        result = function(*arguments, **options) if after or not last else None
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("moment", list(KILLED))
def test_what_ends_the_command_the_same_command_completes(
    index: Index, used: Target, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, planned = take_stock(used.folder), index.plan(used)
    name, count, after = KILLED[moment]

    def cut_off() -> None:
        kill_at(monkeypatch, name, count, after=after)
        install(planned, QUIET)

    assert end_in_child(cut_off) == signal.SIGKILL
    install_again(index, used)
    require_whole(used)
    assert not list(used.python.packages.parent.glob(".[0-9a-f]*"))
    revert(used, QUIET)
    assert take_stock(used.folder) == before


def install_again(index: Index, target: Target) -> None:
    recover(target, QUIET)
    install(index.plan(target), QUIET)


def test_a_change_that_fails_is_undone(index: Index, used: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    before, planned = take_stock(used.folder), index.plan(used)
    monkeypatch.setattr(undo, "finish", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        install(planned, QUIET)
    assert take_stock(used.folder) == before


@pytest.mark.parametrize("forged", ["without a mark", "with the mark of another environment", "with paths outside"])
def test_a_record_that_somebody_brought_along_is_not_carried_out(
    index: Index, used: Target, tmp_path: Path, forged: str
) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("precious")
    way = os.path.relpath(precious, used.python.packages)
    seals.make_key()
    if forged == "with the mark of another environment":
        install(index.plan(used), QUIET)
        other = make_environment(tmp_path / "other")
        (used.python.packages.parent / undo.FOLDER).rename(other.python.packages.parent / undo.FOLDER)
        assert undo.find(other.python) is None
        return
    value = {
        "state": "changing",
        "environment": undo._identify(used.python),
        "added": [way],
        "saved": [],
        "packages": {},
    }
    mark = seals.mark(undo._PURPOSE, value) if forged == "with paths outside" else "0" * 64
    folder = used.python.packages.parent / undo.FOLDER
    folder.mkdir()
    (folder / "record.json").write_text(json.dumps({"before": value, "mark": mark}))
    if forged == "with paths outside":
        with pytest.raises(PreflightError, match="outside of"):
            undo.recover(used.python)
    else:
        assert not undo.recover(used.python)
    assert precious.read_text() == "precious"


def test_an_environment_that_is_changed_meanwhile_is_left_alone(index: Index, used: Target) -> None:
    planned = index.plan(used)
    index.add("late", "1.0", "numpy<2", lock=False)
    index.fill(used, "late")
    with pytest.raises(PreflightError, match="changed meanwhile"):
        install(planned, QUIET)
    assert list_installed(used.python)["numpy"].version == "1.24.0"


def test_a_second_command_on_one_environment_is_refused(index: Index, used: Target) -> None:
    planned = index.plan(used)
    with locking(used.folder), pytest.raises(PreflightError, match="another command changes"):
        install(planned, QUIET)
