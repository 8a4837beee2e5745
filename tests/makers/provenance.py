from toolkit.versions import lock
from toolkit.versions.rules import choose_versions
from toolkit.versions.table import load_table
from toolkit.wheel import build_documents
from toolkit.wheel.build_inputs import BuildContext

TABLE = load_table()
LOCK = lock.collect(
    choose_versions(TABLE),
    TABLE,
    base_image="python:3.11-slim-trixie",
    base_digest="sha256:" + "1" * 64,
    apt_snapshot="20261121T000000Z",
)
RAN = build_documents.Program(version="7.7.1", sha256="5" * 64)
FOLDER = BuildContext(location="/work/source", identity="sha256:" + "2" * 64)
COMMIT = BuildContext(location="/work/source", identity="git:" + "3" * 40)
IMAGE = BuildContext(location="docker-image://bazel", identity="sha256:" + "4" * 64)
