import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from train.errors import PreflightError
from train.record import checkpoint, reader
from train.record.checkpoint import Position, Values

VALUES: Values = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.int64(3) * np.ones((), np.int64)}


def save(folder: Path, step: int, keep: int = 2) -> Path:
    return checkpoint.save(folder, {**VALUES, "step": np.array(step)}, Position(step=step, loss_sum=0.1), keep=keep)


def require_first(folder: Path, *, problems: int) -> None:
    loaded, found = checkpoint.load(folder)
    assert loaded
    assert loaded.position.step == 1
    assert len(found) == problems


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_bit_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    victim = data.draw(st.sampled_from([newest, newest.with_suffix(".json")]))
    content = bytearray(victim.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    victim.write_bytes(content)
    loaded, problems = checkpoint.load(tmp_path)
    assert loaded
    if problems:
        assert loaded.position.step == 1
        assert newest.name in problems[0]
    else:
        # Some bits of JSON have no meaning, such as the case of an escaped digit: then all values must be right.
        assert loaded.position == Position(step=2, loss_sum=0.1)
        assert np.array_equal(loaded.values["a/b"], VALUES["a/b"])


@pytest.mark.parametrize(("written", "changed"), [('"loss_sum": 0.1', '"loss_sum": 0.3'), ('"a/b"', '"a/c"')])
def test_a_record_that_says_something_else_is_noticed(tmp_path: Path, written: str, changed: str) -> None:
    """The checksums in the archive of the arrays do not cover the record."""
    save(tmp_path, 1)
    record = save(tmp_path, 2).with_suffix(".json")
    text = record.read_text()
    assert written in text
    record.write_text(text.replace(written, changed))
    require_first(tmp_path, problems=1)


def test_packed_arrays_are_refused_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    monkeypatch.setattr(checkpoint.np, "savez", np.savez_compressed)
    checkpoint.save(tmp_path, {**VALUES, "step": np.zeros(1_000_000)}, Position(step=2), keep=2)
    require_first(tmp_path, problems=1)
    with pytest.raises(ValueError, match="its arrays are packed"):
        reader.read_state(tmp_path / "step-00000002.json")


def test_a_damaged_checkpoint_does_not_outlive_the_new_ones(tmp_path: Path) -> None:
    """A run whose newest checkpoints are damaged starts again, with lower step numbers than theirs."""
    for step in (7, 8):
        os.truncate(save(tmp_path, step), 5)
    save(tmp_path, 1)
    save(tmp_path, 2)
    loaded, problems = checkpoint.load(tmp_path)
    assert loaded
    assert loaded.position.step == 2
    assert not problems


def test_arrays_whose_process_was_killed_before_their_record_are_removed(tmp_path: Path) -> None:
    save(tmp_path, 1).with_suffix(".json").unlink()
    own = tmp_path / "step-00000001-of-mine.npz"
    own.touch()
    save(tmp_path, 2)
    save(tmp_path, 3)
    assert {path.stem for path in tmp_path.iterdir()} == {"step-00000002", "step-00000003", own.stem}


def test_a_process_that_is_killed_while_it_removes_old_ones_leaves_no_record_without_its_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    original = Path.unlink

    def remove_and_die(self: Path, *, missing_ok: bool = False) -> None:
        original(self, missing_ok=missing_ok)
        if self.suffix in {".json", ".npz"}:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", remove_and_die)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2, keep=1)
    assert {path.name for path in tmp_path.iterdir()} >= {"step-00000001.npz"}
    assert checkpoint.load(tmp_path)[1] == []
    assert not (tmp_path / "step-00000001.json").exists()


def test_a_checkpoint_that_cannot_be_read_is_no_damaged_one(tmp_path: Path) -> None:
    """The file may be good, and a run that started again would overwrite it."""
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    newest.unlink()
    newest.symlink_to(newest.name)  # a link that leads nowhere, which not even root can read
    with pytest.raises(PreflightError, match=f"cannot read the checkpoint {newest}") as caught:
        checkpoint.load(tmp_path)
    assert caught.value.why == "Too many levels of symbolic links"
