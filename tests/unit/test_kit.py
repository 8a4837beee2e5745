"""The kit in pieces: cut here, put together by plain Python in a folder of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.wheel.maker import make_wheel
from tools import join, kit


@pytest.fixture
def pieces(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    wheels = [make_wheel(tmp_path / "wheels", name=name, tag="py3-none-any") for name in ("tensorflow", "nvidia-cudnn")]
    kit.cut(wheels, tmp_path / "kit", most=500)
    return tmp_path / "kit"


def test_the_wheels_are_the_same_after_they_were_cut(pieces: Path) -> None:
    assert len(list(pieces.glob("*.whl.*"))) > 2
    assert all(piece.stat().st_size <= 500 for piece in pieces.glob("*.whl.*"))
    for made in join.put_together(pieces):
        assert made.read_bytes() == (pieces.parent / "wheels" / made.name).read_bytes()


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_piece_that_is_not_whole_is_named(pieces: Path, how: str) -> None:
    piece = sorted(pieces.glob("tensorflow-*.whl.*"))[1]
    if how == "missing":
        piece.unlink()
    else:
        piece.write_bytes(piece.read_bytes()[:-1] + b"\1")
    done = subprocess.run([sys.executable, pieces / "join.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (8, "")
    assert done.stderr.startswith(f"{how}: {piece.name}")
    assert not (pieces / "env").exists()


def test_a_list_that_does_not_fit_is_named(pieces: Path) -> None:
    listed = json.loads((pieces / kit.LIST).read_text())
    listed["wheels"][0]["sha256"] = "0" * 64
    (pieces / kit.LIST).write_text(json.dumps(listed))
    with pytest.raises(join.DamagedError, match=r"the list of .*: copy pieces\.json again"):
        join.put_together(pieces)


def test_wheels_for_another_python_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "ENVIRONMENT", tmp_path / "env")
    with pytest.raises(join.DamagedError, match=r"tensorflow-2\.19\.0-cp39-cp39-linux_x86_64\.whl is for another"):
        join.unpack([make_wheel(tmp_path, tag="cp39-cp39-linux_x86_64")])
    assert not join.ENVIRONMENT.exists()
