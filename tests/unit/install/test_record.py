"""What `verify` says of an environment of the user's own, after `install` and after what came later."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.makers.canary import STRANGER
from tests.unit.install.conftest import make_environment
from tests.unit.install.index import Index
from toolkit import records
from toolkit.base import keys
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.install.installation import install, revert
from toolkit.install.target import Target, plan_new
from toolkit.records import attestation, verification

QUIET = Console(verbosity=-1)

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def installed(index: Index, target: Target) -> Target:
    """An environment with packages of its own, into which TensorFlow was installed."""
    index.add("own", "1.0", lock=False)
    index.add("later", "2.0", scripts=["later"], lock=False)
    index.add("numpy", "2.4.6")
    index.add("tensorflow", "2.21.0", "numpy")
    index.fill(target, "own")
    install(index.plan(target), QUIET)
    return target


def verify(folder: Path) -> dict[str, str]:
    """Return the evidence of all findings that are not ok, by their names and states."""
    findings = records.compare(records.find(str(folder), folder.parent)).list_findings()
    assert [item.id for item in findings[:3]] == ["seal", "packages", "content"]
    return {f"{item.id} {item.state}": item.evidence for item in findings if item.state != "ok"}


def use(index: Index, target: Target) -> None:
    subprocess.run([target.program, "-c", "import tensorflow, own"], check=True)
    (target.folder / "notes.txt").write_text("mine")


def add_package(index: Index, target: Target) -> None:
    index.fill(target, "later")


def change_file(index: Index, target: Target) -> None:
    (target.python.packages / "numpy" / "__init__.py").write_text("version = 'evil'\n")


def add_file(index: Index, target: Target) -> None:
    (target.python.packages / "evil.pth").write_text("import os\n")


def replace_package(index: Index, target: Target) -> None:
    index.add("numpy", "1.24.0", lock=False)
    index.fill(target, "numpy==1.24.0")


def remove_package(index: Index, target: Target) -> None:
    shutil.rmtree(next(target.python.packages.glob("own-*")))


def replace_interpreter(index: Index, target: Target) -> None:
    path = target.folder / "bin" / "python"
    path.unlink()
    path.write_text("#!/bin/sh\n")


def forge_record(index: Index, target: Target) -> None:
    manifest = target.folder / ".toolkit-record" / "manifest.json"
    value = json.loads(manifest.read_text())
    value["facts"]["packages"]["numpy"] = "2.4.7"
    manifest.write_text(json.dumps(value))


def forge_list(index: Index, target: Target) -> None:
    (target.folder / ".toolkit-record" / "files.json").write_text("{}")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (use, {}),
        (add_package, {"later absent": "later 2.0"}),
        (change_file, {"content fail": "numpy/__init__.py has other bytes"}),
        (add_file, {"content fail": "evil.pth was added, and no package brought it"}),
        (replace_package, {"packages fail": "numpy 1.24.0, was 2.4.6", "content fail": "numpy"}),
        (remove_package, {"packages fail": "own is missing, was 1.0", "content fail": "own-1.0.dist-info"}),
        (replace_interpreter, {"content fail": "bin/python"}),
        (forge_record, {"seal fail": "its record was changed", "packages fail": "numpy 2.4.6, was 2.4.7"}),
        (forge_list, {"content fail": "files.json is not the list that the manifest names"}),
    ],
)
def test_what_was_changed_after_the_installation_is_named(
    index: Index, installed: Target, change: Callable[[Index, Target], None], found: dict[str, str]
) -> None:
    change(index, installed)
    said = verify(installed.folder)
    assert said.keys() == found.keys(), said
    assert all(text in said[name] for name, text in found.items()), said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_who_made_the_record_of_another_user_is_not_known(installed: Target) -> None:
    for path in (installed.folder, *installed.folder.rglob("*")):
        os.lchown(path, STRANGER, STRANGER)
    said = verify(installed.folder)
    assert said.keys() == {"seal absent"}
    assert "another user has installed it" in said["seal absent"]


def test_the_key_of_another_user_makes_no_seal(
    installed: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert "you have not made it on this machine" in verify(installed.folder)["seal fail"]


def test_without_a_record_nothing_is_said(index: Index, installed: Target) -> None:
    """`--undo` brings back an environment that has none."""
    revert(installed, QUIET)
    assert not (installed.folder / ".toolkit-record").exists()
    with pytest.raises(IntegrityError) as caught:
        records.find(str(installed.folder), installed.folder.parent)
    assert "toolkit install" in caught.value.remedy


def test_undo_brings_back_the_record_of_before(index: Index, installed: Target) -> None:
    before = (installed.folder / ".toolkit-record" / "manifest.json").read_bytes()
    wheel = index.add("tensorflow", "2.21.0+sm120", "numpy", lock=False)
    install(index.plan(installed, wheel=wheel), QUIET)
    assert verify(installed.folder).keys() == {"origin absent"}  # the wheel is not in dist
    assert (installed.folder / ".toolkit-record" / "manifest.json").read_bytes() != before
    revert(installed, QUIET)
    assert not verify(installed.folder)


def test_a_new_environment_has_a_record_where_it_lies(index: Index, tmp_path: Path) -> None:
    index.add("tensorflow", "2.21.0")
    python = make_environment(tmp_path / "python").python
    install(index.plan(plan_new(tmp_path / "new", python)), QUIET)
    assert not verify(tmp_path / "new")
    assert records.find(str(tmp_path / "new"), tmp_path).find_tensorflow() == "2.21.0"


def test_a_signature_covers_the_list_of_all_files(installed: Target, tmp_path: Path) -> None:
    keys.make(tmp_path / "key", "ed25519")
    artifact = records.find(str(installed.folder), tmp_path)
    attestation.sign(artifact, keys.load(str(tmp_path / "key")), replace=False)
    policy = records.read_policy([tmp_path / "key.pub"])
    assert verification.verify(artifact, policy).signatures_hold
    (installed.folder / ".toolkit-record" / "files.json").write_text("{}")
    assert not verification.verify(artifact, policy).signatures_hold
