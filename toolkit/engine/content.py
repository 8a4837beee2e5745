"""Lists all files that the interpreter of an environment may read there, and finds what was changed or added since.

A package's ``RECORD`` names neither the interpreter, nor ``pyvenv.cfg``, nor what no package brought: a module, a
``.pth`` file or compiled bytecode that somebody else put there runs all the same.
"""

import hashlib
import json
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from toolkit.base import digest, files
from train.system.files import read_regular
from train.system.output import printable

FILE: Final = "files.json"
"""The list, in the folder of an environment."""

SCHEMA: Final = 1
TOP: Final = "venv"
_READ: Final = re.compile(r"(bin|lib|lib64|pyvenv\.cfg)(/(?![^/]+/\.|(.*/)?__pycache__(/|$)).*)?")
"""What an interpreter may read below its prefix, except bytecode and what this program keeps beside the packages."""

_LARGE: Final = 1_000_000  # bytes
_SHOWN: Final = 3

MOST: Final = 300_000
"""Names in an environment: several times those of TensorFlow with all of CUDA. A link may lead to a whole disk."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """What lies in an environment now. Names are below the folder of the environment."""

    folder: Path
    files: dict[str, os.stat_result] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)  # the mode of each: Python imports an empty one, too
    links: dict[str, str] = field(default_factory=dict)  # what each one names
    outside: dict[str, os.stat_result] = field(default_factory=dict)  # files elsewhere to which links lead, by path
    others: list[str] = field(default_factory=list)  # what cannot be read, or is no file, folder or link to one

    def fingerprint(self) -> str:
        """Return a digest of all names, sizes, times, inodes and modes. It takes no reading of files.

        A file outside belongs to the system, which may bring a new version of it.
        """
        state = hashlib.sha256()
        for name, status in sorted(self.files.items()):
            times = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_mode}"
            state.update(f"{name}\0{times} {status.st_uid}\n".encode(errors="surrogateescape"))
        named = (self.folders.items(), self.links.items(), self.outside, self.others)
        rest = json.dumps([sorted(part) for part in named])
        return f"sha256:{hashlib.sha256(state.digest() + rest.encode()).hexdigest()}"

    def find_open(self) -> dict[str, int]:
        """Return the modes of files and folders that all users may write to."""
        modes = {**self.folders, **{name: status.st_mode for name, status in self.files.items()}}
        return {name: stat.S_IMODE(mode) for name, mode in sorted(modes.items()) if mode & stat.S_IWOTH}


def scan(folder: Path, top: str = TOP) -> Tree:
    """Return what lies in the virtual environment of a folder. Links to folders elsewhere are followed."""
    tree = Tree(folder=folder)
    if (folder / top).is_symlink():
        tree.others.append(top)
        return tree
    root = os.path.realpath(folder / top)
    pending, seen, count = [(top, str(folder / top))], {root}, 0
    while pending:
        name, path = pending.pop()
        with suppress(OSError):
            tree.folders[name] = os.stat(path).st_mode  # noqa: PTH116 - as the rest of this walk
        entries = _list(tree, name, path)
        count += len(entries)
        if count > MOST:
            tree.others.append(f"{top}, with more than {MOST:,} names,")
            return tree
        for entry in entries:
            below = entry.name if name == "." else f"{name}/{entry.name}"
            try:
                target = _place(tree, below, entry, root)
            except OSError:  # it is gone meanwhile, or may not be looked at
                tree.others.append(below)
                continue
            if target and not (entry.is_symlink() and target in seen):
                seen.add(target)
                pending.append((below, target))
    return tree


def scan_prefix(prefix: Path) -> Tree:
    """Return what the interpreter of an environment of the user's own may read there, except bytecode.

    Python writes bytecode whenever such an environment is used.
    """
    tree = scan(prefix.resolve(), ".")
    return replace(
        tree,
        files={name: status for name, status in tree.files.items() if _READ.fullmatch(name)},
        folders={name: mode for name, mode in tree.folders.items() if _READ.fullmatch(name)},
        links={name: place for name, place in tree.links.items() if _READ.fullmatch(name)},
        others=[name for name in tree.others if _READ.fullmatch(name)],
    )


def _place(tree: Tree, name: str, entry: os.DirEntry[str], root: str) -> str:
    """Put what has a name into a tree. Return the folder that is listed under that name, or an empty text."""
    if entry.is_dir(follow_symlinks=False):
        return entry.path
    if entry.is_symlink():
        return _follow_link(tree, name, entry.path, root)
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        tree.files[name] = status
    else:
        tree.others.append(name)
    return ""


def _list(tree: Tree, name: str, path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        tree.others.append(name)
        return []


def _follow_link(tree: Tree, name: str, path: str, root: str) -> str:
    """Put a link into a tree. Return the folder outside to which it leads, or an empty text."""
    tree.links[name] = str(Path(path).readlink())
    target = os.path.realpath(path)
    if target == root or target.startswith(f"{root}/"):
        return ""  # it is listed under its own name
    try:
        status = os.stat(target)  # noqa: PTH116 - as the rest of this walk, without an object for each file
    except OSError:
        tree.others.append(name)
        return ""
    if stat.S_ISDIR(status.st_mode):
        return target
    if stat.S_ISREG(status.st_mode):
        tree.outside[target] = status
    else:
        tree.others.append(name)
    return ""


def write(folder: Path, look: Callable[[], Tree] | None = None) -> tuple[str, str]:
    """Write the list of a new environment; return the digest of the list and the fingerprint of what it lists.

    ``look`` returns what is listed, if that is not the virtual environment of the folder.

    What all users may write to, as the lock of uv, is first closed for others.
    The fingerprint is that of the time before the files were read, so that a change meanwhile is found later.
    """
    look = look or partial(scan, folder)
    tree = look()
    if found := tree.find_open():
        for name, mode in found.items():
            files.set_mode(tree.folder / name, mode & ~(stat.S_IWGRP | stat.S_IWOTH))
        tree = look()
    digests = hash_files(tree, tree.files)
    value = {
        "schema": SCHEMA,
        "files": digests,
        "folders": sorted(tree.folders.keys() - find_parents([*tree.files, *tree.links])),
        "links": tree.links,
        "outside": {path: _hash(path) for path in tree.outside},
    }
    files.write_json(folder / FILE, value)
    return digest.read_file(folder / FILE), tree.fingerprint()


def read(folder: Path, promised: object) -> Mapping[str, Any] | None:
    """Return the list of an environment; None if it is missing, damaged, or has another digest than promised."""
    path = folder / FILE
    try:
        text = b"" if path.is_symlink() else read_regular(path)
        value = json.loads(text) if digest.digest_bytes(text) == promised else None
    except (OSError, ValueError, RecursionError):
        return None
    match value:
        case {"schema": 1, "files": {**listed}, "folders": [*empty], "links": {**links}, "outside": {**outside}}:
            return {"files": listed, "folders": empty, "links": links, "outside": outside}
    return None


def compare(tree: Tree, digests: Mapping[str, str], listed: Mapping[str, Any]) -> list[str]:
    """Return what is not as listed. ``digests``: of the files of the tree that are listed."""
    return [f"{name} is not in its record" for name in find_added(tree, listed)] + find_changed(tree, digests, listed)


def find_added(tree: Tree, listed: Mapping[str, Any]) -> list[str]:
    """Return the files and folders that are not listed."""
    known = {*listed["files"], *listed["folders"], *listed["links"]}
    known |= find_parents(known)
    return sorted(tree.files.keys() - listed["files"].keys() | tree.folders.keys() - known)


def find_changed(tree: Tree, digests: Mapping[str, str], listed: Mapping[str, Any]) -> list[str]:
    """Return what is listed and not as it was, and what should not be there: links, and what others may write to."""
    wrong = [f"others may write to {name}" for name in tree.find_open()]
    wrong += [f"{name} is gone" for name in sorted(listed["files"].keys() - tree.files.keys() - tree.links.keys())]
    wrong += [f"{name} is a link now" for name in sorted(listed["files"].keys() & tree.links.keys())]
    same = listed["files"].keys() & tree.files.keys()
    wrong += [f"{name} has other bytes" for name in sorted(same) if digests.get(name) != listed["files"][name]]
    wrong += [
        f"{name} leads to {tree.links.get(name, 'nothing')}, not to {listed['links'].get(name, 'anything')}"
        for name in sorted(tree.links.keys() | listed["links"].keys())
        if tree.links.get(name) != listed["links"].get(name) and name not in listed["files"]
    ]
    paths = sorted(tree.outside.keys() | listed["outside"].keys())
    wrong += [f"{path} is another file" for path in paths if listed["outside"].get(path) != _hash(path, tree.outside)]
    return wrong + [f"{name} cannot be read as a file or folder" for name in sorted(tree.others)]


def find_parents(names: Iterable[str]) -> set[str]:
    """Return the folders in which names lie, and those around them."""
    found: set[str] = set()
    for name in names:
        while (name := name.rpartition("/")[0]) and name not in found:
            found.add(name)
    return found


def summarize(wrong: list[str]) -> str:
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return printable("; ".join(wrong[:_SHOWN]) + more)


def find_change(folder: Path, promised: object) -> tuple[str, str]:
    """Read all files of an environment; return what is not as listed, else nothing, and the fingerprint of before."""
    listed = read(folder, promised)
    if listed is None:
        return f"its {FILE} is missing or changed", ""
    tree = scan(folder)
    wrong = compare(tree, hash_files(tree, tree.files.keys() & listed["files"].keys()), listed)
    return summarize(wrong), tree.fingerprint()


def hash_files(tree: Tree, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of files of a tree; those that cannot be read are left out.

    A second thread begins with the few large files: hashing one leaves the interpreter to the other thread, which
    begins with the small ones. They meet when all files are read.
    """
    queue = deque(sorted(names, key=lambda name: tree.files[name].st_size >= _LARGE))
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(lambda: dict(_hash_all(tree.folder, queue.pop)))
        small = dict(_hash_all(tree.folder, queue.popleft))
        return small | large.result()


def _hash_all(folder: Path, take: Callable[[], str]) -> Iterator[tuple[str, str]]:
    while True:
        try:
            name = take()
        except IndexError:
            return
        if value := _hash(f"{folder}/{name}"):
            yield name, value


def _hash(path: str, known: Mapping[str, object] | None = None) -> str:
    if known is not None and path not in known:
        return ""
    try:
        return f"sha256:{digest.hash_file(path).hex()}"
    except (OSError, ValueError):
        return ""
