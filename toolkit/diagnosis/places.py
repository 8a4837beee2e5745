"""Says commands as they are run where a log was written, and leaves out what nobody can run there.

places.yaml has the rules. A command is cut at ``&&``, and the rules for the places of a log rewrite each part in order.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from toolkit.diagnosis import packages, specifiers
from toolkit.diagnosis.table import Answer
from toolkit.versions.table import read_yaml

PATH: Final = Path(__file__).with_name("places.yaml")
_THEN: Final = " && "
_REMARK: Final = "    # "
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=('[^']*'|\"[^\"]*\"|(?:\$\([^)]*\)|[^\s'\"])*)(?:\s+|$)")
_OTHER_INSTALLER: Final = re.compile(r"(?:uv|conda|mamba|poetry|pixi|pipenv) ")
_QUOTED: Final = re.compile(r"`([^`]+)`")
_VERSION: Final = re.compile(
    r"with (?P<package>TensorFlow|Keras|NumPy|Python|protobuf|torch) "
    r"(?:before (?P<below>\d[\d.]*\b)|(?P<least>\d[\d.]*\b)(?P<open> (?:or|and) later)?(?: to (?P<last>\d[\d.]*\b))?)",
    re.IGNORECASE,
)
"""How a sentence or the remark behind a command begins that holds for some versions alone."""

Facts = Mapping[str, str]


@functools.cache
def load() -> Mapping[str, Any]:
    return read_yaml(PATH.read_bytes())  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Rule:
    match: re.Pattern[str]
    say: tuple[str, ...] | None  # None: nobody can run the command there
    note: str


def adapt(answer: Answer, facts: Facts) -> Answer:
    """Return an answer whose commands can be run where the log was written, by what the log says (``facts``)."""
    speaker = _Speaker(list_places(facts), facts, answer)
    fitting = [command for command in answer.commands if speaker.holds(command.partition(_REMARK)[2]) is not False]
    commands = [each for command in fitting for each in speaker.say(command)]
    if answer.commands and not commands and not speaker.notes:
        speaker.notes |= dict.fromkeys(speaker.lacking)
    told = speaker.say_text(speaker.choose(answer.remedy))
    remedy = _QUOTED.sub(lambda found: f"`{speaker.say_short(found[1])}`", told)
    return replace(
        answer,
        cause=speaker.say_text(answer.cause),
        remedy=" ".join([remedy, *(note for note in speaker.notes if note not in remedy)]),
        commands=tuple(dict.fromkeys(_add_conda(commands, answer, facts))),
    )


def list_places(facts: Facts) -> frozenset[str]:
    """Return the names of the facts and of the places that follow from them, without those that others hide."""
    places = facts.keys() | {name for name, wanted in load()["places"].items() if facts.keys() >= {*wanted}}
    for place, hidden in load()["hides"].items():
        places = places - {*hidden} if place in places else places
    return frozenset(places)


def _add_conda(commands: list[str], answer: Answer, facts: Facts) -> Iterator[str]:
    """Yield the commands, and after the first that installs packages that of conda, if the log shows conda alone."""
    places = list_places(facts)
    seen = "conda environment" not in places or not places.isdisjoint(load()["installers"])
    seen = seen or any(map(_OTHER_INSTALLER.match, answer.commands))
    for command in commands:
        yield command
        if seen or _REMARK in command or not re.match(r"(?:python3? -m )?pip install [^-]", command):
            continue
        seen = True
        said = _Speaker(places | {"conda install"}, facts, answer).say(command)
        other = [each for each in said if each != command and "pip install" not in each]
        yield from (f"{each}{_REMARK}where conda installs the packages" for each in other)


class _Speaker:
    """Says commands for the places of one log."""

    def __init__(self, places: frozenset[str], facts: Facts, answer: Answer) -> None:
        self._variables = next((each for each in load()["variables"] if places & {*each["where"]}), None)
        self._rules = [_compile(rule) for rule in load()["rules"] if _applies(rule, places, facts, answer)]
        sentences = [each for each in load()["sentences"] if _applies(each, places, facts, answer)]
        self._said = [(re.compile(each["match"]), each["say"]) for each in sentences if "say" in each]
        self._unsaid = [re.compile(each["match"]) for each in sentences if "say" not in each]
        self._apart = bool(places & {*load()["apart"]})
        self._places, self._facts = places, facts
        self.notes: dict[str, None] = {}
        self.lacking = [note for place, note in load()["lacking"].items() if place in places]

    def holds(self, text: str) -> bool | None:
        """Return whether what a text says at its start of a place or version is so; None if the log does not say."""
        if version := _VERSION.match(text):
            found = packages.find_version(version["package"].lower(), self._facts)
            return specifiers.fits(found, _specify(version)) if found else None
        for opening in load()["openings"]:
            if re.match(opening["match"], text, re.IGNORECASE):
                known = not self._places.isdisjoint(opening["where"])
                return known or (False if not self._places.isdisjoint(opening["never"]) else None)
        return None

    def choose(self, text: str) -> str:
        """Return a text without the sentences that begin with another place or version; what is so comes first."""
        sentences = re.split(r"(?<=\.) (?=[A-Z])", text)
        told = [(self.holds(each), each) for each in sentences]
        kept = [each for known, each in told if known is not False]
        first = [each for known, each in told if known]
        return " ".join([*first, *(each for each in kept if each not in first)]) if kept else text

    def say(self, command: str) -> list[str]:
        """Return the commands to run in place of one; none if nobody can run it there."""
        body, mark, remark = command.partition(_REMARK)
        parts = [body] if body.startswith("cd ") else body.split(_THEN)
        said = [self._say_part(part) for part in parts]
        if parts[0].startswith("uv venv") and said[0] != parts[:1]:  # another program makes the environment
            said[1:] = [self._say_part(part.removeprefix("uv ")) for part in parts[1:]]
        if any(each is None for each in said):
            return []
        lines = [line for each in said if each for line in each]
        if lines and not self._apart and len(parts) > 1:
            bodies, _, remarks = zip(*(line.partition(_REMARK) for line in lines), strict=True)
            where = ", ".join(dict.fromkeys(filter(None, remarks)))
            lines = [_THEN.join(bodies) + (f"{_REMARK}{where}" if where else "")]
        return [line if _REMARK in line else f"{line}{mark}{remark}" for line in lines]

    def say_text(self, text: str) -> str:
        """Return a text in the words of the place, without later sentences that say nothing there."""
        for found, say in self._said:
            text = found.sub(say, text)
        first, *others = re.split(r"(?<=[.;]) ", text)
        kept = [first, *(each for each in others if not any(found.search(each) for found in self._unsaid))]
        if len(kept) > len(others):
            return text
        said = re.sub(r"; (?=[A-Z][a-z])", ". ", f"{' '.join(kept).rstrip(';.')}.")
        return re.sub(r"(?<=\w\. )[a-z]", lambda found: found[0].upper(), said)

    def say_short(self, command: str) -> str:
        """Return one command in place of another within a sentence, or the same."""
        if " " not in command or not re.match(r"[a-z]", command):
            return command
        said = self.say(command)
        return said[0].partition(_REMARK)[0] if len(said) == 1 else command

    def _say_part(self, part: str) -> list[str] | None:
        """Return what is said in place of a part of a command, or None if nobody can run it."""
        said = self._assign(part)
        for rule in self._rules:
            said = self._rewrite(rule, said) if said is not None else None
        return said

    def _rewrite(self, rule: _Rule, lines: list[str]) -> list[str] | None:
        rewritten: list[str] = []
        for line in lines:
            found = rule.match.search(line)
            if _REMARK in line or found is None:
                rewritten.append(line)
                continue
            if rule.note:
                self.notes[found.expand(rule.note)] = None
            if rule.say is None:
                return None
            rewritten += [rule.match.sub(say, line) for say in rule.say]
        return rewritten

    def _assign(self, part: str) -> list[str] | None:
        """Return a part with its variables set in the way of the place, or None if one cannot be set there."""
        word, _, rest = part.partition(" ")
        way = self._variables
        if way is None or not (word in {"export", "unset"} or ("alone" in way and _ASSIGNED.match(part))):
            return [part]
        if word == "unset":
            if re.search(way["never"], rest):
                return None
            return [each.format(name=name) for name in rest.split() for each in way["unset"]]
        text, said = part.removeprefix("export "), []
        while found := _ASSIGNED.match(text):
            name, value = found[1], found[2].strip("'\"")
            if re.search(way["never"], f"{name}={value}"):
                return None
            said += [each.format(name=name, value=value) for each in way["set"]]
            text = text[found.end() :]
        return [*said, text] if text.strip() else said


def _applies(rule: Mapping[str, Any], places: frozenset[str], facts: Facts, answer: Answer) -> bool:
    if "where" in rule and places.isdisjoint(rule["where"]):
        return False
    if not places.isdisjoint(rule.get("unless", ())):
        return False
    if "beside" in rule and re.search(rule["beside"], " ".join([answer.cause, answer.remedy, *answer.commands])):
        return False
    return all(name in facts and specifiers.fits(facts[name], spec) for name, spec in rule.get("when", {}).items())


def _specify(version: re.Match[str]) -> str:
    """Return the specifier of the versions that a sentence names."""
    if version["below"]:
        return f"<{version['below']}"
    if version["open"]:
        return f">={version['least']}"
    return f">={version['least']},<={version['last']}.99" if version["last"] else f"=={version['least']}.*"


def _compile(rule: Mapping[str, Any]) -> _Rule:
    say = rule.get("say")
    told = None if say is None else (say,) if isinstance(say, str) else tuple(say)
    return _Rule(re.compile(rule["match"]), told, rule.get("note", ""))
