"""Says where installers download the wheels of an index that do not lie beside its pages."""

from collections.abc import Collection, Sequence
from urllib.parse import quote, unquote, urlsplit

from toolkit.errors import UsageError


def assign(names: Collection[str], addresses: Sequence[str]) -> dict[str, str]:
    """Return the address of each wheel that has one, by the name of the wheel.

    ``addresses``: one of a folder, which ends in a slash and counts for all wheels, and those of single wheels. Raises
    UsageError if a text is no such address, if no wheel has the name in it, or if one wheel has two addresses
    or two folders are given.
    """
    folders: list[str] = []
    single: dict[str, str] = {}
    for address in addresses:
        name = _read_name(address)
        if not name:
            folders.append(address)
        elif name not in names:
            raise UsageError(
                f"no wheel has the name of {address}",
                remedy="give the wheel too: its hash and its metadata stand in the index",
            )
        elif single.setdefault(name, address) != address:
            raise UsageError(f"{name} has two addresses: {single[name]} and {address}", remedy="leave one out")
    if len(folders) > 1:
        raise UsageError(f"two folders of wheels are named: {folders[0]} and {folders[1]}", remedy="leave one out")
    return {**{name: f"{folder}{quote(name)}" for folder in folders for name in names}, **single}


def _read_name(address: str) -> str:
    """Return the name of the wheel that an address is of; empty for a folder. Raises UsageError."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    name = unquote(parts.path.rpartition("/")[2])
    whole = parts.scheme in {"http", "https"} and parts.netloc and (not name or name.endswith(".whl"))
    # Installers write endings behind an address, such as `.metadata`.
    if not whole or not parts.path or parts.query or parts.fragment or any(map(str.isspace, address)):
        raise UsageError(
            f"not an address of wheels: {address[:200]!r}",
            why="it is the URL of a folder, which ends in a slash, or of a wheel, without `?` and `#`",
            remedy="https://example.org/wheels/, for example",
        )
    return name
