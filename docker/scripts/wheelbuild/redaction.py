"""Keeps the values of the user's rc file out of logs and event files.

Bazel writes its options into its event file, and prints them with ``--announce_rc``. Which of them are secret is not
known, so each value counts as one. Two rules decide where a value is masked:

1. Behind its option (``--jobs=4``): always.
2. Anywhere else: if it has at least eight characters and is not one of Bazel's own words for where an action runs. Four
   characters suffice where the option's name speaks of credentials (a header, a variable, a token, a key and the like)
   and for what a URL has before its ``@``. Of ``NAME=value`` the value counts.

A value of less than eight characters is masked as a whole word only, one of one to three behind its option only.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote, unquote, urlsplit

MASK = "[redacted]"
LONG = 8
"""From this length on, a value is masked in the middle of a word too, whatever its option."""
SHORT = 4
"""From this length on, a value is masked as a word where its option speaks of credentials."""

_TELLING = re.compile(r"header|env|auth|cred|token|secret|passw|key|cookie", re.IGNORECASE)
_NAMED = re.compile(r"(?:header|env|properties|define|strategy)$")
"""Options whose value is ``NAME=value``: the name may be seen."""
_COMMON = frozenset({"true", "false", "auto", "none", "remote", "local", "worker", "sandboxed", "standalone"})
_COMMON |= {"linux-sandbox", "processwrapper-sandbox", "toplevel"}
"""Values that Bazel also prints where no option is meant."""

_REFUSED = re.compile(r"--(?:action_env|host_action_env|repo_env)$")
_GSON = {ord(sign): f"\\u{ord(sign):04x}" for sign in "=<>&'"}
"""Bazel's JSON escapes these too, and many a credential ends with ``=``."""


class UnsafeError(Exception):
    """Says that the rc file has a setting whose value cannot be kept out of the cache mount or the process list."""


@dataclass(frozen=True)
class Setting:
    option: str
    value: str

    @property
    def secret(self) -> str:
        """Return the part of the value to mask: of ``NAME=value`` what follows the name."""
        rest = self.value.partition("=")[2] if _NAMED.search(self.option) else ""
        return rest or self.value

    @property
    def name(self) -> str:
        return self.value.removesuffix(self.secret)


