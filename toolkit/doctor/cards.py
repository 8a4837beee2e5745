"""Finds the chip and the compute capability of a card by its name or by its PCI device id."""

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.base.errors import UsageError
from toolkit.checks.gpu_rules import parse_capability
from toolkit.versions.table import read_yaml

_FILE = Path(__file__).with_name("cards.yaml")
_DEVICES = Path(__file__).with_name("devices.txt")

_WORD = re.compile(r"[a-z0-9]+")
_MEMORY = re.compile(r"\b\d+ ?g(?:i?b)?\b")
_MARKS = re.compile(r"\((?:r|tm)\)|[®™]")
_GLUED = re.compile(r"\b(?:(nvidia|geforce|quadro|tesla|grid|rtx|gtx|gts)(?=[a-z]?\w*\d)|(gt|pro)(?=\d))")
_TAIL = re.compile(r"(?<=\d)(laptop|mobile)\b")
_BARE = re.compile(r"(sm|compute)_?(\d{2,3}[a-z]?)")
_PCI = re.compile(r"\[?(?:0x)?10de[:\s-]?(?:0x)?([0-9a-f]{4})\]?|0x([0-9a-f]{4})10de")
_NUMBER = re.compile(r"\d+[.,][\d.,]*")
_CUT = re.compile(r"\s*(?:\.{2,}|…)$")
_MIG = re.compile(r"[\s_-]+mig[\s_-]+(?:\d+c\.)?\d+g\.\d+gb\S*.*$")
_PROFILE = re.compile(r"(.+?)(?:-\d{1,2})?-\d{1,3}(?:([abcq])\d?(?:me)?)?")
_UNNAMED = {"device", "nvidia device", "graphics device", "nvidia graphics device"}
_ASKING = "`nvidia-smi --query-gpu=compute_cap --format=csv`"


@dataclass(frozen=True, kw_only=True)
class Chip:
    name: str
    capability: str
    architecture: str
    last_cuda: str = ""  # the last CUDA whose compiler knows it; empty: there is no last one yet
    last_driver: str = ""  # the last branch of the driver that knows it; empty: there is no last one yet


@dataclass(frozen=True, kw_only=True)
class Card:
    capability: str
    name: str = ""  # as the lists of devices have it; empty for a bare capability
    platform: str = ""  # of the machines that it is built into; empty: it is for any
    note: str = ""
    chip: Chip | None = None
    device: str = ""  # PCI device id; empty if the name is of no list of devices


@dataclass(frozen=True)
class _Entry:
    """A name of a card, as a list has it."""

    name: str
    code: str  # of the chip, as the list of devices has it
    device: str = ""  # PCI device id


@dataclass(frozen=True)
class _Words:
    """The words of cards.yaml that names of cards have beside what tells the card."""

    common: frozenset[str]
    lines: frozenset[str]
    strict: frozenset[str]
    forms: frozenset[str]

    def spell(self, text: str) -> str:
        """Return a name without blanks and without the words that every name may have."""
        return "".join(word for word in _WORD.findall(text) if word not in self.common)

    def shorten(self, text: str) -> str:
        """Return a name without the words that are often left out: of the product line, form, maker and memory."""
        return "".join(word for word in self.split(_MEMORY.sub(" ", text)) if word not in self._omitted)

    @functools.cached_property
    def _omitted(self) -> frozenset[str]:
        return self.lines | self.forms

    def split(self, text: str) -> list[str]:
        """Return the words of a name, also of one such as ``rtx4090``, without those that every name may have."""
        apart = _TAIL.sub(r" \1", _GLUED.sub(r"\g<0> ", _GLUED.sub(r"\g<0> ", text)))  # twice, for rtxpro6000
        return [word for word in _WORD.findall(apart) if word not in self.common]


class _Index:
    """The names of all cards: as they are spelled, by what is left of them in short, and by device."""

    def __init__(self, entries: Iterable[_Entry], words: _Words) -> None:
        self.spelled: dict[str, list[_Entry]] = defaultdict(list)
        self.short: dict[str, list[_Entry]] = defaultdict(list)
        self.devices: dict[str, _Entry] = {}
        for entry in entries:
            plain = _plain(entry.name)
            if entry.device:
                self.devices.setdefault(entry.device, entry)
            if key := words.spell(plain):
                self.spelled[key].append(entry)
            if key := words.shorten(plain):
                self.short[key].append(entry)


@functools.cache
def _read() -> Mapping[str, Any]:
    read: Mapping[str, Any] = read_yaml(_FILE.read_bytes())
    return read


@functools.cache
def load_chips() -> Mapping[str, Chip]:
    return {
        name: Chip(name=name, **{key: value or "" for key, value in row.items()})
        for name, row in _read()["chips"].items()
    }


@functools.cache
def _load_words() -> _Words:
    return _Words(**{name: frozenset(words) for name, words in _read()["words"].items()})


@functools.cache
def _load_index() -> _Index:
    boards = [_Entry(name, chip) for chip, names in _read()["boards"].items() for name in names]
    return _Index([*boards, *_read_devices(_DEVICES.read_text(encoding="utf-8"))], _load_words())


