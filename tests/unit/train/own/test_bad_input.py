import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.makers.tables import open_
from tests.ordinary import run_as_ordinary
from tests.unit.train.own.making import make_image, write_classes, write_image
from train.cli import main
from train.command_line import parse
from train.data import Pictures
from train.errors import DataError
from train.record.reader import find_change


def cut_short(path: Path) -> None:
    write_image(path, make_image((60, 60)))
    path.write_bytes(path.read_bytes()[:-800])


def lie_about_size(path: Path) -> None:
    write_image(path)
    content = path.read_bytes()
    header = content[12:16] + struct.pack(">II", 60_000, 60_000) + content[24:29]
    path.write_bytes(content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut.jpg": (cut_short, "the image is broken"),
    "lie.png": (lie_about_size, "80,000,000"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_among_many_is_named_or_left_out(tmp_path: Path, name: str) -> None:
    folder, (make, why) = write_classes(tmp_path / "pets", count=10), BROKEN[name]
    make(folder / "cat" / name)
    with pytest.raises(DataError, match=f"cat/{name}") as caught:
        open_(folder)
    assert why in caught.value.why
    assert "--skip-broken leaves out all such images" in caught.value.remedy
    dataset = open_(folder, "--skip-broken")
    assert len(dataset.train) + len(dataset.test) == 20
    assert dataset.notes[0].startswith("1 of 21 train images left out; the first: cannot read")


def test_a_set_with_only_broken_images_is_refused(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "pets" / name / "0.png").write_bytes(b"")
    with pytest.raises(DataError, match="has no image that can be used"):
        open_(tmp_path / "pets", "--skip-broken")


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("cat/notes.txt",), "there are no images in"),
        (("0.png",), r"0\.png has no label"),
        (("cat/0.png", "cat/1.png"), "are of one class.*nothing to tell cat from"),
        (("train/cat/0.png", "train/dog/0.png", "test/owl/0.png"), "a class that the training split lacks: owl"),
        (("cat/0.png", "cat/\udcff.png", "dog/0.png"), "a name that is no text"),
    ],
)
def test_a_folder_that_is_no_data_set_is_refused(tmp_path: Path, names: tuple[str, ...], what: str) -> None:
    for name in names:
        path = tmp_path / "pets" / name
        if path.suffix == ".png":
            write_image(path)
        else:
            path.parent.mkdir(parents=True)
            path.write_text("nothing", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        open_(tmp_path / "pets")
    assert re.search(what, str(caught.value), re.DOTALL)


def test_links_that_never_end_and_links_to_nothing(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "pets")
    (folder / "cat" / "round").symlink_to(folder)
    with pytest.raises(DataError, match="cat/round leads to a folder that it lies in"):
        open_(folder)
    (folder / "cat" / "round").unlink()
    (folder / "cat" / "gone.png").symlink_to(folder / "nowhere.png")
    with pytest.raises(DataError, match="is a link to nothing"):
        open_(folder)


@pytest.mark.parametrize("target", ["more/owl", "more/owl/0.png"])
def test_links_that_leave_the_folder_are_refused_and_counted(tmp_path: Path, target: str) -> None:
    folder = write_classes(tmp_path / "pets")
    write_classes(tmp_path / "more", ("owl",))
    for name in ("cat/away.png", "dog/away.png"):
        (folder / name).symlink_to(tmp_path / target)
    with pytest.raises(DataError, match=r"cat/away\.png leads out of") as caught:
        open_(folder)
    assert "2 of its links lead out" in caught.value.why
    assert "cp -rL" in caught.value.remedy


@pytest.mark.usefixtures("no_drawing")
def test_data_that_changed_since_a_run_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_classes(tmp_path / "pets")
    arguments = [str(folder), "--depth", "10", "--steps", "1", "--batch-size", "2", "--threads", "2"]
    arguments += ["--progress", "quiet", "--out", str(tmp_path / "runs"), "--cache-dir", str(tmp_path / "cache")]
    config = parse(arguments)
    config.run_dir.mkdir(parents=True)
    import yaml

    recorded = tmp_path / "config.yaml"
    recorded.write_text(yaml.safe_dump(config.as_dict()), encoding="utf-8")
    write_image(folder / "cat" / "more.png")
    assert main(["--config", str(recorded)]) == 9
    assert "is not what this run began with" in capsys.readouterr().err
    assert not list(config.run_dir.iterdir())
    (config.run_dir / "config.yaml").write_text(recorded.read_text(encoding="utf-8"), encoding="utf-8")
    assert find_change(config) == ""  # which goes on with its own data
    changed = parse(arguments)
    assert main([*arguments[:-4], "--progress", "plain", *arguments[-4:]]) == 0
    assert f"pets has changed since {config.run_dir} began; this is a new run, in" in capsys.readouterr().err
    assert find_change(changed) == ""
    assert find_change(parse([*arguments, "--seed", "7"])) == ""


def test_an_image_that_changes_during_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_classes(tmp_path / "pets")
    monkeypatch.setattr("train.data.own.BUDGET", 0)
    images = open_(folder).train.images
    assert isinstance(images, Pictures)
    for path in folder.rglob("*.png"):
        write_image(path)
    with pytest.raises(DataError, match="is not what it was when the run began"):
        images[:2]


@pytest.mark.parametrize("closed", ["around", "around/pets", "around/pets/cat", "around/pets/cat/1.png"])
def test_what_the_job_may_not_read_is_named_with_owner_and_mode(
    tmp_path_factory: pytest.TempPathFactory, closed: str
) -> None:
    top = tmp_path_factory.mktemp("private")
    folder = write_classes(top / "around" / "pets", count=2)
    write_image(folder / "cat" / "1.png", make_image((8, 8)))
    for path in (top, *list(top.parents)[:-2]):
        path.chmod(0o755)
    (top / closed).chmod(0)

    def look() -> str:
        try:
            return parse([str(folder)]).data_sha256
        except DataError as error:
            return f"{error.exit_code} {error}"

    owner, own = (top / closed).owner(), "nobody" if os.geteuid() == 0 else (top / closed).owner()
    said = run_as_ordinary(look)
    (top / closed).chmod(0o700)
    assert said.startswith(f"9 cannot read {folder}")
    assert f"{top / closed} belongs to {owner} and has mode 0000, and this job runs as {own}" in said
    assert f"chmod -R a+rX {top / closed}" in said
