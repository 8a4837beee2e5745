from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wheelbuild import collect

ADDRESS = "127.0.0.1:39317"
LOG = """\
WARNING: Download from http://127.0.0.1:39317/github.com/bazelbuild/rules_shell/releases/download/v0.4.1/rules_shell-v0.4.1.tar.gz failed: class com.google.devtools.build.lib.bazel.repository.downloader.UnrecoverableHttpException Checksum was 8dd29f08a06f3f99f3915fd8c032d015400e02f0f276fdc7f0cf3ca8452abeb7 but wanted bc61ef94facc78e20a645726f64756e5e285a045037c7a61f65af2941f4c25e1
Error in download_and_extract: java.io.IOException: Error downloading [http://127.0.0.1:39317/github.com/bazelbuild/rules_shell/releases/download/v0.4.1/rules_shell-v0.4.1.tar.gz] to /root_/f80/external/rules_shell/temp1/rules_shell-v0.4.1.tar.gz: Checksum was 8dd29f08a06f3f99f3915fd8c032d015400e02f0f276fdc7f0cf3ca8452abeb7 but wanted bc61ef94facc78e20a645726f64756e5e285a045037c7a61f65af2941f4c25e1
ERROR: Error computing the main repository mapping: no such package '@@rules_shell//shell': java.io.IOException: Error downloading [http://127.0.0.1:39317/github.com/bazelbuild/rules_shell/releases/download/v0.4.1/rules_shell-v0.4.1.tar.gz] to /root_/f80/external/rules_shell/temp1/rules_shell-v0.4.1.tar.gz: Checksum was 8dd29f08a06f3f99f3915fd8c032d015400e02f0f276fdc7f0cf3ca8452abeb7 but wanted bc61ef94facc78e20a645726f64756e5e285a045037c7a61f65af2941f4c25e1
Error in download_and_extract: java.io.IOException: Error downloading [http://127.0.0.1:39317/storage.googleapis.com/mirror.tensorflow.org/github.com/bazelbuild/bazel-skylib/releases/download/1.7.1/bazel-skylib-1.7.1.tar.gz, http://127.0.0.1:39317/github.com/bazelbuild/bazel-skylib/releases/download/1.7.1/bazel-skylib-1.7.1.tar.gz] to /root_/f80/external/bazel_skylib/temp2/bazel-skylib-1.7.1.tar.gz: Checksum was 8dd2 but wanted bc283cdfcd526a52c3201279cda4bc298652efa898b10b4db0837dc51652756f
"""  # noqa: E501
"""What Bazel 7.7.1 says of a tree of TensorFlow that calls itself 2.21.0."""


def test_what_bazel_wanted_is_read_once_each() -> None:
    found = collect.read_wanted(LOG, ADDRESS)
    assert [row["sha256"] for row in found] == [
        "bc283cdfcd526a52c3201279cda4bc298652efa898b10b4db0837dc51652756f",
        "bc61ef94facc78e20a645726f64756e5e285a045037c7a61f65af2941f4c25e1",
    ]
    skylib = "github.com/bazelbuild/bazel-skylib/releases/download/1.7.1/bazel-skylib-1.7.1.tar.gz"
    assert found[0]["urls"] == [f"storage.googleapis.com/mirror.tensorflow.org/{skylib}", skylib]
    assert collect.read_wanted("INFO: Analyzed target //:wheel", ADDRESS) == []


@given(st.text())
def test_no_log_breaks_the_reader(log: str) -> None:
    assert isinstance(collect.read_wanted(log, ADDRESS), list)


@pytest.mark.parametrize(("run", "kept"), [("one", True), ("two", False)])
def test_what_another_command_unpacked_is_forgotten(tmp_path: Path, run: str, kept: bool) -> None:
    folder = tmp_path / "collect"
    collect.forget_other_run(folder, "one")
    (folder / "root").mkdir()
    collect.forget_other_run(folder, run)
    assert (folder / "root").exists() == kept
