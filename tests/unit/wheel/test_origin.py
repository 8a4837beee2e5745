"""Sources and Bazel from elsewhere: what they are, by content."""

import subprocess
from pathlib import Path

import pytest

from toolkit.errors import UsageError
from toolkit.wheel import origin


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree under git, with all of it committed."""
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
    found = origin.find_source(str(tree))
    assert found.identity == f"git:{git(tree, 'rev-parse', 'HEAD')}"
    assert found.context == str(tree)


@pytest.mark.parametrize("name", ["a.cc", "new.cc", "bazel-out"])
def test_a_changed_checkout_is_its_content(tree: Path, name: str) -> None:
    """Even an ignored file: it travels into the build with the rest."""
    (tree / name).write_text("other")
    changed = origin.find_source(str(tree)).identity
    assert changed.startswith("sha256:")
    (tree / name).write_text("another")
    assert origin.find_source(str(tree)).identity != changed


def test_a_folder_below_a_checkout_is_its_content(tree: Path) -> None:
    inner = tree / "inner"
    inner.mkdir()
    for name in ("configure", ".bazelversion"):
        (inner / name).write_text(name)
    assert origin.find_source(str(inner)).identity.startswith("sha256:")


def test_a_folder_without_git_is_its_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    first = origin.identify_folder(tmp_path)
    (tmp_path / "file").write_text("2")
    assert origin.identify_folder(tmp_path) != first


def test_a_commit_elsewhere_is_itself() -> None:
    text = "https://github.com/tensorflow/tensorflow.git#" + "a" * 40
    assert origin.find_source(text) == origin.Origin(context=text, identity="git:" + "a" * 40)


@pytest.mark.parametrize(
    "text",
    ["nowhere", "", "https://github.com/tensorflow/tensorflow.git", "https://x#v2.19.0", "https://x#" + "a" * 39],
)
def test_what_is_no_source_is_wrong_usage(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        origin.find_source(text)


def test_another_projects_folder_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not TensorFlow's source tree") as caught:
        origin.find_source(str(tmp_path))
    assert "configure" in caught.value.why


def test_bazel_is_a_folder_or_an_image(tmp_path: Path) -> None:
    assert origin.find_bazel("docker-image://x", "sha256:1").identity == "sha256:1"
    assert origin.find_bazel("docker-image://x").identity == "docker-image://x"
    assert origin.find_bazel(str(tmp_path)).identity.startswith("sha256:")
    with pytest.raises(UsageError, match="no Bazel"):
        origin.find_bazel("nowhere")
