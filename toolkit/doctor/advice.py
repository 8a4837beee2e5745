"""Says which TensorFlow runs on a machine or a card: prints the decision, and checks it for `toolkit doctor`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.base.findings import Finding
from toolkit.checks.gpu_rules import Coverage, find_coverage
from toolkit.doctor.cards import find_card, find_note
from toolkit.doctor.decision import AUTO, Decision, Way, decide, describe_cards
from toolkit.doctor.drivers import DriverRules
from toolkit.doctor.machine import Device, Machine
from toolkit.doctor.reading import read_machine
from toolkit.engine.effort import estimate_build
from toolkit.versions import numbers, rules
from toolkit.versions.matrix import find_evidence
from toolkit.versions.rules import VersionRequest
from toolkit.versions.set import Set
from toolkit.versions.settings import Settings, find_own_platform
from toolkit.versions.table import PlatformRow, Table, load_table
from train.cores import count_cores


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The decision for one card, in the names that `advise --json` has for each GPU."""

    card: str
    capability: str
    platform: str  # ``linux/arm64``
    driver: str  # empty if it is not known
    way: Literal["published", "graft", "build", "none"]  # the cheapest that serves it
    published: str  # ``native``, ``ptx`` or ``none``: what the published wheels have for the card
    why: str
    run: str  # command that trains with a published wheel; empty if it should not be used
    graft: str  # command that puts machine code for the card into a published wheel; empty if that is not needed
    build: str  # command that builds a wheel for the card; empty if no set of the table can
    cuda: str  # that of the first of these commands; empty if there is none
    driver_says: str  # whether the driver runs the CUDA of the command
    remedy: str  # what to do about the driver; empty if nothing
    graft_cost: str = ""  # graft_cost, build_cost: in words, on this machine
    build_cost: str = ""
    toolchain: str = ""  # whether the toolchain of the build was proven, and when: ``proven (cross), 2026-11-24``
    untried: str = ""  # what of the build was not run on this platform; empty if it was
    note: str = ""  # what is special about the card
    advisories: tuple[str, ...] = ()  # a line for each TensorFlow of these commands that has security advisories

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def advise(table: Table, device: Device, machine: Machine, asked: Set, card: str = AUTO) -> Advice:
    """Return what to run or to build for one card of a machine.

    Raises what :func:`decide` raises.
    """
    alone = replace(machine, devices=(device,), platform=device.platform or machine.platform)
    return _describe(table, decide(alone, asked, card=card, table=table), device, alone)


def _describe(table: Table, decision: Decision, device: Device, machine: Machine) -> Advice:
    """Return a decision in the names of :class:`Advice`."""
    place = table.platform(machine.platform)
    plain = numbers.strip_suffix(device.capability)
    code = table.published_code
    coverage = find_coverage(code.capabilities, plain) if place.gpu_code and plain else None
    generated = find_coverage(code.generated, plain) if plain else None
    published = "none" if coverage is None else "native" if coverage.is_native else "ptx"
    ways = {way.kind: way.command for way in reversed(decision.ways)}
    drivers = DriverRules(table=table, machine=machine)
    driver = drivers.check(device, decision.versions.cuda) if _judges(decision, device) else None
    plan = next((way.versions for way in decision.ways if isinstance(way.versions, VersionRequest)), None)
    versions = {way.versions.tensorflow for way in decision.ways if way.kind != "cpu"}
    warned = (rules.warn_of_advisories(table, version) for version in sorted(versions))
    return Advice(
        card=device.name,
        capability=device.capability,
        platform=place.name,
        driver=device.driver,
        way="none" if decision.way.kind == "cpu" else decision.way.kind,
        published=published,
        why=_explain(published, coverage, generated, table, place),
        run=ways.get("published", ""),
        graft=ways.get("graft", ""),
        build=ways.get("build", ""),
        cuda=decision.versions.cuda,
        driver_says=driver.evidence if driver else "",
        remedy=decision.remedy or (_NONE if decision.way.kind == "cpu" else driver.remedy if driver else ""),
        graft_cost=estimate_graft(table) if "graft" in ways else "",
        build_cost=_estimate_build(place) if "build" in ways else "",
        toolchain=_describe_toolchain(table, plan) if plan else "",
        untried=place.untried if plan else "",
        note=find_note(device.name),
        advisories=tuple(filter(None, warned)),
    )


_NONE = "no set of the table runs on this card: `toolkit up --card none` runs on the processor"


def _judges(decision: Decision, device: Device) -> bool:
    return bool(device.driver and decision.versions.cuda and decision.driver not in {"unknown", "n/a"})


def render(decision: Decision, machine: Machine, table: Table) -> str:
    """Return a decision for people: verdict, reason, what to do first, the command, and then what else works."""
    shown = [f"{describe_cards(machine.devices)}: {_name_verdict(decision)}"]
    shown += [f"  {'because':<10} {decision.way.reason}"]
    shown += [f"  {'first':<10} {decision.remedy}"] if decision.remedy else []
    shown += [f"  {'note' if not index else '':<10} {line}" for index, line in enumerate(decision.warnings)]
    place = table.platform(machine.platform)
    for index, choice in enumerate(decision.ways):
        name = "command" if not index else "or" if index == 1 else ""
        cost = _estimate(choice, place, table)
        also = f"{choice.reason}{'; ' if cost else ''}{cost}" if index else cost
        shown += [f"  {name:<10} {choice.command}{f'  ({also})' if also else ''}"]
    return "\n".join(shown)


