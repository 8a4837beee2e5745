import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.base.console import Console
from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.versions import lock
from toolkit.versions.settings import Settings
from toolkit.wheel import build_inputs, lock_file


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tensorflow"
    folder.mkdir()
    for name in ("configure", ".bazelversion", "a.cc"):
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("bazel-*\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "x")
    return folder


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_clean_checkout_is_its_commit(tree: Path) -> None:
    found = build_inputs.find_source(str(tree))
    assert found.identity == f"git:{git(tree, 'rev-parse', 'HEAD')}"
    assert found.location == str(tree)


@pytest.mark.parametrize("name", ["a.cc", "new.cc", "bazel-out"])
def test_a_changed_checkout_is_its_content(tree: Path, name: str) -> None:
    """Ignored files count too, because they are copied into the build with the rest."""
    (tree / name).write_text("other")
    changed = build_inputs.find_source(str(tree)).identity
    assert changed.startswith("sha256:")
    (tree / name).write_text("another")
    assert build_inputs.find_source(str(tree)).identity != changed


@pytest.mark.parametrize(
    "text",
    ["nowhere", "", "https://github.com/tensorflow/tensorflow.git", "https://x#v2.19.0", "https://x#" + "a" * 39],
)
def test_what_is_no_source_is_wrong_usage(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        build_inputs.find_source(text)


@pytest.mark.parametrize(
    ("bazel", "version", "refusal"),
    [
        ("6.5.0", None, ""),
        ("6.5.0\n# NOTE: Update Bazel version in release/common.sh.oss", None, ""),
        ("6.5.0\n", "_VERSION = '2.19.0'\n", ""),
        ("7.4.1", None, "is built with Bazel 7.4.1, and TensorFlow 2.19.0 was asked for"),
        ("6.5.0", "_VERSION = '2.18.0'\n", "is TensorFlow 2.18.0, and TensorFlow 2.19.0 was asked for"),
        ("6.5.0", '# no\n_VERSION = "2.20.0"\n', "is TensorFlow 2.20.0"),
        ("", None, "is built with Bazel ,"),
    ],
)
def test_a_tree_of_another_version_is_refused(tmp_path: Path, bazel: str, version: str | None, refusal: str) -> None:
    (tmp_path / ".bazelversion").write_text(bazel)
    if version:
        (tmp_path / "tensorflow/tools/pip_package").mkdir(parents=True)
        (tmp_path / "tensorflow/tools/pip_package/setup.py").write_text(f"import os\n{version}")
    if not refusal:
        build_inputs.require_version(str(tmp_path), tensorflow="2.19.0", bazel="6.5.0")
        return
    with pytest.raises(UnsupportedError, match=refusal):
        build_inputs.require_version(str(tmp_path), tensorflow="2.19.0", bazel="6.5.0")


def test_a_lock_keeps_the_day_that_another_command_has_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    path, known, days = tmp_path / lock.FILE, lock.name_set, ["20261121T000000Z"]
    asking = lock_file.LockRequest(settings=Settings())

    def write_another(name: str) -> dict[str, str]:
        if days:
            lock_file.write(replace(asking, apt_snapshot=days.pop()), path, Console(verbosity=-1))
        return known(name)

    monkeypatch.setattr(lock, "name_set", write_another)
    written = lock_file.write(asking, path, Console(verbosity=-1))
    assert written.pins["apt-snapshot"] == "20261121T000000Z"
    assert lock.read(path) == written
