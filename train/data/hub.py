"""Gets data sets of the Hugging Face Hub.

Its client names each large file by the sha256 that the Hub states, but never computes it, so this module does, before
each use. A data set that is complete in the cache is used without asking the Hub, so that a run can be repeated
after the Hub has changed.
"""

import hashlib
import os
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path

from train.config.origin import ARCHIVES, HUB, SUFFIXES, list_files
from train.errors import DataError, IntegrityError, PreflightError
from train.system import download
from train.system.progress import redirect


def fetch_from_hub(repository: str, patterns: list[str], cache: Path, revision: str | None = None) -> Path:
    """Return a folder with the files of a data set; download them if the cache lacks any.

    If a file does not have the digest that the Hub states, the cached data set is removed and an IntegrityError raised.
    """
    import httpx2
    from huggingface_hub import errors

    try:
        try:
            folder = _snapshot(repository, patterns, cache, revision, local_files_only=True)
        except errors.LocalEntryNotFoundError:
            folder = _snapshot(repository, patterns, cache, revision)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise _refuse_name(repository, revision, error) from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, httpx2.HTTPError, ValueError, KeyError) as error:
        # The client wraps the reason in a message with its own advice.
        raise download.explain(f"the Hugging Face Hub ({repository})", error.__cause__ or error) from error
    except OSError as error:
        raise PreflightError(
            f"cannot write to {cache}", why=error.strerror or str(error), remedy="choose another with --cache-dir"
        ) from error
    try:
        _check_hub_files(folder, patterns)
    except IntegrityError:
        shutil.rmtree(cache / _name_cache(repository))
        raise
    return folder


def fetch_own(dataset: str, cache: Path) -> tuple[Path, str, str]:
    """Return the folder of ``hf:OWNER/NAME/FOLDER@REVISION`` in the cache, its name, and a name with the commit."""
    told = HUB.fullmatch(dataset)
    if told is None:
        raise DataError(f"not a data set of the Hub: {dataset}")
    repository, inside = told["repository"], told["folder"].strip("/")
    start = f"{inside}/" if inside else ""
    ends = (*SUFFIXES, *ARCHIVES, ".parquet", ".arrow", "dataset_dict.json", "state.json", "dataset_info.json")
    patterns = [f"{start}*{end}" for end in ends]
    folder = fetch_from_hub(repository, patterns, cache / "hub", told["revision"])
    return folder / inside, f"hf:{repository}/{inside}".rstrip("/"), f"{repository} at {folder.name}"


def _refuse_name(repository: str, revision: str | None, error: Exception) -> DataError:
    from huggingface_hub import errors

    link, gated, answer = f"hf:{repository}", isinstance(error, errors.GatedRepoError), getattr(error, "response", None)
    if isinstance(error, errors.RevisionNotFoundError):
        return DataError(f"{link} has no revision {revision}", remedy="give a branch, a tag or a commit of it")
    return DataError(
        f"{link} needs a login" if gated else f"{link} does not exist, or needs a login",
        why=f"the Hub answered {answer.status_code if answer is not None else error}",
        remedy="look at its page on the Hub; for a data set with a login, set HF_TOKEN",
    )


def find_in_hub_cache(repository: str, patterns: list[str], folder: Path) -> Path | None:
    """Find a data set in a cache folder of the Hub's client, or in its subfolder of this data set; uses no network."""
    root = folder.parent if folder.name == _name_cache(repository) else folder
    if not (root / _name_cache(repository)).is_dir():
        return None
    from huggingface_hub import errors

    try:
        snapshot = _snapshot(repository, patterns, root, local_files_only=True)
    except errors.LocalEntryNotFoundError as error:
        raise DataError(f"{folder} does not hold {repository} whole", why=str(error)) from error
    _check_hub_files(snapshot, patterns)
    return snapshot


def _name_cache(repository: str) -> str:
    return f"datasets--{repository.replace('/', '--')}"


def _snapshot(
    repository: str, patterns: list[str], cache: Path, revision: str | None = None, *, local_files_only: bool = False
) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import tqdm

    folder = snapshot_download(
        repository,
        repo_type="dataset",
        revision=revision,
        allow_patterns=patterns,
        cache_dir=cache,
        endpoint=os.environ.get("HF_ENDPOINT", "").rstrip("/") or None,
        local_files_only=local_files_only,
        tqdm_class=redirect(tqdm),
    )
    return Path(folder)


def _check_hub_files(folder: Path, patterns: list[str]) -> None:
    names = list_files(folder) if folder.is_dir() else []
    files = [folder / name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
    if not files:
        shown = " or ".join(patterns[:3]) + " or others" * (len(patterns) > 3)
        raise DataError(f"there is no {shown} in {folder}", remedy="choose a data set with Parquet files or images")
    for file in files:
        kept = file.resolve()
        if re.fullmatch("[0-9a-f]{64}", kept.name):
            download.check(kept, kept.name)
        elif re.fullmatch("[0-9a-f]{40}", kept.name):  # a small file, which is kept in git itself
            content = b"blob %d\0" % kept.stat().st_size + kept.read_bytes()
            download.compare(kept, hashlib.sha1(content, usedforsecurity=False).hexdigest(), kept.name)
        else:
            raise DataError(f"the Hub states no digest for {file}", why=f"it is kept as {kept.name}")
