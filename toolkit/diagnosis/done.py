"""Reads which commands, options and variables a log shows as used, and leaves them out of what is advised."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from toolkit.diagnosis.table import Answer

LINES: Final = 2_000
"""First lines of a block that are searched: nobody types more."""
MOST: Final = 500
"""Commands that are remembered."""
_PROGRAMS: Final = (
    "pip3?|python3?|py|uvx?|conda|mamba|micromamba|poetry|pixi|pipenv|docker|podman|apptainer|singularity|kubectl|helm"
    "|srun|sbatch|salloc|mpirun|mpiexec|torchrun|cmake|make|bazel|bazelisk|apt|apt-get|dnf|yum|brew|ldconfig|modprobe"
    "|nvidia-smi|nvidia-ctk|systemctl|export|set|unset|env|source|toolkit|git|wsl|wsl\\.exe|R"
)
_RAN: Final = re.compile(
    r"(?m)^(?:[^\n$#>%!`'\"]{0,80}[$#>%!]+ ?|\+ |(?:RUN|ENV) |#SBATCH )?(?P<command>(?:sudo )?"
    rf"(?:(?:[A-Z]\w*=\S+ )+\S|(?:{_PROGRAMS})(?=[ \n]|\Z)|[A-Z][A-Z0-9_]{{2,}}=|--\w|\$env:|os\.environ\[)[^\n]*)"
)
"""A line that somebody typed or wrote into a script, behind a prompt or at the start."""
_ADVICE: Final = re.compile(r":\s*\Z")
"""How a line ends behind which a command is advice of the program."""
_SETTING: Final = re.compile(r"(?<![\w-])([A-Z][A-Z0-9_]{2,})['\"]?\]?\s*=\s*['\"]?([^\s'\";&]+)")
_OPTION: Final = re.compile(r"(?<![\w-])(--[a-z][\w-]*)(?:[= ]([\w.:/-]*\w))?")
_CHANGES: Final = re.compile(
    r"^(?:pip (?:install|uninstall|cache)|conda (?:install|create|config)|uv (?:add|sync|lock)|export "
    r"|(?:[A-Z]\w*=\S+ ?)+$"
    r"|apt(?:-get)? |dnf |modprobe |systemctl |ldconfig$|nvidia-ctk |docker (?:run|pull) |srun |sbatch )"
)
"""A command that changes something, and does not only look."""
_SAME: Final = (
    (re.compile(r"^(?:sudo |[!%])+"), ""),
    (re.compile(r"\b(?:(?:python3?|py)(?: -[\d.]+)? -m |uv )?pip3? "), "pip "),
    (re.compile(r" -U\b"), " --upgrade"),
    (re.compile(r" (?:-y|--yes|-q|--quiet)\b"), ""),
    (re.compile(r"['\"]"), ""),
    (re.compile(r"\s+(?:#.*)?$|\s+(?= )"), ""),
)
"""Forms of one command."""
_AGAINST: Final = re.compile(
    r"\b(?:without|instead|in place of|unset|remove|leave|take .{0,40} (?:out|away)|switch .{0,40} off|hides?|not)\b",
    re.IGNORECASE,
)
"""How a sentence reads that speaks against what it names."""
_THEN: Final = " && "
_REPEATED: Final = (
    "The log shows `{what}` already. Look whether the process that failed got it: it must stand in the same shell, "
    "environment or container."
)


def read(text: str) -> Iterator[str]:
    """Yield the commands that stand in a part of a log, in one form."""
    for found in _RAN.finditer(text):
        if not _ADVICE.search(text, max(0, found.start() - 200), found.start()):
            yield _normalize(found["command"])


def weigh(answer: Answer, ran: Sequence[str]) -> Answer | None:
    """Return an answer without what the log shows as done; None if that was all it advised."""
    if not ran:
        return answer
    done = _Done(ran)
    vain = [command for command in answer.commands if done.has_command(command)]
    commands = tuple(command for command in answer.commands if command not in vain)
    sentences = re.split(r"(?<=\.) (?=[A-Z])", answer.remedy)
    kept = [each for each in sentences if not done.has_advice(each)]
    if not kept or (vain and not commands):
        return None
    known = [f"`{command}` stands in the log already." for command in vain[:1] if len(kept) == len(sentences)]
    return replace(answer, remedy=" ".join([*kept, *known]), commands=commands)


def repeat(answer: Answer, ran: Sequence[str]) -> Answer:
    """Return in place of an answer that was tried in vain where to look, with what is left of it."""
    done = _Done(ran)
    vain = [command for command in answer.commands if done.has_command(command)]
    named = [each for each in (*vain, *done.find(answer.remedy)) if each]
    if not named:
        return answer
    return replace(
        answer,
        remedy=f"{_REPEATED.format(what=named[0])} {'' if done.has_advice(answer.remedy) else answer.remedy}".rstrip(),
        commands=tuple(command for command in answer.commands if command not in vain),
    )


class _Done:
    """What a log shows as done."""

    def __init__(self, ran: Sequence[str]) -> None:
        self._commands = {part for command in ran for part in (command, *command.split(_THEN))}
        self._settings = {match.groups() for command in ran for match in _SETTING.finditer(command)}
        self._options: dict[str, set[str]] = {}
        for command in ran:
            for name, value in _OPTION.findall(command):
                self._options.setdefault(name, set()).add(value)

    def has_command(self, command: str) -> bool:
        """Return whether each part of a command was run, or each variable of it set."""
        parts = _normalize(command.partition("    # ")[0]).split(_THEN)
        return any(map(_CHANGES.search, parts)) and all(part in self._commands or self._is_set(part) for part in parts)

    def has_advice(self, sentence: str) -> bool:
        """Return whether each option and variable that a sentence names stands in the log, and it is for them."""
        return bool(self.find(sentence)) and not _AGAINST.search(sentence)

    def find(self, text: str) -> list[str]:
        """Return the options and variables with a value that a text names, if each of them stands in the log."""
        settings = [(match[0], match.groups() in self._settings) for match in _SETTING.finditer(text)]
        options = [
            (f"{name}={value}" if f"{name}={value}" in text else name, value in self._options.get(name, ()))
            for name, value in _OPTION.findall(text)
            if f"{name}={value}" in text
        ]
        named = [*settings, *options]
        return [name for name, there in named] if named and all(there for _, there in named) else []

    def _is_set(self, part: str) -> bool:
        if not re.match(r"export |[A-Z]\w*=\S+$", part):
            return False
        found = [match.groups() for match in _SETTING.finditer(part)]
        return bool(found) and all(each in self._settings for each in found)


def _normalize(command: str) -> str:
    for pattern, same in _SAME:
        command = pattern.sub(same, command)
    return command.strip()
