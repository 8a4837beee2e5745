"""``SHA256SUMS`` beside the files that it names, as ``sha256sum --check`` reads it."""

import re
from pathlib import Path

from toolkit import digest, files
from toolkit.errors import IntegrityError

FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\0]+)")


def write(folder: Path) -> dict[str, str]:
    """Write the sums of every file in a folder; returns each file's digest by name."""
    found = _digest_files(folder)
    lines = [f"{value.removeprefix('sha256:')}  {name}\n" for name, value in sorted(found.items())]
    files.write_atomically(folder / FILE, "".join(lines))
    return found


def check(folder: Path) -> dict[str, str]:
    """Check every file of a folder against its sums; returns each file's digest by name.

    Raises:
        IntegrityError: a file is missing, changed, or not listed; or there are no sums.
    """
    try:
        lines = (folder / FILE).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"{folder} has no readable {FILE}", why=str(error), remedy="build the wheel again"
        ) from error
    listed = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise _complain(folder, f"{FILE} has a line that is no sum: {line[:80]!r}")
        listed[match[2]] = f"sha256:{match[1]}"
    found = _digest_files(folder)
    for name in sorted(listed.keys() | found.keys()):
        if name not in found:
            raise _complain(folder, f"{name} is missing")
        if name not in listed:
            raise _complain(folder, f"{name} is not in {FILE}")
        if found[name] != listed[name]:
            raise _complain(folder, f"{name} is not what {FILE} says")
    return found


def _digest_files(folder: Path) -> dict[str, str]:
    return {path.name: digest.digest_file(path) for path in folder.iterdir() if path.is_file() and path.name != FILE}


def _complain(folder: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{folder.name} is not as it was made", why=why, remedy="build the wheel again")
