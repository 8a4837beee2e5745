from pathlib import Path

import pytest
from wheelbuild import bazel
from wheelbuild.__main__ import explain_failure
from wheelbuild.request import read_request

from tests.makers.build_request import GIVEN
from tests.makers.failed_build import STEP
from toolkit.base.errors import BuildError, PreflightError, ToolkitError
from toolkit.engine import buildx
from toolkit.wheel import bazel_output

ACTION = "ERROR: /usr/src/tensorflow/tensorflow/core/kernels/BUILD:8:12: Linking tensorflow/core/kernels/libreduce_min"
AFTER = "Target //tensorflow/tools/pip_package:wheel failed to build\nERROR: Build did NOT complete successfully\n"
SILENT = (
    f"{ACTION}.pic.a failed: (Exit 1): ar failed: error executing CppArchive command (from target //x) /usr/bin/ar\n"
)
TEMPORARY = (
    "OSError: [Errno 28] No space left on device: 'bazel-out/k8-opt/bin/lib.so.2' -> '/tmp/tmpsytjs5w1/library.so'"
)
HERE = "ERROR: //x:y: failed: (Exit 34): /var/cache/bazel/root/x.o (No space left on device)"
REFUSED = (
    f"{ACTION}.pic.a failed: (Exit 34): 2 errors during bulk transfer:\n"
    "java.io.IOException: Error while uploading artifact with digest '8e67c574501ca5/79'\n"
    "java.io.IOException: Error while uploading artifact with digest 'cc7583f314fb14/78'\n"
)
EXCERPT = ["Dockerfile:340", "--------------------", *(f" {line} |     RUN" for line in range(330, 345))]
"""What BuildKit prints last: some lines of the Dockerfile."""


@pytest.mark.parametrize(
    ("executor", "nearly", "log", "code", "kind", "what"),
    [
        ("grpc://farm", 0, SILENT, 1, BuildError, "an action failed without a word"),
        ("grpc://farm", 0, REFUSED, 34, BuildError, "the remote executor does not answer, or refuses the work"),
        ("grpc://farm", 0, f"{SILENT}{TEMPORARY}\n", 1, BuildError, "the remote executor's disk is full"),
        ("grpc://farm", 1 << 60, f"{SILENT}{TEMPORARY}\n", 1, PreflightError, "disk"),
        ("grpc://farm", 0, f"{HERE}\n", 34, PreflightError, "disk"),
        ("", 0, f"{SILENT}{TEMPORARY}\n", 1, PreflightError, "disk"),
        ("", 0, SILENT, 1, BuildError, "the build failed"),
    ],
)
def test_full_disk_is_that_of_the_machine_which_met_it(
    executor: str,
    nearly: int,
    log: str,
    code: int,
    kind: type[ToolkitError],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("wheelbuild.__main__.CACHE", tmp_path)
    monkeypatch.setattr("wheelbuild.__main__.NEARLY_FULL", nearly)
    wanted = read_request({**GIVEN, "REMOTE_EXECUTOR": executor}, cores=2, memory=8192)
    full = next((line for line in log.splitlines() if bazel.FULL.search(line)), "")
    ended = explain_failure(bazel.Ended(code=code, full=full), wanted, 0, log + AFTER)
    words = capsys.readouterr().err.splitlines()
    said = buildx.Transcript(tail=[*words, *EXCERPT], failed=("wheel", f"{STEP}{ended}"))
    found = buildx._explain(said, tmp_path / "build.log", 1)
    kept = tmp_path / "bazel.log"
    kept.write_text(log + AFTER + "\n".join(words))
    if isinstance(found, BuildError):
        found = bazel_output.explain(found, [kept])
    assert type(found) is kind
    assert what in found.what
    assert "disk" in str(found) or not executor
