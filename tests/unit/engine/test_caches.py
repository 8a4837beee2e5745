import os
from pathlib import Path

import pytest

from toolkit.engine import buildx
from toolkit.records import clean

BAZEL = 'cached mount /var/cache/bazel from exec /bin/sh -c python3 -u -m wheelbuild with id "/toolkit-bazel-{}"'
STRANGER = 'cached mount /root/.cache from exec /bin/sh -c set -e\nmake with id "/toolkit-bazel"'
RECORDS = (
    ("zkmal1aois2h2p46js2q0z01e", "635.9MB", "true", 'cached mount /var/cache/apt from exec x with id "/toolkit-apt"'),
    ("aaaa1aois2h2p46js2q0z01e2", "31.2GB", "true", BAZEL.format("tensorflow")),
    ("bbbb1aois2h2p46js2q0z01e2", "12GB", "true", BAZEL.format("verify-0123456789ab")),
    ("cccc1aois2h2p46js2q0z01e2", "0B", "false", BAZEL.format("verify-ba9876543210")),
    ("dddd1aois2h2p46js2q0z01e2", "1B", "true", STRANGER),
)
"""Records as `docker buildx du --verbose` of buildx 0.13.1 writes them; a step with a script takes several lines."""

DOCKER = """\
#!/bin/sh
[ "$1" = buildx ] || exit 1
cd "$(dirname "$0")/records"
case "$2 $*" in
  du*) cat -- * ;;
  "prune "*"--filter id="*) id=${*##*id=}; grep -q "Reclaimable:.*true" "$id" && rm "$id"; echo "$id" >>../pruned ;;
esac
"""
"""A stand-in for docker's builder: it has a file for each record, and does not prune records in use."""


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "records").mkdir()
    for name, size, free, text in RECORDS:
        record = f"ID:\t\t{name}\nMutable:\ttrue\nReclaimable:\t{free}\nShared:\t\tfalse\nSize:\t\t{size}\n"
        (tmp_path / "records" / name).write_text(f"{record}Description:\t{text}\nType:\t\texec.cachemount\n\n")
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_clean_names_the_cache_of_the_next_build_and_removes_those_of_rebuilds(builder: Path) -> None:
    removed = [item for item in clean.find_caches(with_cache=False) if not item.left]
    assert [(item.name, bool(item.used)) for item in removed] == [
        ("verify-0123456789ab (12GB)", False),
        ("verify-ba9876543210 (0B)", True),
    ]
    assert [item.name for item in clean.find_caches(with_cache=False) if item.left] == ["tensorflow (31.2GB)"]
    assert clean.remove(removed[0]) == ""
    assert clean.remove(removed[1]) == "a build is using it"
    assert [mount.name for mount in buildx.find_caches()] == ["tensorflow", "verify-ba9876543210"]
    found = clean.find_caches(with_cache=True)
    assert [(item.name, item.left) for item in found] == [("tensorflow (31.2GB)", ""), ("verify-ba9876543210 (0B)", "")]
