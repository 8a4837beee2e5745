"""Data sets of the Hugging Face Hub, or of the mirror that HF_ENDPOINT names, by the Hub's own client.

The client, which comes with ``datasets``, keeps each large file under the sha256 that the Hub states for it, but never
computes it: that is done here, each time, before a file is used. What a cache holds complete is used as it is, so that
a run can be repeated after the Hub has moved on; the folder's name is the commit, and the run records it.
"""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from train.data import download
from train.errors import DataError, IntegrityError, PreflightError

DIGEST: Final = re.compile("[0-9a-f]{64}")


def fetch(repository: str, patterns: list[str], cache: Path) -> Path:
    """A folder with the files of a data set that fit the patterns, fetched first if they are not in the cache.

    Raises:
        DataError: the Hub does not answer, or holds no such files.
        IntegrityError: a file is not what the Hub says; it is removed.
        PreflightError: the cache cannot be written.
    """
    import httpx2
    from huggingface_hub import errors
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        try:
            folder = _ask(repository, patterns, cache, local_files_only=True)
        except errors.LocalEntryNotFoundError:
            folder = _ask(repository, patterns, cache)
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, httpx2.HTTPError, ValueError, KeyError) as error:
        # The client wraps the reason in advice of its own.
        raise download.unreachable(f"the Hugging Face Hub ({repository})", error.__cause__ or error) from error
    except OSError as error:
        raise PreflightError(
            f"cannot write to {cache}", why=error.strerror or str(error), remedy="choose another with --cache-dir"
        ) from error
    try:
        _check(folder, patterns)
    except IntegrityError:
        shutil.rmtree(cache / _name(repository))
        raise
    return folder


def find(repository: str, patterns: list[str], folder: Path) -> Path | None:
    """The files of a data set in a cache of the Hub's client, or in its part for this data set; asks nobody.

    Raises:
        DataError: the cache has the data set, but not all of these files.
        IntegrityError: a file is not what the Hub said.
    """
    root = folder.parent if folder.name == _name(repository) else folder
    if not (root / _name(repository)).is_dir():
        return None
    from huggingface_hub import errors

    try:
        found = _ask(repository, patterns, root, local_files_only=True)
    except errors.LocalEntryNotFoundError as error:
        raise DataError(f"{folder} does not hold {repository} whole", why=str(error)) from error
    _check(found, patterns)
    return found


def _name(repository: str) -> str:
    return f"datasets--{repository.replace('/', '--')}"


def _ask(repository: str, patterns: list[str], cache: Path, *, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    folder = snapshot_download(
        repository,
        repo_type="dataset",
        allow_patterns=patterns,
        cache_dir=cache,
        endpoint=os.environ.get("HF_ENDPOINT", "").rstrip("/") or None,
        local_files_only=local_files_only,
    )
    return Path(folder)


def _check(folder: Path, patterns: list[str]) -> None:
    """Compare the files of a cache with the digests they are kept under.

    Raises:
        IntegrityError: one has another.
        DataError: there are none, or they are not kept under a digest.
    """
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    if not files:
        raise DataError(f"there is no {' or '.join(patterns)} in {folder}")
    for file in files:
        kept = file.resolve()
        if not DIGEST.fullmatch(kept.name):
            raise DataError(f"the Hub states no sha256 for {file}", why=f"it is kept as {kept.name}")
        download.check(kept, kept.name)
