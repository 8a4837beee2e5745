from pathlib import Path

import pytest

from toolkit.base.errors import IntegrityError
from toolkit.wheel import wheel_folder


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    for name in ("x.whl", "build.log"):
        (tmp_path / name).write_text(name)
    wheel_folder.write_sums(tmp_path)
    return tmp_path


def test_every_change_is_noticed(dist: Path) -> None:
    def spoil(action: str) -> None:
        match action:
            case "is not what":
                (dist / "x.whl").write_text("other")
            case "is missing":
                (dist / "build.log").unlink()
            case "is not in":
                (dist / "new").write_text("")
            case "no sum":
                (dist / wheel_folder.SUMS).write_text("nonsense\n")
            case "no readable":
                (dist / wheel_folder.SUMS).unlink()

    for action in ("is not what", "is missing", "is not in", "no sum", "no readable"):
        for name in ("x.whl", "build.log"):
            (dist / name).write_text(name)
        (dist / "new").unlink(missing_ok=True)
        wheel_folder.write_sums(dist)
        spoil(action)
        with pytest.raises(IntegrityError) as caught:
            wheel_folder.check_sums(dist)
        assert action in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_listed_file_that_became_something_else_is_noticed(dist: Path, kind: str) -> None:
    (dist / "build.log").unlink()
    if kind == "folder":
        (dist / "build.log").mkdir()
    else:
        (dist.parent / f"{dist.name}.log").write_text("build.log")
        (dist / "build.log").symlink_to(dist.parent / f"{dist.name}.log")
    with pytest.raises(IntegrityError) as caught:
        wheel_folder.check_sums(dist)
    assert caught.value.why == "build.log is no regular file"


def test_one_file_is_held_to_the_sums_beside_it(dist: Path) -> None:
    wheel_folder.check_sum(dist / "x.whl")
    (dist / "new.whl").write_text("nobody wrote a sum of it")
    with pytest.raises(IntegrityError, match="has changed since it was made") as caught:
        wheel_folder.check_sum(dist / "new.whl")
    assert "new.whl is not in" in caught.value.why
    (dist / "x.whl").write_text("other")
    with pytest.raises(IntegrityError) as caught:
        wheel_folder.check_sum(dist / "x.whl")
    assert caught.value.why == "x.whl is not what SHA256SUMS says"
    (dist / wheel_folder.SUMS).unlink()
    wheel_folder.check_sum(dist / "x.whl")
