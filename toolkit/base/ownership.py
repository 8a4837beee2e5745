"""Says which state folder made a thing in a container engine, which all clones and users of a machine share.

A state folder gets a random id in its ``owner.json`` when something is first made there. How a thing names its maker:

- Containers and networks have the id in a label, and the number of the user in another.
- Images have no such label, because the same plan gives the same image in every clone, and a label would change its
  digest. A clone that makes an image, or reuses it, has a record of it in its state folder. An image belongs to all
  state folders that have a record of it, and the last of them may remove it.
- What clones share by its name belongs to none of them: base stand-ins, compose's images, volume and network, Bazel's
  caches. A volume has no id either, because compose offers to make a volume anew, without its data, when its labels
  have changed.

One clone finds the others by a register in the user's cache: a file for each id, with the path of the state folder. The
clones of other users are not in it; what has their number is theirs.
"""

import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolkit.base import files, naming, seals
from toolkit.base.errors import PreflightError
from train.native.library import find_cache

FILE: Final = "owner.json"
IMAGE_FILE: Final = "image.json"
"""Record of an image that has no manifest, in the folder of its log."""

_PURPOSE: Final = "an image of a state folder"
_ID = re.compile(r"[0-9a-f]{32}")


def find(state: Path) -> str:
    """Return the id of a state folder; empty if it has none, or if the folder is a copy of another one that has it."""
    state = state.resolve()
    identity = _read(state)
    registered = _read_registered(identity) if identity else None
    if registered and registered != state and _read(registered) == identity:
        return ""
    return identity


def claim(state: Path) -> str:
    """Return the id of a state folder; one without an id gets one, and the user's register gets its path.

    Raises PreflightError if the state folder is not writable.
    """
    state = state.resolve()
    identity = find(state)
    if not identity:
        identity = secrets.token_hex(16)
        if _read(state):
            files.write_json(state / FILE, {"schema": 1, "id": identity})  # in a copy, the id of another folder
        else:
            identity = _write_first(state, identity)
    if _read_registered(identity) != state:
        with suppress(PreflightError):  # the register only tells other clones of the user
            files.write_json(_locate_register() / f"{identity}.json", {"state": str(state)})
    return identity


def label(state: Path | None = None) -> dict[str, str]:
    """Return the labels of what is made in the engine for a state folder. One without an id does not get one."""
    labels = {naming.OWNER_LABEL: "toolkit", naming.USER_LABEL: str(os.getuid())}
    identity = find(state) if state else ""
    return labels | ({naming.STATE_LABEL: identity} if identity else {})


def list_states() -> dict[str, Path]:
    """Return the registered state folders of this user by their ids, those too that are gone."""
    states = {}
    with suppress(OSError):
        for path in sorted(_locate_register().iterdir()):
            identity = path.name.removesuffix(".json")
            if _ID.fullmatch(identity) and (state := _read_registered(identity)):
                states[identity] = state
    return states


def record_image(state: Path, tag: str, identity: str) -> None:
    """Record an image to which the toolkit gave its name, and which has no manifest in the state folder."""
    claim(state)
    seals.make_key()
    value = {"tag": tag, "id": identity}
    files.write_json(_locate_record(state, tag), {"schema": 1, **value, "mark": seals.mark(_PURPOSE, value)})


def read_image(folder: Path) -> tuple[str, str] | None:
    """Return name and id of an image that this user recorded in a folder, or None."""
    match files.read_json(folder / IMAGE_FILE):
        case {"tag": str(tag), "id": str(identity), "mark": mark} if seals.holds(
            _PURPOSE, {"tag": tag, "id": identity}, mark
        ):
            return tag, identity
    return None


def forget_image(state: Path, tag: str) -> None:
    record = _locate_record(state, tag)
    record.unlink(missing_ok=True)
    with suppress(OSError):  # there may be a log beside it
        record.parent.rmdir()


def _locate_record(state: Path, tag: str) -> Path:
    name = tag.removeprefix(f"{naming.IMAGE_REPOSITORY}/").replace(":", "-")
    return state / f"image-{name}" / IMAGE_FILE


def _write_first(state: Path, identity: str) -> str:
    """Write the id unless another command does so at the same time, and return the one that is there."""
    files.require_writable(state)
    with tempfile.TemporaryDirectory(dir=state, prefix=f".{FILE}.") as folder:
        new = Path(folder) / FILE
        files.write_json(new, {"schema": 1, "id": identity})
        try:
            os.link(new, state / FILE)
        except FileExistsError:
            if not _read(state):
                new.replace(state / FILE)  # what is there is no id
        except OSError:
            new.replace(state / FILE)  # a file system without hard links
    return _read(state) or identity


def _read(state: Path) -> str:
    match files.read_json(state / FILE):
        case {"id": str(identity)} if _ID.fullmatch(identity):
            return identity
    return ""


def _read_registered(identity: str) -> Path | None:
    match files.read_json(_locate_register() / f"{identity}.json"):
        case {"state": str(path)} if path.startswith("/"):
            return Path(path)
    return None


def _locate_register() -> Path:
    return find_cache().with_name("states")
