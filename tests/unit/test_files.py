import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.base import digest, files, manifest
from toolkit.base.errors import PreflightError


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    files.write_json(path, {"old": True})
    # A limit on file size stands in for a full disk: the write itself fails halfway.
    script = f"""
import resource, signal, sys
from pathlib import Path
from toolkit.base import files
from toolkit.base.errors import PreflightError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.write_atomically(Path({str(path)!r}), b"x" * 100_000)
except PreflightError as error:
    sys.exit(error.exit_code)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == PreflightError.exit_code
    assert json.loads(path.read_text()) == {"old": True}
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_not_opened_through_a_link(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "part"
    target.write_text("kept")
    path.symlink_to(target)
    with pytest.raises(PreflightError, match="cannot write") as caught:
        files.open_own(path)
    assert "it is a link" in caught.value.why
    path.unlink()
    with files.open_own(path) as stream:
        stream.write(b"x")
    assert (target.read_text(), path.read_bytes()) == ("kept", b"x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "it has a key twice: c"),
        ("a: &a {b: 1}\nc: {<<: *a}", "write the keys out"),
        ("[" * 10_000, "recursion"),
        ("a: [", "expected the node content"),
        ("{[a]: 1}", "unhashable"),
        (b"\xff\xff", "."),
    ],
)
def test_yaml_that_cannot_be_read_is_one_error(text: str | bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        files.parse_yaml(text)


def test_digest_of_a_folder_sees_names_bytes_and_modes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    digests = {digest.digest_paths(tmp_path, [tmp_path])}
    (tmp_path / "a").chmod(0o755)
    digests.add(digest.digest_paths(tmp_path, [tmp_path]))
    (tmp_path / "a").write_text("2")
    digests.add(digest.digest_paths(tmp_path, [tmp_path]))
    (tmp_path / "a").rename(tmp_path / "b")
    digests.add(digest.digest_paths(tmp_path, [tmp_path]))
    assert len(digests) == 4
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "b.pyc").write_text("")
    digests.add(digest.digest_paths(tmp_path, [tmp_path]))
    assert len(digests) == 4


@pytest.mark.parametrize("change", [{"kind": ["run"]}, {"parent": "x"}, {"facts": []}, {"schema": 2}])
def test_a_manifest_with_a_value_of_another_type_is_not_read(tmp_path: Path, change: dict[str, object]) -> None:
    good = {"schema": 1, "kind": "image", "digest": "sha256:0", "parent": None, "facts": {}}
    files.write_json(tmp_path / manifest.FILE, good)
    assert manifest.read(tmp_path) == manifest.Manifest(kind="image", digest="sha256:0")
    files.write_json(tmp_path / manifest.FILE, {**good, **change})
    assert manifest.read(tmp_path) is None