def _read_devices(text: str) -> Iterator[_Entry]:
    for line in text.splitlines():
        if not line.startswith("#"):
            device, chip, names, families, *_ = [*line.split("\t"), "", ""]
            alternatives = [part for name in names.split("|") for part in _list_alternatives(name)]
            for name in dict.fromkeys([*alternatives, *families.split("|")]):
                yield _Entry(name, chip, device)


def _list_alternatives(name: str) -> Iterator[str]:
    """Return a name and the names that it joins: ``Tesla C1060 / M1060``."""
    yield name
    parts = [part.strip() for part in name.split("/")]
    if len(parts) > 1:
        yield from (part for part in parts if any(character.isdigit() for character in part))


def find_chip(code: str) -> Chip | None:
    """Return a chip by the code of a list of devices, such as ``TU104B``; None: it is not known."""
    chips = load_chips()
    return chips.get(code) or chips.get(code[:-1])


def find_by_id(device: str) -> Card | None:
    """Return the card of a PCI device id, four hexadecimal digits; None: it is not known, or it is older than CUDA."""
    entry = _load_index().devices.get(device.lower())
    chip = find_chip(entry.code) if entry else None
    return _describe(entry, chip) if entry and chip else None


def find_by_tegra(code: str) -> Card | None:
    """Return the GPU of a Jetson by the code of its processor, such as ``tegra234``."""
    name = _read()["tegra"].get(code)
    return _describe(_Entry(_read()["boards"][name][0], name), load_chips()[name]) if name else None


def find_card(text: str) -> Card:
    """Return a card by its name, such as ``RTX 5090``, its PCI id, such as ``10de:2b85``, or a capability.

    Raises UsageError if no card has this name, if cards of several capabilities have it, or if it is of another maker.
    """
    plain = _plain(text)
    if capability := _read_capability(plain):
        return Card(capability=capability)
    if match := _PCI.fullmatch(plain):
        return _require(text, [entry] if (entry := _load_index().devices.get(match[1] or match[2])) else [])
    if maker := _find_maker(plain):
        raise _make_foreign(text, maker, _find_entries(plain))
    if plain in _UNNAMED:
        raise UsageError(
            f"{text[:60]!r} is no card's name",
            why="the driver is too old to know the card, or the card is not for sale yet",
            remedy="install a newer driver, or give the PCI id that `lspci -nn -d 10de:` prints: --gpu 10de:2b85",
        )
    return _require(text, _find_entries(plain))


def is_mig(name: str) -> bool:
    """Return whether a driver's name of a device is that of a MIG instance."""
    return bool(_MIG.search(name.lower()))


def is_profile(name: str) -> bool:
    """Return whether a driver's name of a device is that of a vGPU profile, such as ``GRID V100D-8C``."""
    plain, index, words = _plain(name), _load_index(), _load_words()
    match = _PROFILE.fullmatch(plain)
    if not match or index.spelled.get(words.spell(plain)):
        return False
    return bool(match[2] or index.spelled.get(words.spell(match[1])))


def find_note(name: str) -> str:
    """Return what is special about a card; empty if nothing is, or if the card is not known."""
    try:
        return find_card(name).note
    except UsageError:
        return ""


def _plain(text: str) -> str:
    return " ".join(_MARKS.sub(" ", text.lower()).split())


def _read_capability(plain: str) -> str:
    """Return the capability in ``8.6``, ``9.0a``, ``sm_103``, ``sm103`` or ``compute_90``; empty if it is none."""
    match = _BARE.fullmatch(plain)
    given = parse_capability(f"{match[1]}_{match[2]}" if match else plain)
    return given.number if given else ""


def _find_maker(plain: str) -> str:
    """Return the maker of a card that is not NVIDIA's; empty if the name is none of theirs."""
    if _load_index().spelled.get(_load_words().spell(plain)) or {*_WORD.findall(plain)} & {*_read()["own"]}:
        return ""
    for maker, patterns in _read()["others"].items():
        if any(re.search(rf"\b(?:{pattern})\b", plain) for pattern in patterns):
            return str(maker)
    return ""


def _find_entries(plain: str) -> Sequence[_Entry]:
    """Return the entries that a name may mean; the first way that finds any decides."""
    index, words = _load_index(), _load_words()
    name = _MIG.sub("", plain)
    if _CUT.search(name):
        start, line = words.spell(_CUT.sub("", name)), "geforce" if "geforce" in name else ""
        begun = [entry for key, cards in index.spelled.items() if start and key.startswith(start) for entry in cards]
        return [entry for entry in begun if line in entry.name.lower()]
    if _NUMBER.fullmatch(name):
        return []
    if cards := index.spelled.get(words.spell(name)) or _find_short(name):
        return cards
    if match := _PROFILE.fullmatch(name):
        return index.spelled.get(words.spell(match[1])) or (_find_short(match[1]) if match[2] else [])
    return []


