import json
from pathlib import Path

import pytest

from tests.integration import registry
from tests.integration.docker import stages
from tests.integration.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_archives_are_those_of_the_base_image(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    workspace = Workspace(tmp_path / "user")
    done = workspace.toolkit("doctor", "--json", "--base-image", stages.STANDIN)
    found = {item["id"]: item for item in json.loads(done.stdout)["findings"]}
    assert found["source-debian"]["level"] == "ok", "the stand-in was made from that mirror"
    with registry.serve(stages.STANDIN, tmp_path) as (image, _):
        done = workspace.toolkit("doctor", "--json", "--base-image", image)
    found = {item["id"]: item for item in json.loads(done.stdout)["findings"]}
    assert found["base-image"]["level"] == "ok"
    assert "not checked" in found["source-debian"]["summary"]
