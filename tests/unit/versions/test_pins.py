from dataclasses import replace

from toolkit.base import project
from toolkit.versions import pins
from toolkit.versions.table import load_table

TABLE = load_table()


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
