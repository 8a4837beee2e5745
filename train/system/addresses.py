"""Keeps credentials in addresses out of what is printed and of what is kept. The toolkit has the same rule.

An address has credentials if it has a password. A user alone counts too, because tokens are passed so; only for ssh it
is a name. A parameter of the query or the fragment counts if its name is one by which tokens and signatures are passed.
An option with such an address is refused, because the address would stand in records. What other programs say of one is
changed before it is printed or kept.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

HIDDEN: Final = "***"

_USER: Final = re.compile(
    r"""(?P<scheme>\b(?P<name>[a-z][a-z0-9+.-]*)://)(?P<user>[^/?#\s@:"'<>\\]*)(?P<password>:[^/?\s"'<>\\]*?)?@(?!sha\d+:)(?=[^@/?#\s]*(?:[/?#\s"'<>\\]|$))""",
    re.IGNORECASE,
)
"""A scheme with what stands before the last @ of its host. A password may have a # that nobody escaped.

The digest of an image stands after an @ too.
"""

_WORDS: Final = (
    "token|secret|passw(?:or)?d|pwd|signature|credentials?|api[-_]?key|access[-_]?key|auth(?:orization)?|session|jwt"
)
_NAMES: Final = (
    rf"(?:[\w.~-]{{0,99}}[-_.])?(?:{_WORDS})(?:[-_.][\w.~-]{{0,99}})?"
    r"|[\w-]{0,99}(?:token|secret|signature|password)|sig|key|sas|code"
)
"""Names of parameters by which tokens and signatures are passed, alone or as a part between dashes."""

_QUERY: Final = re.compile(rf"""(?P<name>[?&;#](?:{_NAMES})=)(?P<value>[^&;#\s"'<>\\]+)""", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"""\b[a-z][a-z0-9+.-]*://[^\s"'<>]+""", re.IGNORECASE)


def find_credentials(text: str) -> str:
    """Describe the credential that an address in a text has, without repeating it. Without one, return ""."""
    if any(_is_login(match) for match in _USER.finditer(text)):
        return "a user or a password"
    for address in _ADDRESS.finditer(text):
        if match := _QUERY.search(address[0]):
            return f"the parameter {match['name'].strip('?&;#=')}"
    return ""


def find_in(values: Iterable[object]) -> str:
    """Describe the first credential in the values of options: texts, paths and lists. Without one, return ""."""
    for value in values:
        if isinstance(value, str | Path):
            # A path keeps only one of the two slashes.
            text = re.sub(r"(?<=\w):/(?!/)", "://", str(value)) if isinstance(value, Path) else value
            credentials = find_credentials(text)
        else:
            credentials = find_in(value) if isinstance(value, list | tuple) else ""
        if credentials:
            return credentials
    return ""


def hide(text: str) -> str:
    """Return text in which each credential in an address is replaced by a mark."""
    if "://" not in text and ":/" not in text:
        return text
    text = _USER.sub(lambda match: f"{match['scheme']}{HIDDEN}@" if _is_login(match) else match[0], text)
    return _ADDRESS.sub(lambda address: _QUERY.sub(rf"\g<name>{HIDDEN}", address[0]), text)


def _is_login(match: re.Match[str]) -> bool:
    """Return whether what is before the @ is a credential: the user of ssh alone is a name, as in ssh://git@host."""
    if match["user"] == HIDDEN and not match["password"]:
        return False
    return bool(match["password"]) or ("ssh" not in match["name"].lower() and bool(match["user"]))
