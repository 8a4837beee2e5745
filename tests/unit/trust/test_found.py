"""A wheel that a command finds by itself is taken only with this user's seal, or at this user's word."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command import Run
from tests.makers import publication
from tests.makers.canary import Canary
from tests.unit.wheel.maker import MEMBER, make_build_info, make_wheel
from toolkit.base import manifest, seals
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError, PreflightError
from toolkit.engine import custody
from toolkit.graft import assembly
from toolkit.jobs.choice import Manner, Wishes, choose
from toolkit.versions.settings import resolve
from toolkit.wheel import wheel_folder

CARD = "12.0"
SETTINGS = 'card: "12.0"\nengine: host\n'
"""What a stranger's ``toolkit.yaml`` may say."""

Make = Callable[..., Path]


def _wish(folder: Path) -> Wishes:
    folder.mkdir(exist_ok=True)
    (folder / "toolkit.yaml").write_text(SETTINGS)
    return Wishes(settings=resolve({}, file=folder / "toolkit.yaml"))


SILENT = Manner(console=Console(verbosity=-1))


@pytest.fixture
def make(tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a folder with the settings and the wheel of a stranger, who has a key as well."""

    def make(name: str = "", *, seal: str = "stranger") -> Path:
        """``name``: of the wheel's folder; by default that of the graft which the card needs."""
        planned = choose(_wish(tmp_path / "here"), SILENT, tmp_path / "nowhere").missing
        assert planned
        folder = tmp_path / "here" / "dist" / (name or planned.name)
        folder.mkdir(parents=True)
        content = {MEMBER: make_build_info("sm_120", cuda="12.5.1"), "zz.pth": canary.python}
        wheel = make_wheel(folder, version=f"{planned.lock.versions.tensorflow}+sm120", files=content)
        with monkeypatch.context() as patched:
            if seal != "own":
                patched.setenv("XDG_DATA_HOME", str(tmp_path / "stranger"))
            plan = "" if name else planned.digest
            publication.seal(wheel, "sm_90", "sm_120", plan=plan, lock=planned.lock.describe())
        if not seal:
            (folder / custody.FILE).unlink()
        return folder

    return make


def _ask_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """Return which wheels ``install`` and ``train`` take; none where they say that there is none."""
    monkeypatch.chdir(folder)
    wishes = _wish(folder)
    installs = replace(wishes, installs=True, python="3.11")
    return [choose(installs, SILENT).wheel, choose(wishes, SILENT).wheel]


@pytest.mark.parametrize("name", ["", "mine"], ids=["the graft by its plan", "any wheel with the code"])
def test_install_and_train_give_one_answer(make: Make, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = make(name, seal="own")
    (wheel,) = folder.glob("*.whl")
    assert _ask_both(folder.parents[1], monkeypatch) == [wheel, wheel]
    shutil.rmtree(folder)
    assert _ask_both(folder.parents[1], monkeypatch) == [None, None]


@pytest.mark.parametrize(
    "command",
    [
        ("train", "digits"),
        ("train", "digits", "--dry-run"),
        ("up", "digits"),
        ("smoke",),
        ("install", "--into", "env", "--dry-run"),
        ("graft", "--compute-capability", CARD),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("seal", ["", "stranger"], ids=["no seal", "a seal of another key"])
def test_a_strangers_wheel_is_not_taken_unasked(
    make: Make, run: Run, canary: Canary, command: tuple[str, ...], seal: str
) -> None:
    folder = make(seal=seal)
    before = sorted(path.name for path in folder.iterdir())
    done = run(*command)
    assert done.returncode == 8, done.stderr
    assert f"--wheel dist/{folder.name}" in done.stderr
    assert "--trust" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before
    assert not (run.folder / ".toolkit").exists()
    assert not canary.has_sung()


@pytest.mark.parametrize("kind", ["copied seal", "other bytes", "other record", "open folder", "open dist"])
def test_a_seal_holds_for_one_wheel_that_others_cannot_change(make: Make, kind: str) -> None:
    own, other = make("own", seal="own"), make("other", seal="")
    wheel_folder.require_own(own)
    record = (other if kind == "copied seal" else own) / manifest.FILE
    if kind == "copied seal":
        shutil.copy2(own / "seal.json", other)
    if kind in {"copied seal", "other record"}:
        record.write_text(record.read_text().replace("sm_90", "sm_80"))
    elif kind == "other bytes":
        (wheel,) = own.glob("*.whl")
        wheel.write_bytes(wheel.read_bytes()[:-1] + b"\1")
    elif kind == "open folder":
        own.chmod(0o777)
    elif kind == "open dist":
        own.parent.chmod(0o777)
    with pytest.raises(IntegrityError, match="not used unless you ask for it"):
        wheel_folder.require_own(record.parent)


def test_what_was_moved_or_copied_on_this_machine_stays_ones_own(make: Make, tmp_path: Path) -> None:
    folder = make("own", seal="own")
    shutil.copytree(folder, tmp_path / "copy" / "own")
    wheel_folder.require_own(tmp_path / "copy" / "own")


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_what_is_in_the_way_of_a_wheel_is_not_removed(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind == "file":
        target.write_text("thesis")
    elif kind == "link":
        (tmp_path / "thesis").mkdir()
        target.symlink_to(tmp_path / "thesis")
    else:
        target.mkdir()
    with pytest.raises(PreflightError, match="is in the way"):
        wheel_folder.require_free(target)
    assert target.exists()


def test_machine_code_that_somebody_else_has_put_into_the_cache_of_grafts_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sm_120" / "digest"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "stranger"))
    seals.make_key()
    assembly.write_result(file, b"evil")
    assert assembly.read_result(file) == b"evil"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    seals.make_key()
    with pytest.raises(ValueError, match="has not made it"):
        assembly.read_result(file)
    assembly.write_result(file, b"good")
    shutil.copy(file, file.with_name("other"))  # of another kernel
    with pytest.raises(ValueError, match="has not made it"):
        assembly.read_result(file.with_name("other"))
