"""The folder of a wheel: one wheel, what belongs to it, and ``SHA256SUMS`` as ``sha256sum --check`` reads it."""

import re
from pathlib import Path

from toolkit import digest, files
from toolkit.errors import BuildError, IntegrityError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\0]+)")


def find_wheel(folder: Path) -> Path:
    """The one wheel of a folder.

    Raises:
        BuildError: there is none, or more than one.
    """
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(
            f"{len(wheels)} wheels in {folder} where one was expected",
            why=", ".join(path.name for path in wheels),
            remedy="look into the build log",
        )
    return wheels[0]


def write_sums(folder: Path) -> dict[str, str]:
    """Write the sums of every file in a folder; returns each file's digest by name."""
    found = _digest_files(folder)
    lines = [f"{value.removeprefix('sha256:')}  {name}\n" for name, value in sorted(found.items())]
    files.write_atomically(folder / SUMS, "".join(lines))
    return found


def check_sums(folder: Path) -> dict[str, str]:
    """Check every file of a folder against its sums; returns each file's digest by name.

    Raises:
        IntegrityError: there are no sums; or something is missing, changed, not listed, or no regular file. All that
            is wrong is in the message.
    """
    listed = _read_sums(folder)
    found = _digest_files(folder)
    strange = {path.name for path in folder.iterdir() if not _is_plain(path)}
    wrong = []
    for name in sorted(listed.keys() | found.keys() | strange):
        if name in strange:
            wrong.append(f"{name} is no regular file")
        elif name not in found:
            wrong.append(f"{name} is missing")
        elif name not in listed:
            wrong.append(f"{name} is not in {SUMS}")
        elif found[name] != listed[name]:
            wrong.append(f"{name} is not what {SUMS} says")
    if wrong:
        raise _complain(folder, "; ".join(wrong))
    return found


def check_sum(file: Path) -> None:
    """Check one file against the sums beside it. Where there are no sums, nothing is checked.

    A file that is neither there nor listed is as it was made.

    Raises:
        IntegrityError: it is changed, missing or not listed, or the sums cannot be read.
    """
    if not (file.parent / SUMS).exists():
        return
    listed = _read_sums(file.parent)
    if not file.exists():
        if file.name in listed:
            raise _complain(file.parent, f"{file.name} is missing")
        return
    if file.name not in listed:
        raise _complain(file.parent, f"{file.name} is not in {SUMS}")
    if digest.digest_file(file) != listed[file.name]:
        raise _complain(file.parent, f"{file.name} is not what {SUMS} says")


def _read_sums(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"{folder} has no readable {SUMS}", why=str(error), remedy="build the wheel again"
        ) from error
    listed = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise _complain(folder, f"{SUMS} has a line that is no sum: {line[:80]!r}")
        listed[match[2]] = f"sha256:{match[1]}"
    return listed


def _digest_files(folder: Path) -> dict[str, str]:
    return {path.name: digest.digest_file(path) for path in folder.iterdir() if _is_plain(path) and path.name != SUMS}


def _is_plain(path: Path) -> bool:
    """Whether it is a file itself: a link may lead to another file tomorrow."""
    return path.is_file() and not path.is_symlink()


def _complain(folder: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{folder.name} is not as it was made", why=why, remedy="build the wheel again")
