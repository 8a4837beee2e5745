import subprocess
from pathlib import Path

import pytest

from tests.unit.refresh.sources import CUDA, CUDNN, LABEL, ROWS, Upstream, apply, collect, commit_files, write_tables

TAG = "TensorFlow's repository, v2.21.0"


def test_a_tag_that_says_what_the_table_says_adds_its_commit_alone(upstream: Upstream, tmp_path: Path) -> None:
    commit = upstream.write()
    report, changes = collect()
    assert TAG in report.looked
    assert "TensorFlow's repository, v2.22.0-rc0: there is no such tag" in report.unread
    assert changes.keys() == {
        ("tensorflow", "2.21.0", "commit"),
        ("tensorflow", "2.21.0", "sources"),
        ("sources", "tags"),
        ("sources", "index", "date"),
        ("updated",),
    }
    assert apply(tmp_path, report).tensorflow_rows["2.21.0"].commit == commit


def test_the_tables_are_read_from_the_commit_that_the_workspace_pins(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_tables(CUDA, {**CUDNN, "9.12.1": "a" * 63 + "1"})
    commit = commit_files(tmp_path / "rules", {"third_party/gpus/cuda/hermetic/cuda_redist_versions.bzl": text}, "v1")
    address = "https://example.org/rules_x"
    monkeypatch.setenv("GIT_CONFIG_VALUE_1", f"{address}.git")
    monkeypatch.setenv("GIT_CONFIG_KEY_1", f"url.{(tmp_path / 'rules').as_uri()}.insteadOf")
    upstream.files["WORKSPACE"] = LABEL.format("rules_x")
    upstream.files["tensorflow/workspace0.bzl"] = f'urls = ["{address}/archive/{commit}.tar.gz"]\n'
    upstream.write()
    found = apply(tmp_path, collect()[0])
    assert found.tensorflow_rows["2.21.0"].cudnn[-1] == "9.12.1"
    assert found.cudnn_rows["9.12.1"].redist == "a" * 63 + "1"
    assert found.tensorflow_rows["2.21.0"].sources[-1] == "tags"


def test_what_the_table_cannot_hold_is_noted(upstream: Upstream, tmp_path: Path) -> None:
    upstream.files[".bazelversion"] = "99.1.0"
    upstream.cuda |= {"99.0.0": "b" * 64, "12.8.1": "c" * 64}
    upstream.write()
    report, _ = collect()
    assert report.notes == [
        "2.21.0: Bazel 99.1.0 has no row",
        f"2.21.0: CUDA 12.8.1, redist {'c' * 64}, has another hash in the table",
        f"2.21.0: CUDA 99.0.0, redist {'b' * 64}, has no row",
    ]
    found = apply(tmp_path, report).tensorflow_rows["2.21.0"]
    assert (found.bazel, found.cuda) == ("7.4.1", ROWS["2.21.0"].cuda)


def test_a_tag_that_moved_is_noted(upstream: Upstream) -> None:
    commit = upstream.write()
    subprocess.run(["git", "-C", upstream.folder, "tag", "v2.20.0", "v2.21.0^{}"], check=True)
    notes = collect()[0].notes
    assert notes == [f"2.20.0: its tag is at {commit}, but its row has {ROWS['2.20.0'].commit}"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("WORKSPACE", "", "in a way that is not known here"),
        ("tensorflow/workspace3.bzl", "", "in a way that is not known here"),
        ("tensorflow/workspace3.bzl", 'tf_vendored(name = "local_xla", relpath = "gone")', "gone"),
        (".bazelversion", None, ".bazelversion"),
        ("", "CUDA_REDIST_JSON_DICT = PREFIX + 1", "not understood"),
        ("", 'CUDA_REDIST_JSON_DICT = {\n "1.0": ["x", "abc"],\n}\n', "not understood"),
        ("", 'CUDA_REDIST_JSON_DICT = {\n "newest": ["x", "' + "a" * 64 + '"],\n}\n', "not understood"),
    ],
)
def test_a_tag_that_is_not_understood_is_named(upstream: Upstream, name: str, text: str | None, reason: str) -> None:
    name = name or upstream.place
    upstream.files[upstream.place] = write_tables(CUDA, CUDNN)
    upstream.files[name] = text or ""
    if text is None:
        del upstream.files[name]
    commit_files(upstream.folder, upstream.files, "v2.21.0")
    report, changes = collect()
    assert not changes
    (line,) = [line for line in report.unread if line.startswith(TAG)]
    assert reason in line


def test_a_repository_without_a_release_is_named(upstream: Upstream) -> None:
    commit_files(upstream.folder, {"README": ""}, "v1.0")
    report, changes = collect()
    assert not changes
    assert report.unread == ["TensorFlow's repository: it has no tag of a release"]
