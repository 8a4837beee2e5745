"""Files from the network: whole and of the known digest, or not there at all."""

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from train.errors import DataError, IntegrityError
from train.files import replacing

TIMEOUT_SECONDS: Final = 15
CHUNK: Final = 1 << 20
NETWORK_ERRORS: Final = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


def fetch(url: str, sha256: str, path: Path) -> Path:
    """The file at `path`, fetched first if it is not there; returns the path.

    Raises:
        DataError: it cannot be fetched.
        IntegrityError: what came, or what lies there, has another digest.
    """
    if path.exists():
        check(path, sha256)
        return path
    try:
        with open_url(url) as response, replacing(path) as file:
            state = hashlib.sha256()
            while chunk := response.read(CHUNK):
                state.update(chunk)
                file.write(chunk)
            if state.hexdigest() != sha256:
                raise IntegrityError(
                    f"{url} is not the file we know",
                    why=f"its sha256 is {state.hexdigest()}, not {sha256}",
                    remedy="try again later, or give a local copy by --data-dir",
                )
    except NETWORK_ERRORS as error:
        raise unreachable(url, error) from error
    return path


def open_url(url: str) -> http.client.HTTPResponse:
    """An answer to read; proxies are those of the environment as it is now."""
    request = urllib.request.Request(url, headers={"User-Agent": "tensorflow-toolkit"})  # noqa: S310
    response: http.client.HTTPResponse = urllib.request.build_opener().open(request, timeout=TIMEOUT_SECONDS)
    return response


def unreachable(what: str, error: BaseException) -> DataError:
    """The error for a source that does not answer."""
    reason = getattr(error, "reason", None) or error
    return DataError(
        f"cannot get the data from {what}",
        why=f"{reason}",
        remedy="check the network, or give the folder of a local copy by --data-dir; digits needs neither",
    )


def check(path: Path, sha256: str) -> None:
    """Compare a file with the digest it must have.

    Raises:
        IntegrityError: it has another.
        DataError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}", why=error.strerror or str(error)) from error
    if found != sha256:
        raise IntegrityError(
            f"{path} is not the file we know",
            why=f"its sha256 is {found}, not {sha256}",
            remedy="remove it and run again, or get another copy",
        )
