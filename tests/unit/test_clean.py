"""Clean looks for marks of ours in the state folder: a folder without one is somebody else's."""

from pathlib import Path

from toolkit import clean


def test_only_marked_folders_are_ours(tmp_path: Path) -> None:
    for name, mark in (("environment-1", "manifest.json"), ("half-made", "install.log"), ("stranger", "thesis.tex")):
        (tmp_path / name).mkdir()
        (tmp_path / name / mark).touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "manifest.json").touch()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "link").symlink_to(tmp_path / "outside")
    found = {Path(item.name).name for item in clean.find(None, tmp_path)}
    assert found == {"environment-1", "half-made", "outside"}
    assert clean.find(None, tmp_path / "state") == []


def test_a_state_folder_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real" / "environment-1").mkdir(parents=True)
    (tmp_path / "real" / "environment-1" / "manifest.json").touch()
    (tmp_path / "state").symlink_to(tmp_path / "real")
    assert clean.find(None, tmp_path / "state") == []


def test_what_is_found_is_removed(tmp_path: Path) -> None:
    (tmp_path / "environment-1").mkdir()
    (tmp_path / "environment-1" / "manifest.json").touch()
    (item,) = clean.find(None, tmp_path)
    assert clean.remove(item) is None
    assert list(tmp_path.iterdir()) == []
