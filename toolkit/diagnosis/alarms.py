"""Tells lines that read as an error from those that do not, where no row of the table knows them."""

import re
from typing import Final

_ENDING: Final = re.compile(
    r"(?<!\b0 )(?<!\b[Nn]o )(?:\b[A-Z]\w*(?:Error|Exception)\b|\b[Ee]rror:|\bERROR\b|\[error\]"
    r"|\b[Ff](?:atal|ailed|ailure)\b|\bF(?:ATAL|AILED)\b|^Killed|\b[Tt]erminated\b|^Aborted|core dumped"
    r"|\b[Cc](?:ould not|annot)\b|\b[Uu]nable to\b|\b[Dd]enied\b|\bnot supported\b|\brefused\b"
    r"|\b[Ss]egmentation\b|\b[Ee]rror!|\btim(?:ed|ing) out\b|\buncaught exception\b|\[E\d{3,4} |: [EF] \w+/"
    r"|^Traceback \(most|^\s*File \".*\", line \d|\bexit (?:code|status):? ?[1-9]"
    r"|错误|錯誤|失败|失敗|异常|\bF[Ee](?:hler|HLER)\b|fehlgeschlagen|\b[Ee]rreur\b|échou|\b[Ee]rrore?\b:|falló|шибка|エラー|오류"
    r"|权限不够|拒绝|\bKeine Berechtigung\b|non accordée|denegado\b|отказано|Отказано|negada\b|核心已转储)"
)
"""How the last lines of a log read that ends in a failure."""
_FAILING: Final = re.compile(
    r"(?i:(?<!\b0 )(?<!\bno )(?<!\bwithout )(?<!\bcorrected )\b(?:errors?|failed|failures?|fails|fatal"
    r"|un(?:recogni[sz]ed|supported|defined)|invalid|illegal|mismatch(?:es|ed)?|disallowed|incompatible|corrupt(?:ed)?|denied|refused|rejected"
    r"|cannot|can't|could(?:n't| not)|unable|no such|not (?:found|installed|allowed|compatible|recogni[sz]ed))\b)"
    r"|\w(?:Error|Exception|NotFound)\b|" + _ENDING.pattern
)
"""How a line reads that somebody quotes because something failed."""
_NOTE: Final = re.compile(r"^[^A-Za-z]*[IW](?:\d* |: )|\b(?:info|warning|warn|debug)\b", re.IGNORECASE)
"""A line that says itself that it is no error."""
_MEASURED: Final = re.compile(r"\berror: ?\d+\.\d+(?:e[-+]?\d+)?%?(?=\s|[,;|)]|$)", re.IGNORECASE)
"""An error that a program measures, and does not make."""


def ends_in_failure(line: str) -> bool:
    """Return whether the last line of a log reads like a failure."""
    return _is_alarm(_ENDING, line)


def shows_failure(line: str) -> bool:
    """Return whether a line that somebody quotes reads as if something failed."""
    return _is_alarm(_FAILING, line)


def is_measured(line: str) -> bool:
    """Return whether the error of a line is one that a program measures, and does not make."""
    return _MEASURED.search(line) is not None


def _is_alarm(expression: re.Pattern[str], line: str) -> bool:
    return bool(expression.search(line)) and not _NOTE.search(line) and not is_measured(line)