def _find_short(name: str) -> list[_Entry]:
    index, words = _load_index(), _load_words()
    short, given = words.shorten(name), words.strict & {*words.split(name)}
    entries = index.short.get(short, [])
    if not entries and any(character.isdigit() for character in short):
        # A letter more, as in K40 and K40c.
        longer = [key for key in index.short if key.startswith(short) and key[len(short) :].isalpha()]
        entries = [entry for key in longer for entry in index.short[key]]
    return [entry for entry in entries if given <= {*words.split(_plain(entry.name)), _find_architecture(entry)}]


def _find_architecture(entry: _Entry) -> str:
    chip = find_chip(entry.code)
    return chip.architecture.lower() if chip else ""


def _require(text: str, entries: Sequence[_Entry]) -> Card:
    """Return the card that all entries are. Raises UsageError if there is none, or if they differ."""
    by_capability: dict[str, list[Card]] = defaultdict(list)
    for entry in entries:
        chip = find_chip(entry.code)
        card = _describe(entry, chip, text) if chip else Card(capability="", name=entry.name, device=entry.device)
        by_capability[card.capability].append(card)
    if not entries:
        raise _make_unknown(text)
    if [*by_capability] == [""]:
        raise _make_unserved(text, entries[0])
    if len(by_capability) > 1:
        raise _make_ambiguous(text, by_capability)
    return next(iter(by_capability.values()))[0]


def _describe(entry: _Entry, chip: Chip, text: str = "") -> Card:
    words = {*_WORD.findall(f"{_plain(text)} {_plain(entry.name)}")}
    platform = next(
        (place for place, row in _read()["platforms"].items() if chip.name in row["chips"] or {*row["words"]} & words),
        "",
    )
    note = _read()["notes"].get(chip.name, "")
    return Card(
        capability=chip.capability, name=entry.name, platform=platform, note=note, chip=chip, device=entry.device
    )


def _make_unserved(text: str, entry: _Entry) -> UsageError:
    if entry.code.startswith(tuple(_read()["before_cuda"])):
        return UsageError(
            f"{text[:60]!r} is older than CUDA, and TensorFlow cannot use it",
            why=f"its chip is {entry.code}",
            remedy="`toolkit up` runs on the processor",
        )
    return UsageError(
        f"the compute capability of {text[:60]!r} is not known",
        why=f"nothing is known of its chip, {entry.code}",
        remedy=f"give the capability that {_ASKING} prints in place of the name",
    )


def _make_foreign(text: str, maker: str, entries: Sequence[_Entry]) -> UsageError:
    other = f"; if NVIDIA's is meant, write its whole name: {entries[0].name}" if entries else ""
    return UsageError(
        f"{text[:60]!r} is not an NVIDIA card",
        why=f"it is the name of a product of {maker}",
        remedy=f"TensorFlow's CUDA builds need an NVIDIA card; without one, `toolkit up` runs on the processor{other}",
    )


def _make_ambiguous(text: str, cards: Mapping[str, Sequence[Card]]) -> UsageError:
    numbers = sorted(filter(None, cards), key=lambda number: [int(part) for part in number.split(".")])
    shown = {number: [*dict.fromkeys(_show(card) for card in cards[number])][:3] for number in numbers}
    listed = f"{', '.join(numbers[:-1])} and {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]} and of none"
    device = next((card.device for card in cards[numbers[-1]] if card.device), "2b85")
    return UsageError(
        f"this name stands for cards of compute capability {listed}: {text[:60]!r}",
        why="; ".join(f"{number}: {', '.join(names)}" for number, names in shown.items()),
        remedy=f"give the capability, such as --gpu {numbers[-1]}, or the PCI id that "
        f"`lspci -nn -d 10de:` prints, such as --gpu 10de:{device}",
    )


def _show(card: Card) -> str:
    return f"{_shorten(card.name)}{f' ({card.chip.name})' if card.chip else ''}"


def _shorten(name: str) -> str:
    return name.removeprefix("NVIDIA ")


def _make_unknown(text: str) -> UsageError:
    near = list(_suggest(text))
    asked = f"give the capability that {_ASKING} prints, or the PCI id that `lspci -nn -d 10de:` prints"
    return UsageError(
        f"no card of this name is known: {text[:60]!r}",
        remedy=(f"did you mean {' or '.join(near)}? Else " if near else "") + asked,
    )


def _suggest(text: str) -> Iterator[str]:
    """Return names that are like a text, each with its capability."""
    index, words = _load_index(), _load_words()
    plain = _plain(text)
    number = f"{plain[:-1]}.{plain[-1:]}"
    if plain.isdigit() and number in {chip.capability for chip in load_chips().values()}:
        yield number
    near = difflib.get_close_matches(words.spell(plain), index.spelled, 6, 0.7)
    shown: set[str] = set()
    for entries in (index.spelled[key] for key in near):
        capabilities = {chip.capability if (chip := find_chip(entry.code)) else "" for entry in entries}
        name = _shorten(entries[0].name).removeprefix("GeForce ")
        if len(capabilities) == 1 and "" not in capabilities and len(shown) < 3 and name not in shown:
            shown.add(name)
            yield f"{name} ({capabilities.pop()})"
