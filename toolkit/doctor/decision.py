"""Decides which TensorFlow fits a machine: a published wheel, a graft, a build, or the CPU set.

`decide` is a pure function of the machine, the user's wishes and the version table. It starts no program and reads no
device. `toolkit advise` prints its result, `toolkit doctor` checks it, and every command that runs TensorFlow carries
it out. It takes the first of these that is left:

1. what runs: machine code for the card, or a graft
2. what the driver is new enough for, exactly or by minor-version compatibility
3. a version without a published security advisory
4. a set that is locked, and for a build a toolchain that was proven
5. the newest
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.checks.gpu_rules import find_coverage, parse_capability
from toolkit.checks.nvidia import find_wheels
from toolkit.doctor.cards import find_card, find_note
from toolkit.doctor.drivers import RUNNING, DriverRules, Fit, is_version
from toolkit.doctor.machine import Device, Machine
from toolkit.versions import grafts, numbers, rules
from toolkit.versions.rules import VersionRequest
from toolkit.versions.set import NONE, OPEN, TITLES, VERSIONS, Set
from toolkit.versions.sets import find_locked
from toolkit.versions.settings import EngineName, is_contained
from toolkit.versions.table import Locked, Table, load_table

Kind = Literal["published", "graft", "build", "cpu"]
AUTO = "auto"
"""The value of `--card` for the cards of this machine."""

WITHOUT_GPU = frozenset({"not-passed", "wsl1", "wsl2-without-driver"})
"""Faults that a machine without any GPU has too."""

_WITHOUT_DRIVER = frozenset({"no-driver", "nouveau", "wsl1", "wsl2-without-driver"})
"""Faults of machines that have no NVIDIA driver, so that there is none to judge."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to have a TensorFlow."""

    kind: Kind
    versions: Set  # of the run-time set; of a build, a VersionRequest
    named: Set = OPEN  # those that its command names
    made_for: tuple[str, ...] = ()  # compute capabilities for which a graft makes machine code
    by_card: bool = True  # of a graft: whether the card alone, without its driver, tells that it is needed
    reason: str  # one sentence

    @property
    def command(self) -> str:
        flags = self.named.flags()
        cards = tuple(f"--compute-capability {item}" for item in self.made_for)
        if self.kind == "build":
            return " ".join(("toolkit build-wheel", *flags))
        if self.kind == "graft" and (len(cards) > 1 or not self.by_card):
            return " ".join(("toolkit graft", *cards, *flags))
        # An installation makes the graft for one card.
        card = {"cpu": (f"--card {NONE}",), "graft": (f"--card {''.join(self.made_for)}",)}.get(self.kind, ())
        return " ".join(("toolkit install --into my-env", *card, *flags))

    def describe(self) -> str:
        """Return what is installed or made, in words."""
        if self.kind == "cpu":
            return f"TensorFlow {self.versions.tensorflow} on the processor"
        how = {"published": "as published", "graft": "grafted in minutes", "build": "built in hours"}[self.kind]
        return f"{self.versions.describe()}, {how}"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to run on a machine, and why."""

    way: Way
    others: tuple[Way, ...] = ()  # what else serves the cards
    driver: Fit
    warnings: tuple[str, ...] = ()
    remedy: str = ""  # what to do first; empty if nothing
    devices: tuple[Device, ...] = ()  # the cards that it is for, or that no set is for
    capabilities: tuple[str, ...] = ()  # of these cards, lowest first, each once
    visible: str = ""  # numbers of the cards that it is for, as CUDA_VISIBLE_DEVICES has them; empty: it is for all
    on_host: bool = False  # whether it must run in no container, because containers get no GPU
    made: bool = False  # whether the wheel that its way makes is finished and here

    @property
    def ways(self) -> tuple[Way, ...]:
        return (self.way, *self.others)

    @property
    def versions(self) -> Set:
        return self.way.versions

    @property
    def uses_gpu(self) -> bool:
        """Whether a command uses the GPU now: nothing has to be built, and the driver is not in the way."""
        return (self.made or self.way.kind in {"published", "graft"}) and self.driver in RUNNING

    def take_wheel(self) -> "Decision":
        """Return the decision where the wheel that it makes is finished."""
        return replace(self, made=True, warnings=tuple(line for line in self.warnings if line != _UNTIL_BUILT))

    @property
    def grafted(self) -> tuple[str, ...]:
        """The capabilities for which a graft has to be made."""
        return self.way.made_for

    def name_devices(self) -> str:
        return " and ".join(dict.fromkeys(device.name for device in self.devices))

    def lines(self, *, warns: bool = True) -> list[str]:
        """Return what to do first, and if it ``warns`` what else to know, one line each."""
        return [*([f"first: {self.remedy}"] if self.remedy else []), *(self.warnings if warns else ())]

    def to_json(self) -> dict[str, Any]:
        return {
            "way": self.way.kind,
            **{name: getattr(self.versions, name) for name in VERSIONS},
            "capability": "".join(self.capabilities[-1:]),
            "driver": self.driver,
            "reason": self.way.reason,
            "warnings": [*self.warnings],
            "remedy": self.remedy,
        }


def decide(machine: Machine, asked: Set = OPEN, *, card: str = AUTO, table: Table | None = None) -> Decision:
    """Return what to run on a machine. What was not asked for is chosen.

    ``card``: auto for those of the machine, none for the processor, or the name or capability of one. Raises
    UnsupportedError, with the nearest that works, if what was asked for does not run there. Raises UsageError if it is
    no version or no card.
    """
    table = table or load_table()
    if card in {AUTO, NONE}:
        return _Decider(table=table, machine=machine, asked=asked, card=card).decide()
    named = name_card(machine, card)
    decision = _Decider(table=table, machine=named, asked=asked).decide()
    same = [number for number, device in enumerate(machine.devices) if device.capability == named.devices[0].capability]
    return replace(decision, visible=_list_visible(same, machine))


def name_card(machine: Machine, card: str) -> Machine:
    """Return the machine with the named card alone. It keeps the driver if the machine has a card of that capability.

    Raises UsageError if no such card is known.
    """
    known = find_card(card)
    same = [device for device in machine.devices if device.capability == known.capability]
    device = same[0] if same else Device(name=card, capability=known.capability, platform=known.platform)
    return replace(
        machine,
        devices=(device,),
        fault=machine.fault if same else None,
        platform=known.platform or machine.platform,
        system=machine.system if same else "linux",
    )


def _explain_unknown(device: Device) -> str:
    """Say why the capability of a card is not known, and how to give it."""
    try:
        find_card(device.name)
        reason = f"nothing tells the compute capability of {device.name[:60]!r}"
    except UsageError as error:
        reason = f"{error.what}{f' ({error.why})' if error.why else ''}"
    return f"{reason}: give the card's capability by --card, such as --card 7.5"


def describe_card(device: Device) -> str:
    """Return ``Tesla T4 (7.5)``."""
    return f"{device.name} ({device.capability})" if device.capability else device.name


def describe_cards(devices: Sequence[Device]) -> str:
    """Return ``2 x Tesla T4 (7.5), driver 560.35.03``."""
    named = []
    for device in dict.fromkeys(devices):
        count = [*devices].count(device)
        named.append(f"{f'{count} x ' if count > 1 else ''}{describe_card(device)}")
    driver = next((device.driver for device in devices if device.driver), "")
    return f"{', '.join(named) or 'no NVIDIA GPU'}{f', driver {driver}' if driver else ''}"


@dataclass(frozen=True, kw_only=True)
class _Card:
    """A card with the way that serves it."""

    index: int  # its number, as CUDA_VISIBLE_DEVICES counts
    device: Device
    kind: Kind

    @property
    def plain(self) -> str:
        return numbers.strip_suffix(self.device.capability)


@dataclass(frozen=True, kw_only=True)
class _Decider:
    table: Table
    machine: Machine
    asked: Set
    card: str = AUTO

    @property
    def drivers(self) -> DriverRules:
        return DriverRules(table=self.table, machine=self.machine)

    def decide(self) -> Decision:
        machine = self.machine
        if self.card == NONE:
            return self._choose_cpu("the processor was asked for", driver="n/a")
        if machine.system == "jetson":
            return self._decide_jetson()
        cards = [self._classify(index, device) for index, device in enumerate(machine.devices)]
        if cards and all(card.kind == "cpu" for card in cards):
            return self._refuse_cards(cards)
        if machine.fault:
            return self._report_fault()
        if not cards:
            return self._choose_cpu("this machine has no NVIDIA GPU", driver="n/a")
        served = [card for card in cards if card.kind in {"published", "graft"}]
        return self._use_published(cards, served) if served else self._build(cards)

    # ways

    def _classify(self, index: int, device: Device) -> _Card:
        return _Card(index=index, device=device, kind=self._find_kind(device))

    def _find_kind(self, device: Device) -> Kind:
        table, capability = self.table, device.capability
        place = table.platform(self.machine.platform)
        if place.gpu_code and not parse_capability(capability):
            return "published"  # most cards run it, and nothing else is known of this one
        plain = numbers.strip_suffix(capability)
        coverage = find_coverage(table.published_code.capabilities, plain) if place.gpu_code and plain else None
        if coverage and coverage.is_native:
            return "graft" if self._cannot_compile(device, plain) else "published"
        if coverage:
            return "graft" if any(plain in row.capabilities for row in table.cuda_rows.values()) else "published"
        try:
            return "build" if plain and self._plan_build((plain,), relaxed=True) else "cpu"
        except UnsupportedError:
            return "cpu"

    def _cannot_compile(self, device: Device, plain: str) -> bool:
        """Return whether the driver runs published wheels, but is too old for the kernels that are PTX for the card.

        Minor-version compatibility does not cover PTX (CUDA Compatibility, section on limitations).
        """
        code = self.table.published_code
        return not _has_machine_code(code.generated, plain) and self.drivers.compare(device, code.cuda) == "minor"

    def _use_published(self, cards: Sequence[_Card], served: Sequence[_Card]) -> Decision:
        """Take a published wheel, grafted if one of the cards needs that, for all cards that it can serve."""
        running = [card for card in served if self._compare_alone(card)[0] in RUNNING]
        used = running or list(served)
        grafted = [card for card in used if card.kind == "graft"]
        chosen = self._choose_graft(used) if grafted else self._choose_set(used)
        if chosen is None:
            oldest = min((item.glibc for item in self.table.published if item.glibc), key=numbers.parse)
            return self._choose_cpu(
                f"the published wheels need glibc {oldest}, and this machine has {self.machine.glibc}",
                driver=self.drivers.compare(used[0].device, self.table.default.cuda),
            )
        fit = self._compare_all(used, chosen.cuda)
        versions = chosen.choose(self._choose_python(chosen.python))
        way = Way(
            kind="graft" if grafted else "published",
            versions=versions,
            named=self.asked.without_libraries() if grafted else versions,
            made_for=_list_capabilities(grafted),
            by_card=not any(self._has_code(card) for card in grafted),
            reason=self._explain_published(used, grafted, chosen.cuda, fit),
        )
        decision = Decision(
            way=way,
            driver=fit,
            warnings=(
                *self._warn_of_set(chosen, grafted=bool(grafted)),
                *self._warn_of_cards(cards, used, grafted, fit),
            ),
            remedy=self.drivers.find_remedy(used[0].device, chosen.cuda, fit),
            devices=tuple(card.device for card in used),
            capabilities=_list_capabilities(used),
            visible=_list_visible([card.index for card in used], self.machine),
            on_host=self._is_on_host,
        )
        return replace(decision, others=tuple(self._find_others(decision)))

    def _choose_set(self, cards: Sequence[_Card]) -> Locked | None:
        """Return the best locked set for cards; None if the machine's C library is too old for all of them.

        Raises UnsupportedError if none is what was asked for.
        """
        capabilities = [card.plain for card in cards if card.plain]
        items = [item for item in self._list_sets() if self._fits(item, capabilities)]
        wished = [item for item in items if item.serves(self.asked)]
        if items and not wished:
            raise self._make_unsupported(items, cards)
        usable = [item for item in wished if self._has_glibc(item)]
        return max(usable, key=lambda item: self._rank(item, cards), default=None)

    def _list_sets(self) -> list[Locked]:
        """Return the sets of the table for CUDA, and those that were asked for if `toolkit lock` has made them."""
        items = [item for item in self.table.published if item.cuda]
        wished = (item.choose(self._choose_python(item.python)).merge(self.asked) for item in items)
        locked = (find_locked(self.table, each) for each in wished)
        return [*dict.fromkeys([*items, *filter(None, locked)])]

    def _fits(self, item: Locked, capabilities: Sequence[str]) -> bool:
        asked = VersionRequest(
            **item.choose(self.table.default.python).named(),
            capabilities=tuple(f"sm_{capability.replace('.', '')}" for capability in capabilities),
            base=self.table.default_base.codename,
        )
        return not rules.find_refused(self.table, asked)

    def _has_glibc(self, item: Locked) -> bool:
        """Return whether the machine's C library is new enough. A container brings its own."""
        if not (self._is_on_host and self.machine.glibc and item.glibc):
            return True
        return numbers.parse(self.machine.glibc, "glibc")[:2] >= numbers.parse(item.glibc)

    @property
    def _is_on_host(self) -> bool:
        """Whether it runs in no container: because that was chosen, or because containers get no GPU."""
        machine = self.machine
        return machine.engine == "host" or (machine.engine == "" and machine.has_nvidia_runtime is False)

    def _rank(self, item: Locked, cards: Sequence[_Card]) -> tuple[bool, bool, int, int]:
        return (
            self._compare_all(cards, item.cuda) in RUNNING,
            not self.table.list_advisories(item.tensorflow),
            numbers.to_number(item.tensorflow),
            numbers.to_number(item.cuda),
        )

    def _make_unsupported(self, items: Sequence[Locked], cards: Sequence[_Card]) -> UnsupportedError:
        asked = self.asked
        for name, value in asked.named().items():
            numbers.parse(value, TITLES[name])
        if asked.tensorflow:
            self.table.tensorflow(asked.tensorflow)  # raises if it is not known

        def distance(item: Locked) -> tuple[int, ...]:
            pairs = ((wanted, getattr(item, name)) for name, wanted in replace(asked, python="").named().items())
            return tuple(abs(numbers.to_number(wanted) - numbers.to_number(other)) for wanted, other in pairs if other)

        nearest = min(items, key=lambda item: (*distance(item), -numbers.to_number(item.tensorflow)))
        python = numbers.find_nearest(asked.python, nearest.python) if asked.python else self.table.default.python
        named = describe_card(cards[0].device)
        return UnsupportedError(
            f"for {named} there is no locked set with a published wheel and {' '.join(asked.flags())}",
            why="locked: " + "; ".join(dict.fromkeys(item.choose("").describe() for item in items)),
            remedy=f"the nearest: {' '.join(nearest.choose(python).flags())}; `toolkit lock` makes others, and "
            "`toolkit build-wheel` builds a wheel for them",
        )

    def _choose_graft(self, cards: Sequence[_Card]) -> Locked:
        """Return the set of a grafted wheel for cards. Raises UnsupportedError if it is not what was asked for."""
        table, asked = self.table, self.asked
        sets = [item for item in table.published if item.cuda]
        fitting = [item for item in sets if item.serves(asked.without_libraries())]
        if not fitting:
            raise self._make_unsupported(sets, cards)
        base = max(
            fitting,
            key=lambda item: (
                not table.list_advisories(item.tensorflow),
                numbers.to_number(item.cuda),
                numbers.to_number(item.tensorflow),
            ),
        )
        capabilities = [card.plain for card in cards if card.kind == "graft"]
        chosen = grafts.choose(table, base.choose(self._choose_python(base.python)), capabilities)
        if not chosen.keeps(asked.libraries):
            named = ", ".join(describe_card(card.device) for card in cards if card.kind == "graft")
            raise UnsupportedError(
                f"a graft for {named} has {chosen.describe_libraries()}, and other versions were asked for: "
                f"{' '.join(asked.flags())}",
                why=f"CUDA {chosen.cuda} is the first of the locked sets that knows the card",
                remedy=f"the nearest: {' '.join(chosen.flags())}",
            )
        return find_locked(table, chosen) or base.take(chosen.libraries)

    def _build(self, cards: Sequence[_Card]) -> Decision:
        """Name the build for the cards that published wheels have no code for."""
        place = self.table.platform(self.machine.platform)
        used = [card for card in cards if card.kind == "build"]
        plan = self._plan_build(_list_capabilities(used))
        if plan is None:
            raise AssertionError("a card that can be built for has a build")
        fit = self._compare_all(used, plan.cuda)
        named = _join(describe_card(card.device) for card in used)
        lacking = f"for {named}" if place.gpu_code else f"for a GPU on {place.shown}"
        reason = f"published wheels have no code {lacking}; a build of hours has it"
        of_place = [f"published wheels for {place.shown} have no GPU code ({', '.join(place.issues)})"]
        return Decision(
            way=_build(plan, reason + self.drivers.explain(used[0].device, plan.cuda, fit)),
            others=(self._name_cpu(),),
            driver=fit,
            warnings=(
                *self._warn_of_build(plan),
                *self._warn_of_cards(cards, used, [], fit),
                *(of_place if place.issues else []),
                _UNTIL_BUILT,
            ),
            remedy=self.drivers.find_remedy(used[0].device, plan.cuda, fit),
            devices=tuple(card.device for card in used),
            capabilities=_list_capabilities(used),
            visible=_list_visible([card.index for card in used], self.machine),
        )

    def _plan_build(self, capabilities: Sequence[str], *, relaxed: bool = False) -> VersionRequest | None:
        """Return the set to build for cards; None if no set of the table can be.

        Raises UnsupportedError if it is not what was asked for, unless the question is ``relaxed``.
        """
        table, wanted = self.table, OPEN if relaxed else self.asked
        asked = replace(wanted, platform=self.machine.platform)
        default = table.cuda_rows[table.default.cuda]
        if not asked.cuda and not set(capabilities) <= {*default.capabilities}:
            knowing = [
                row.version
                for row in table.cuda_rows.values()
                if row.parts and set(capabilities) <= {*row.capabilities} and self._is_of_board(row.version)
            ]
            if not knowing:
                return None
            first = knowing[0].rpartition(".")[0]
            cuda = [version for version in knowing if version.startswith(f"{first}.")][-1]
            newest = max(
                (item for item in table.published if item.cuda), key=lambda item: numbers.to_number(item.tensorflow)
            )
            asked = replace(newest.choose(""), cuda=cuda).merge(asked)
        request = rules.read(table, asked, capabilities)
        suggestion = rules.suggest(table, request)
        if suggestion and not suggestion.keeps(wanted):
            reasons = rules.find_reasons(table, request)
            raise UnsupportedError(
                reasons[0] if reasons else f"no build for this card has {' '.join(wanted.flags())}",
                why="; ".join(reasons[1:]),
                remedy=f"the nearest: {' '.join(suggestion.flags())}",
            )
        return suggestion

    def _is_of_board(self, cuda: str) -> bool:
        row = self.table.jetson.get(self.machine.jetson_release) if self.machine.system == "jetson" else None
        return row is None or cuda.startswith(f"{row.cuda}.") or cuda == row.cuda

    def _decide_jetson(self) -> Decision:
        """Return the decision for a Jetson, which has the driver of its JetPack and the CUDA that came with it."""
        machine, row = self.machine, self.table.jetson.get(self.machine.jetson_release)
        device = next(iter(machine.devices), None)
        capability = numbers.strip_suffix(device.capability) if device and parse_capability(device.capability) else ""
        capability = capability or (row.capability if row else "")
        if row and not row.capability:
            later = "" if capability and capability != "8.7" else "an Orin can have JetPack 6, whose CUDA is new enough"
            reason = (
                f"the JetPack of Jetson Linux {row.release} has CUDA {row.cuda}, which is older than all of the table"
            )
            return self._choose_cpu(reason, driver="n/a", remedy=later)
        try:
            plan = self._plan_build((capability,)) if capability else None
        except UnsupportedError:
            if self.asked.named():
                raise
            plan = None
        if plan is None:
            return self._choose_cpu("no set of the table is for this Jetson", driver="n/a")
        note = find_note(device.name) if device else ""
        usual = "build on the board, with the CUDA of its JetPack: NVIDIA's packages for servers do not fit a Jetson"
        named = describe_card(device) if device else f"a Jetson ({capability})"
        return Decision(
            way=_build(plan, f"published wheels have no code for {named}, and a build on the board has it"),
            others=(self._name_cpu(),),
            driver="n/a",
            warnings=(note or usual, *self._warn_of_build(plan), _UNTIL_BUILT),
            devices=(device,) if device else (),
            capabilities=(capability,),
        )

    def _refuse_cards(self, cards: Sequence[_Card]) -> Decision:
        """Return the CPU set, because no TensorFlow of the table runs on any of the cards."""
        device = cards[0].device
        branch = self.drivers.find_branch(device)
        ends = f", and {branch.last} is the last branch of its drivers" if branch else ""
        newer = f"install no newer driver for it: branch {branch.next} and later do not know the card" if branch else ""
        named = _join(dict.fromkeys(describe_card(card.device) for card in cards))
        refused = self._choose_cpu(f"no TensorFlow of the table runs on {named}{ends}", driver="n/a")
        warnings = (*([newer] if branch and not branch.install else []), *refused.warnings)
        return replace(refused, devices=tuple(card.device for card in cards), warnings=warnings)

    def _report_fault(self) -> Decision:
        """Return the CPU set, because the driver does not answer, and say what to do first."""
        fault = self.machine.fault
        if fault is None:
            raise AssertionError("there is no fault")
        later: tuple[Way, ...] = ()
        if self.machine.devices:
            after = replace(self, machine=replace(self.machine, fault=None)).decide()
            later = (after.way,) if after.way.kind != "cpu" else ()
        driver: Fit = "n/a" if fault.id in _WITHOUT_DRIVER else "unknown"
        return replace(self._choose_cpu(fault.cause, driver=driver, remedy=fault.remedy), others=later)

    def _choose_cpu(self, reason: str, *, driver: Fit, remedy: str = "") -> Decision:
        way = self._name_cpu(reason)
        known = self._warn_of_advisories(way.versions.tensorflow) if self.asked.tensorflow else ()
        return Decision(way=way, driver=driver, remedy=remedy, warnings=(*self._warn_of_host(), *known))

    def _name_cpu(self, reason: str = "it runs on the processor at once") -> Way:
        """Return the CPU set: that of the TensorFlow asked for, or the newest that the machine can have."""
        asked = self.asked
        items = [item for item in self.table.published if not item.cuda and self._has_glibc(item)]
        named = [item for item in items if asked.tensorflow in {"", item.tensorflow}]
        best = max(
            named or items,
            key=lambda item: (not self.table.list_advisories(item.tensorflow), numbers.to_number(item.tensorflow)),
            default=None,
        )
        tensorflow = asked.tensorflow or (best.tensorflow if best else self.table.default.tensorflow)
        versions = Set(tensorflow=tensorflow, python=self._choose_python(best.python if best else ()))
        return Way(kind="cpu", versions=versions, named=Set(tensorflow=asked.tensorflow), reason=reason)

    # the driver

    def _compare_alone(self, card: _Card) -> tuple[Fit, str]:
        """Compare the driver of a card with the best set for this card alone, and return its CUDA too."""
        chosen = self._choose_graft([card]) if card.kind == "graft" else self._choose_set([card])
        return (self.drivers.compare(card.device, chosen.cuda), chosen.cuda) if chosen else ("unknown", "")

    def _compare_all(self, cards: Sequence[_Card], cuda: str) -> Fit:
        """Return what the driver is for the least of the cards."""
        fits = [self.drivers.compare(card.device, cuda) for card in cards]
        return max(fits, key=_ORDER.index)

    # words

    def _explain_published(self, used: Sequence[_Card], grafted: Sequence[_Card], cuda: str, fit: Fit) -> str:
        driver = self.drivers.explain(used[0].device, cuda, fit)
        if grafted:
            named = _join(dict.fromkeys(describe_card(card.device) for card in grafted))
            if self._has_code(grafted[0]):
                old = grafted[0].device.driver
                return (
                    f"elementwise kernels of published wheels are PTX for {named}, which driver {old} is too old to "
                    f"compile; a graft makes machine code of it in minutes{driver}"
                )
            return f"published wheels have only PTX for {named}, of which a graft makes machine code in minutes{driver}"
        named = _join(dict.fromkeys(describe_card(card.device) for card in used))
        first = used[0]
        if not first.plain:
            return f"the capability of {named} is not known, and published wheels run on most cards{driver}"
        kind = "machine code" if self._has_code(first) else "PTX, which its driver compiles,"
        return f"published wheels have {kind} for {named}{driver}"

    def _has_code(self, card: _Card) -> bool:
        """Return whether published wheels have machine code for a card, apart from kernels that MLIR generated."""
        return _has_machine_code(self.table.published_code.capabilities, card.plain)

    def _warn_of_set(self, chosen: Locked, *, grafted: bool) -> Iterator[str]:
        table, asked = self.table, self.asked
        versions = chosen.choose(self._choose_python(chosen.python))
        if grafted and not find_locked(table, versions):
            yield f"no run-time set is locked for this graft: `toolkit lock {' '.join(versions.flags())}` makes it"
        yield from self._warn_of_advisories(chosen.tensorflow)
        built = table.published_code.cuda
        if asked.cuda and asked.cuda != built:
            yield (
                f"the published wheel was built with CUDA {built} and runs with the libraries of {asked.cuda}; only a "
                f"build links against {asked.cuda}"
            )
        yield from self._warn_of_host(chosen)

    def _warn_of_advisories(self, tensorflow: str) -> Iterator[str]:
        if line := rules.warn_of_advisories(self.table, tensorflow):
            yield line

    def _warn_of_host(self, chosen: Locked | None = None) -> Iterator[str]:
        """Warn of what of this machine is too old for published wheels, and for a set outside of a container."""
        machine, table = self.machine, self.table
        if machine.lacks_avx:
            cuda = "" if chosen else f" --cuda {NONE}"
            yield (
                "this processor has no AVX, which published wheels need: "
                f"`toolkit build-wheel{cuda} --cpu-target x86-64-v2` builds one that does without"
            )
        if is_contained(machine.engine) and machine.has_nvidia_runtime is not False:
            return
        if chosen and machine.has_nvidia_runtime is False:
            yield (
                "Docker has no NVIDIA runtime, so that containers see no GPU: use --engine host, or install NVIDIA's "
                "container toolkit"
            )
        if is_contained(machine.engine):
            return
        pythons = chosen.python if chosen else table.published[-1].python
        if machine.python and _shorten_python(machine.python) not in pythons:
            yield (
                f"Python {_shorten_python(machine.python)} has no locked set: install Python {_join(pythons, 'or')}, "
                "or use --engine docker"
            )
        if machine.glibc and is_version(machine.glibc):
            yield from self._warn_of_glibc(chosen)

    def _warn_of_glibc(self, chosen: Locked | None) -> Iterator[str]:
        here = numbers.parse(self.machine.glibc, "glibc")[:2]
        if chosen and chosen.glibc and here < numbers.parse(chosen.glibc):
            older = [item for item in self.table.published if item.cuda and item.glibc]
            older = [item for item in older if here >= numbers.parse(item.glibc)]
            most = f", which takes {older[-1].tensorflow} at most" if older else ""
            containers = filter(is_contained, get_args(EngineName))
            yield (
                f"TensorFlow {chosen.tensorflow} needs glibc {chosen.glibc}, and this machine has "
                f"{self.machine.glibc}: use --engine {_join(containers, 'or')} in place of the host engine{most}"
            )
        elif here < numbers.parse(self.table.job_glibc):
            yield (
                f"the packages of the training job need glibc {self.table.job_glibc}, and this machine has "
                f"{self.machine.glibc}: train in a container"
            )

    def _warn_of_build(self, plan: VersionRequest) -> Iterator[str]:
        yield from self._warn_of_advisories(plan.tensorflow)
        if untried := self.table.platform(plan.platform).untried:
            yield untried
        if not find_wheels(plan.cuda):
            yield f"there is no run-time set and no image for CUDA {plan.cuda}"

    def _explain_left(self, card: _Card) -> str:
        """Return why a card is left out."""
        named, driver = describe_card(card.device), card.device.driver
        if card.kind == "cpu":
            return f"no TensorFlow of the table runs on {named}"
        if card.kind == "build":
            return f"published wheels have no code for {named}"
        fit, cuda = self._compare_alone(card)
        if fit == "too-old":
            return f"driver {driver} is too old for {named}, which takes {self.drivers.name_least(card.device, cuda)}"
        return f"driver {driver} is too new for {named}"

    def _warn_of_dropped(self, left: Sequence[_Card]) -> Iterator[str]:
        """Warn of cards beside those that are used, which the driver that these need does not know."""
        for card in left:
            branch = self.drivers.find_branch(card.device)
            if branch and not branch.install:
                yield (
                    f"{describe_card(card.device)} stops working with the newer driver, and so does a screen on it: "
                    f"{branch.last} is the last branch that knows it"
                )

    def _warn_of_cards(
        self, cards: Sequence[_Card], used: Sequence[_Card], grafted: Sequence[_Card], fit: Fit
    ) -> Iterator[str]:
        machine = self.machine
        left = [card for card in cards if card not in used]
        if left:
            reasons = _join(dict.fromkeys(self._explain_left(card) for card in left))
            yield (
                f"{reasons}: what the toolkit starts does not see it, and programs of your own need "
                f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(str(card.index) for card in used)}"
            )
        if fit == "too-old":
            yield from self._warn_of_dropped(left)
        for driver in dict.fromkeys(card.device.driver for card in used if card.device.driver.isdigit()):
            yield f"driver {driver} is taken for the first release of its branch: name it in full, as nvidia-smi does"
        if grafted and len({card.plain for card in used}) > 1:
            yield "one grafted wheel serves all of these cards: it keeps the machine code for the others"
        yield from (dict.fromkeys(_explain_unknown(card.device) for card in used if not card.plain))
        for branch in dict.fromkeys(filter(None, (self.drivers.find_branch(card.device) for card in used))):
            those = dict.fromkeys(card.device.name for card in used if self.drivers.find_branch(card.device) == branch)
            yield (
                f"{branch.last} is the last branch of drivers for {_join(those)}: do not install {branch.next} or later"
            )
        if machine.system == "wsl2":
            yield "WSL2 uses the driver of Windows: update it there, and install none in Linux"
        if any(card.device.is_mig for card in used):
            yield (
                "MIG is on: a process sees one instance and its memory alone; CUDA_VISIBLE_DEVICES=MIG-… names it, and "
                "`nvidia-smi -L` lists them"
            )
        if any(card.device.is_virtual for card in used):
            yield "this is a vGPU: driver and licence are the host's, and CUDA stops without a licence"
        yield from (filter(None, dict.fromkeys(find_note(card.device.name) for card in used)))
        if not grafted and used:
            yield from self._warn_of_generated(used)

    def _warn_of_generated(self, used: Sequence[_Card]) -> Iterator[str]:
        """Warn of a card for which the kernels that MLIR generated are PTX."""
        code = self.table.published_code
        partly = [card for card in used if card.kind == "published" and card.plain]
        partly = [card for card in partly if not _has_machine_code(code.generated, card.plain)]
        if not partly:
            return
        yield (
            f"the elementwise kernels for {describe_card(partly[0].device)} are PTX of CUDA {code.cuda}: "
            "the driver compiles them once, which a graft spares it"
        )

    def _find_others(self, decision: Decision) -> Iterator[Way]:
        """Yield what else serves the cards: a graft that is not needed, a build of these versions, the processor."""
        if not decision.uses_gpu:
            yield self._name_cpu("it runs on the processor until the driver is changed")
        code, capabilities = self.table.published_code, decision.capabilities
        texts = tuple(name for name in capabilities if not _has_machine_code(code.generated, name))
        if texts and not decision.grafted:
            try:
                grafts.list_knowing(self.table, texts)
            except UnsupportedError:
                texts = ()
        if texts and not decision.grafted:
            why = "it has machine code for the kernels that are PTX in the published wheel"
            yield Way(
                kind="graft",
                versions=decision.versions,
                named=self.asked.without_libraries(),
                made_for=texts,
                by_card=False,
                reason=why,
            )
        if built := self._find_same_build(decision):
            same = built.cuda == decision.versions.cuda
            linked = f" and links against CUDA {built.cuda}" if same else ""
            yield _build(built, f"a build of hours has machine code for the card alone{linked}")
        if decision.uses_gpu:
            yield self._name_cpu()

    def _find_same_build(self, decision: Decision) -> VersionRequest | None:
        """Return the build of the same TensorFlow and, if it can be, of the same CUDA and cuDNN."""
        if not decision.capabilities:
            return None
        wanted = replace(decision.versions, platform=self.machine.platform)
        suggestion = rules.suggest(self.table, rules.read(self.table, wanted, decision.capabilities))
        return suggestion if suggestion and suggestion.tensorflow == wanted.tensorflow else None

    # commands

    def _choose_python(self, known: Sequence[str]) -> str:
        """Return the Python that was asked for, that of the host engine, or the usual one."""
        here = _shorten_python(self.machine.python)
        usual = here if self.machine.engine == "host" and here in known else self.table.default.python
        return self.asked.python or usual


_UNTIL_BUILT = "until the wheel is built, everything runs on the processor"
_ORDER: tuple[Fit, ...] = ("n/a", "exact", "minor", "unknown", "too-new", "too-old")


def _list_visible(indexes: Sequence[int], machine: Machine) -> str:
    """Return the numbers of some cards of a machine; empty if they are all of its cards."""
    return ",".join(map(str, indexes)) if len(indexes) < len(machine.devices) else ""


def _has_machine_code(built: Iterable[str], capability: str) -> bool:
    coverage = find_coverage(built, capability)
    return coverage is not None and coverage.is_native


def _shorten_python(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _list_capabilities(cards: Sequence[_Card]) -> tuple[str, ...]:
    return tuple(sorted({card.plain for card in cards if card.plain}, key=numbers.order))


def _build(plan: VersionRequest, reason: str) -> Way:
    return Way(kind="build", versions=plan, named=plan, reason=reason)


def _join(words: Iterable[str], last: str = "and") -> str:
    named = [*words]
    return f"{', '.join(named[:-1])} {last} {named[-1]}" if len(named) > 1 else "".join(named)
