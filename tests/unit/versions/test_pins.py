from dataclasses import replace
from pathlib import Path

import pytest

from toolkit import versions
from toolkit.base import project
from toolkit.versions import pins

TABLE = versions.load_table()


def test_every_file_is_as_the_generator_writes_it() -> None:
    stale = [path.name for path, text in pins.generate(project.ROOT, TABLE).items() if path.read_text() != text]
    assert not stale, "run `make pins`"


def test_a_changed_pin_reaches_every_file_that_has_it() -> None:
    default = replace(TABLE.default, tensorflow="2.20.0", base_image="python:3.12-slim-trixie", source_date_epoch=7)
    files = pins.generate(project.ROOT, replace(TABLE, default=default, published=TABLE.published[:-1]))
    changed = {path.relative_to(project.ROOT).as_posix() for path, text in files.items() if path.read_text() != text}
    bases = {"examples/gitlab.yml", ".devcontainer/Dockerfile"}
    assert changed == {"docker/Dockerfile", "compose.yaml", "compose.gpu.yaml", "pyproject.toml", *bases}
    dockerfile = files[project.ROOT / "docker/Dockerfile"]
    row = TABLE.tensorflow_rows["2.20.0"]
    for name in ("BASE_IMAGE=python:3.12-slim-trixie", f"TENSORFLOW_COMMIT={row.commit}", "BAZEL_VERSION=7.4.1"):
        assert f"\nARG {name}\n" in dockerfile


def test_a_stale_file_fails_the_check_and_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in pins.generate(project.ROOT, TABLE):
        copy = tmp_path / path.relative_to(project.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    stale = tmp_path / "docker/requirements/cpu.in"
    stale.write_text(stale.read_text().replace("tensorflow-cpu==", "tensorflow-cpu==1."))
    monkeypatch.setattr(project, "ROOT", tmp_path)
    assert pins.main(["--check"]) == 7
    assert capsys.readouterr().out == "docker/requirements/cpu.in: differs; run make pins\n"
    assert pins.main([]) == 0
    assert pins.main(["--check"]) == 0


def test_a_file_without_a_block_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((project.ROOT / "pyproject.toml").read_text())
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(ValueError, match="Dockerfile has no block of pins"):
        pins.generate(tmp_path, TABLE)
