import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.docker import http_cache
from tests.integration.workspace import Workspace
from tests.makers.poisoned_cache import note

pytestmark = [pytest.mark.engine, pytest.mark.weekly, pytest.mark.timeout(1200), pytest.mark.usefixtures("bazel")]

OUTPUT = re.compile(rb"bazel-out/[\w./-]+")


def list_results(kept: dict[str, bytes]) -> dict[bytes, str]:
    return {found[0]: key for key, value in kept.items() if key.startswith("/ac/") and (found := OUTPUT.search(value))}


def test_wrong_results_of_a_cache_are_found_by_a_second_build(tmp_path: Path, new_cache: Callable[[], str]) -> None:
    workspace = Workspace(tmp_path)
    rc = tmp_path / "bazelrc"
    rc.write_text(f"build --remote_header=Authorization='{http_cache.PASSWORD}'\n")
    cache, good, bad = new_cache(), uuid.uuid4().hex, uuid.uuid4().hex
    with http_cache.serve() as server:
        options = ("--json", "--remote-cache", server.url, "--bazelrc", str(rc))
        note(workspace, bad)
        first = workspace.build("--cache", cache, *options, "--out", "bad")
        assert first.returncode == 0, first.stderr
        wrong = {path: server.kept[key] for path, key in list_results(server.kept).items()}
        before = set(server.kept)
        note(workspace, good)
        second = workspace.build("--cache", cache, *options, "--out", "good")
        assert second.returncode == 0, second.stderr
        new = {key: value for key, value in server.kept.items() if key not in before}
        for path, key in list_results(new).items():
            server.kept[key] = wrong[path]
        done = workspace.build("--cache", new_cache(), *options)
        assert done.returncode == 0, "Bazel cannot know"
    said = json.loads(done.stdout)
    assert said["digest"] == json.loads(first.stdout)["digest"] != json.loads(second.stdout)["digest"]

    checked = workspace.toolkit("reproduce", said["folder"])
    assert checked.returncode == 7, checked.stderr
    assert "error: the second build gave another wheel" in checked.stderr
    assert re.search(r"tensorflow/libtensorflow_cc\.so\.2: machine code: ", checked.stderr)
    assert re.search(r"trust .*remote cache hits.* are trusted", checked.stderr)
