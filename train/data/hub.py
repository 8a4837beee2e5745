"""Data sets from the Hugging Face Hub, or from the mirror that HF_ENDPOINT names.

The Hub states the sha256 of each large file of a revision; files are checked against it as they come, and the revision
is kept beside them, so that a run can say what it was trained on.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

from train.data.download import NETWORK_ERRORS, fetch, open_url, unreachable
from train.errors import DataError
from train.files import write_text

ENDPOINT: Final = "https://huggingface.co"


def fetch_folder(repository: str, folder: str, cache: Path, revision: str = "main") -> tuple[Path, str]:
    """The Parquet files in a folder of a data set; returns where they lie and the commit they are of.

    What the cache holds complete is used without asking the Hub.

    Raises:
        DataError: the Hub does not answer, or holds no such files.
        IntegrityError: a file is not what the Hub says.
    """
    marker = cache / folder / "revision.txt"
    if marker.exists():
        return marker.parent, marker.read_text(encoding="utf-8").strip()
    endpoint = os.environ.get("HF_ENDPOINT", ENDPOINT).rstrip("/")
    facts = _ask(f"{endpoint}/api/datasets/{repository}/revision/{revision}?blobs=true")
    try:
        commit = facts["sha"]
        digests = {
            file["rfilename"]: file["lfs"]["sha256"]
            for file in facts["siblings"]
            if file["rfilename"].startswith(f"{folder}/") and file["rfilename"].endswith(".parquet")
        }
    except (KeyError, TypeError) as error:
        raise DataError(f"{endpoint} does not answer as the Hugging Face Hub does", why=f"no {error}") from error
    if not digests:
        raise DataError(f"{repository} at {endpoint} holds no Parquet files in {folder}")
    for name, sha256 in sorted(digests.items()):
        fetch(f"{endpoint}/datasets/{repository}/resolve/{commit}/{name}", sha256, cache / folder / Path(name).name)
    write_text(marker, f"{commit}\n")
    return marker.parent, commit


def _ask(url: str) -> dict[str, Any]:
    try:
        with open_url(url) as response:
            value: dict[str, Any] = json.load(response)
    except (*NETWORK_ERRORS, ValueError) as error:
        raise unreachable(url, error) from error
    return value
