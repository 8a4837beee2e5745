"""The executor runs no actions; remote execution itself is tested in ``test_remote_execution.py``."""

import json
import re

import pytest

from tests.integration.docker import executor
from tests.integration.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.usefixtures("bazel")]

SECRET = "canary-of-the-tests"  # noqa: S105
PADDING = "=="
"""The end of a base64 value, which Bazel's JSON escapes."""


def test_executor_hears_bazel_and_the_credentials_and_a_refusal_ends_the_build(workspace: Workspace) -> None:
    rc = workspace.folder / "bazelrc"
    # The option overrules the fallback in the rc file: who names an executor wants no build on this machine.
    rc.write_text(f"build --remote_header=Authorization='Bearer {SECRET}{PADDING}'\nbuild --remote_local_fallback\n")
    with executor.serve() as service:
        done = workspace.build("--remote-executor", service.url, "--bazelrc", str(rc), "--verbose")
    assert done.returncode == 6, done.stderr
    assert "error: the build failed: the remote executor does not answer, or refuses the work" in done.stderr
    assert "UNAUTHENTICATED: not with that name" in done.stderr
    call = next(item for item in service.heard if b"Capabilities/GetCapabilities" in item)
    assert f"Bearer {SECRET}{PADDING}".encode() in call
    kept = [path for path in (workspace.folder / "state").rglob("*") if path.is_file()]
    assert {"build.log", "events.json"} <= {path.name for path in kept}
    assert not [path for path in kept if SECRET in path.read_text(errors="replace")]
    assert SECRET not in done.stdout + done.stderr
    log = next((workspace.folder / "state").glob("wheel-*/bazel/build.log")).read_text()
    assert not re.search(r"INFO: \d+ process.* local\b", log), "nothing was compiled here"
    events = next((workspace.folder / "state").glob("wheel-*/bazel/events.json")).read_text().splitlines()
    (parsed,) = [event["optionsParsed"] for event in map(json.loads, events) if "optionsParsed" in event]
    assert f"--remote_executor={service.url}" in parsed["cmdLine"]
    assert list((workspace.folder / "dist").iterdir()) == []
