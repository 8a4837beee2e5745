"""Downloads files: completely and with the known digest, or not at all."""

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from train.errors import DataError, IntegrityError
from train.system import network
from train.system.files import replacing
from train.system.progress import Work, report

TIMEOUT_SECONDS: Final = 15
CHUNK: Final = 1 << 20
_ALGORITHMS: Final = {32: "md5", 64: "sha256"}  # by the length of a digest; some publishers give MD5 alone
NETWORK_ERRORS: Final = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


COPY: Final = "give the folder of a local copy by --data-dir; digits needs neither"


def fetch(url: str, digest: str, path: Path, otherwise: str = COPY) -> Path:
    """Return `path`, after a download if the file is missing; raises an IntegrityError if its digest is wrong.

    `otherwise` says what to do where the address cannot be reached, for the DataError of that case.
    """
    if path.exists():
        check(path, digest)
        return path
    try:
        state, opener = hashlib.new(_ALGORITHMS[len(digest)]), urllib.request.build_opener()
        opener.addheaders = [("User-Agent", "tensorflow-toolkit")]
        response = network.within(2 * TIMEOUT_SECONDS, lambda: opener.open(url, timeout=TIMEOUT_SECONDS))
        with response, replacing(path) as file:
            for chunk in network.list_pieces(lambda: response.read1(CHUNK), TIMEOUT_SECONDS):
                state.update(chunk)
                file.write(chunk)
                report(Work(path.name, file.tell(), int(response.headers.get("Content-Length") or 0), "bytes"))
            compare(url, state.hexdigest(), digest)
    except NETWORK_ERRORS as error:
        raise explain(url, error, otherwise) from error
    return path


def explain(what: str, error: BaseException, otherwise: str = COPY) -> DataError:
    advice = f"check the network, or {otherwise}"
    return DataError(f"cannot get the data from {what}", why=str(getattr(error, "reason", "") or error), remedy=advice)


def read_checked(path: Path, digest: str) -> bytes:
    """Return the content of a file. Raises an IntegrityError if just these bytes do not have the digest."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}", why=error.strerror or str(error)) from error
    if digest:
        compare(path, hashlib.new(_ALGORITHMS[len(digest)], content, usedforsecurity=False).hexdigest(), digest)
    return content


def check(path: Path, digest: str) -> None:
    with path.open("rb") as file:
        compare(path, hashlib.file_digest(file, _ALGORITHMS[len(digest)]).hexdigest(), digest)


def compare(place: Path | str, found: str, known: str) -> None:
    if found != known:
        raise IntegrityError(
            f"{place} is not the file we know",
            why=f"its digest is {found}, not {known}",
            remedy="remove what was kept of it and try again, or give another copy by --data-dir",
        )