def _name_verdict(decision: Decision) -> str:
    later = ", after a change of the driver" if decision.driver in {"too-old", "too-new"} else ""
    return f"{decision.way.describe()}{later}"


def _estimate(way: Way, place: PlatformRow, table: Table) -> str:
    """Return what a way costs on this machine, and whether its toolchain was proven."""
    if way.kind == "graft":
        return estimate_graft(table)
    if not isinstance(way.versions, VersionRequest):
        return ""
    toolchain = f"toolchain {_describe_toolchain(table, way.versions)}"
    return "; ".join(filter(None, (_estimate_build(place), toolchain)))


def _estimate_build(place: PlatformRow) -> str:
    return f"{estimate_build().facts['hours']} on this machine" if place.name == find_own_platform() else ""


def _describe_toolchain(table: Table, nearest: VersionRequest) -> str:
    evidence = find_evidence(table, nearest)
    return f"{evidence['state']}, {evidence['date']}" if "date" in evidence else str(evidence["state"])


def estimate_graft(table: Table) -> str:
    cost = table.published_code.graft
    minutes = max(1, round(cost["seconds"] / count_cores() / 60))
    return f"about {minutes} minutes on this machine, a wheel of {cost['bytes'] / 1e6:.0f} MB"


def check_gpu(settings: Settings) -> Iterator[Finding]:
    """Check the GPUs of this machine and their driver, and say what the decision for them is."""
    table, machine = load_table(), read_machine(settings)
    for index, device in enumerate(machine.devices):
        driver = f", driver {device.driver}" if device.driver else ""
        summary = f"{device.name}, compute capability {device.capability or 'not known'}{driver}"
        yield Finding(id=f"gpu-{index}", state="absent" if machine.fault else "ok", evidence=summary)
    drivers = DriverRules(table=table, machine=machine)
    try:
        decision = decide(machine, settings.asked, card=settings.card, table=table)
    except (UnsupportedError, UsageError) as error:
        yield from _compare_driver(drivers, machine.devices, settings.cuda)
        yield Finding(id="gpu", state="fail", advisory=True, evidence=error.what, remedy=error.remedy)
        return
    yield from _compare_driver(drivers, decision.devices or machine.devices, settings.cuda)
    yield _judge(decision, machine)


def _compare_driver(drivers: DriverRules, devices: Sequence[Device], cuda: str) -> Iterator[Finding]:
    """Compare the driver with a CUDA that was asked for, for the card that it fits least."""
    if not cuda or drivers.machine.system == "jetson":  # whose driver comes with its CUDA
        return
    findings = [drivers.check(device, cuda) for device in devices if device.driver]
    yield from sorted(findings, key=lambda finding: finding.state == "ok")[:1]


def _judge(decision: Decision, machine: Machine) -> Finding:
    """Return the finding that says what was decided. It is a warning where a GPU is left unused."""
    evidence = f"{_name_verdict(decision)}: {decision.way.reason}"
    notes = f"; {'; '.join(decision.warnings)}" if decision.warnings else ""
    facts = {**decision.to_json(), "command": decision.way.command}
    if not machine.devices and not machine.fault:
        return Finding(id="gpu", state="absent", evidence=evidence, facts=facts)
    fine = decision.uses_gpu and decision.way.kind == "published"
    return Finding(
        id="gpu",
        state="ok" if fine else "fail",
        advisory=True,
        evidence=f"{evidence}{notes}",
        remedy="" if fine else decision.remedy or decision.way.command,
        facts=facts,
    )


def _explain(
    published: str, coverage: Coverage | None, generated: Coverage | None, table: Table, place: PlatformRow
) -> str:
    code = table.published_code
    if not place.gpu_code:
        reason = f"those for {place.shown} have no GPU code, neither machine code nor PTX, so that no graft helps"
        return f"{reason} ({', '.join(place.issues)})"
    if published == "none":
        return f"their code is for {', '.join(code.capabilities)}"
    if published == "native" and generated:
        return str(coverage)
    if published == "native":
        return f"{coverage}, but PTX for the elementwise kernels; a graft spares the driver compiling these"
    return f"{coverage}; users of capability 12.0 report that this takes long or fails ({', '.join(code.issues)})"


def require_platform(text: str, settings: Settings) -> str:
    """Return a card's platform, or else that of the settings. Raises UnsupportedError if another was named."""
    place = find_card(text).platform
    if place and place != settings.platform and settings.sources["platform"] != "default":
        raise UnsupportedError(
            f"{text} is in machines of {place} alone, and {settings.platform} was asked for",
            why=f"platform: {settings.platform} (from {settings.sources['platform']})",
            remedy=f"--platform {place}",
        )
    return place or settings.platform