class Redactor:
    """Masks the values of the user's rc file, and the credentials in the URLs of proxies among Bazel's variables."""

    def __init__(self, rc: str = "", environment: Mapping[str, str] | None = None) -> None:
        settings = list(read_settings(rc))
        self._pairs = frozenset((item.option.removeprefix("--"), item.value) for item in settings)
        anywhere = {secret for item in settings for secret in _list_secrets(item)}
        anywhere |= {part for value in (environment or {}).values() for part in _list_credentials(value)}
        self._beside = _compile_beside(settings)
        self._anywhere = _compile_anywhere(anywhere)

    def redact(self, text: str) -> str:
        """Return ``text`` with each secret masked, in plain form and as JSON and URLs write it."""
        if self._beside:
            text = self._beside.sub(lambda match: f"{match['before']}{MASK}", text)
        return self._anywhere.sub(MASK, text) if self._anywhere else text

    def redact_event(self, line: str) -> str:
        """Return a line of Bazel's event file, masked; empty where it is no whole event, as after a kill."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return ""
        return json.dumps(self._walk(event), ensure_ascii=False, separators=(",", ":")) + "\n"

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self._walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        found = {name: self._walk(item) for name, item in value.items()}
        if (value.get("optionName"), value.get("optionValue")) in self._pairs:
            found["optionValue"] = MASK
        if isinstance(value.get("contents"), str):
            found["contents"] = self._redact_base64(value["contents"])
        return found

    def _redact_base64(self, text: str) -> str:
        try:
            plain = base64.b64decode(text, validate=True).decode()
        except ValueError:
            return self.redact(text)
        return base64.b64encode(self.redact(plain).encode()).decode()


def read_settings(rc: str) -> Iterator[Setting]:
    """Yield the options with a value in an rc file, split as Bazel's client does (src/main/cpp/rc_file.cc).

    A word behind an option without ``=`` counts as its value, because which options take one is not known here.
    """
    for line in re.sub(r"\\\r?\n", "", rc).split("\n"):
        for word, following in pairwise([*split_words(line), ""]):
            option, sign, value = word.partition("=")
            if not option.startswith("--"):
                continue
            if not sign and not following.startswith("--"):
                value = following
            if value:
                yield Setting(option, value)


def require_safe(rc: str) -> None:
    """Raise UnsafeError for what ends in keys and inputs of cached actions, or in the process list."""
    for line in re.sub(r"\\\r?\n", "", rc).split("\n"):
        words = split_words(line)
        if words[:1] == ["startup"]:
            raise UnsafeError("startup options, which the process list shows")
        for word, following in pairwise([*words, ""]):
            option, sign, value = word.partition("=")
            if _REFUSED.match(option) and "=" in (value if sign else following):
                raise UnsafeError(f"{option}, whose value Bazel keeps in its caches")


def split_words(line: str) -> list[str]:
    """Return the words of a line. Quotation marks hold words together; a backslash keeps the next sign as it is."""
    words: list[str] = []
    word, quotation = "", ""
    signs = iter(line)
    for sign in signs:
        if sign == "\\":
            word += next(signs, "")
        elif quotation:
            quotation, word = ("", word) if sign == quotation else (quotation, word + sign)
        elif sign == "#":
            break
        elif sign in "'\"":
            quotation = sign
        elif sign in " \t\r":
            words, word = ([*words, word] if word else words), ""
        else:
            word += sign
    return [*words, word] if word else words


def _list_secrets(setting: Setting) -> Iterator[str]:
    yield from _list_credentials(setting.value)
    least = SHORT if _TELLING.search(f"{setting.option}={setting.name}") else LONG
    # Bazel's events have some of `NAME=value` as a pair, such as --build_metadata.
    for secret in {setting.secret, setting.value.partition("=")[2]}:
        if len(secret) >= least and secret not in _COMMON:
            yield secret
            # `Bearer abc...`: a server may repeat the second word alone.
            yield from (word for word in secret.split() if len(word) >= LONG)


def _list_credentials(value: str) -> Iterator[str]:
    try:
        user, sign, _ = urlsplit(value).netloc.rpartition("@")
    except ValueError:
        return
    for part in {user, user.partition(":")[2]} if sign else ():
        yield from (form for form in (part, unquote(part)) if len(form) >= SHORT)


def _compile_beside(settings: Iterable[Setting]) -> re.Pattern[str] | None:
    """Return a pattern for each value behind its option, with everything before the value in the group ``before``."""
    values: dict[str, set[str]] = {}
    for item in settings:
        values.setdefault(rf"{re.escape(item.option)}(?:=|\s+){re.escape(item.name)}", set()).add(item.secret)
    if not values:
        return None
    before = "|".join(f"{option}(?={_join(secrets)})" for option, secrets in sorted(values.items(), reverse=True))
    return re.compile(f"(?P<before>{before})(?:{_join(secret for each in values.values() for secret in each)})")


def _compile_anywhere(secrets: Iterable[str]) -> re.Pattern[str] | None:
    forms = {form for secret in secrets for form in _list_forms(secret) if form.strip()}
    return re.compile(_join(forms)) if forms else None


def _join(values: Iterable[str]) -> str:
    ordered = sorted(set(values), key=len, reverse=True)
    return "|".join(
        re.escape(value) if len(value) >= LONG else rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])"
        for value in ordered
    )


def _list_forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as JSON, a shell, a URL and Bazel, which takes each byte for Latin-1, write it."""
    yield secret
    yield secret.encode(errors="replace").decode("latin-1")
    for ascii_only in (True, False):
        quoted = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield quoted
        yield quoted.translate(_GSON)
    yield secret.replace("'", "'\\''")
    yield quote(secret, safe="")
