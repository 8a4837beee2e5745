"""Follow the guides where there is a container engine, in clones: what a page does in containers runs in containers.

`tests/unit/records/guides.yaml` says which commands these are. `tests/unit/records/test_guides.py` follows the others.
"""

import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.workspace import copy_parts, forget_project
from tests.unit.exchange import oci
from tests.unit.records.reader import Library, find_rule, list_commands, list_guides

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PAGES = [page for page in list_guides() if any(find_rule(line).engine is not None for line in list_commands(page))]


def begin(folder: Path) -> None:
    """Make a clone with the stand-in for TensorFlow's sources, whose small set stands for gigabytes with CUDA."""
    copy_parts(folder)
    shutil.copytree(stages.MINI, folder / "tensorflow")
    for path in (folder / "docker/requirements").glob("cuda-*.txt"):
        shutil.copy(stages.MINI / "requirements_lock_3_11.txt", path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with oci.serve() as registry:
        library = Library(tmp_path_factory.mktemp("guides"), registry, begin, f"toolkit-test-{uuid.uuid4().hex[:8]}")
        yield library
    forget_project(library.project)
    records = library.root.glob("*/.toolkit/image-*-cuda-*")
    small = {re.sub("image-(train|bazel-worker)-", r"toolkit/\1:", path.name) for path in records}
    subprocess.run(["docker", "image", "rm", *small], capture_output=True, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_reader_with_an_engine_can_follow_the_page(
    request: pytest.FixtureRequest, library: Library, page: Path
) -> None:
    if page.name in {"build.md", "farm.md"}:
        request.getfixturevalue("bazel")
    assert library.follow(page) == []


def test_both_workers_of_compose_trained_the_run_of_the_page(library: Library) -> None:
    page = stages.ROOT / "docs/scale.md"
    assert library.follow(page) == []
    records = [json.loads(path.read_text()) for path in library.find_folder(page).glob("runs/*/manifest.json")]
    trained = {(record["config"]["steps"], record["environment"].get("workers")) for record in records}
    assert trained >= {(3, 2)}
