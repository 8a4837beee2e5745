"""Names the set for CUDA of a TensorFlow or a wheel, and the GPUs that a set of the user's own choice leaves unused."""

from dataclasses import replace

from toolkit.base.errors import ToolkitError
from toolkit.doctor.decision import Decision, decide, describe_card
from toolkit.doctor.machine import Device, Machine
from toolkit.doctor.reading import BRIEF_SECONDS, read_machine
from toolkit.versions import numbers
from toolkit.versions.rules import propose
from toolkit.versions.set import Set
from toolkit.versions.settings import Settings
from toolkit.versions.table import load_table

_ASK = "`toolkit advise` says what would use it"


def name_flags(settings: Settings, machine: Machine | None = None) -> str:
    """Return the options of the set for CUDA of the settings' TensorFlow, for the cards of a machine or for most cards.

    Empty: no published TensorFlow of these settings has machine code for the cards, or their driver is too old.
    """
    most = Machine(devices=(Device(name="a card", capability=""),), platform=settings.platform)
    decision = _decide(machine or most, settings)
    if decision is None or decision.way.kind != "published" or not decision.uses_gpu:
        return ""
    return name_set(decision.versions, settings)


def name_set(chosen: Set, settings: Settings) -> str:
    """Return the options by which a set is chosen: its TensorFlow too, if it is not the one that is taken without."""
    implied = settings.asked.tensorflow or load_table().default.tensorflow
    other = chosen.tensorflow if chosen.tensorflow != implied else ""
    return " ".join(replace(chosen.libraries, tensorflow=other).flags())


def find_set(built: Set) -> Set | None:
    """Return the set in which a wheel runs that was built for a TensorFlow, Python and CUDA; None if none is known.

    One that is not of the table is made by `toolkit lock`, which the command then names.
    """
    table, unlinked = load_table(), built.without_libraries()
    for item in table.published:
        if item.cuda and item.serves(unlinked) and numbers.parse(item.cuda) >= numbers.parse(built.cuda):
            return item.choose(built.python)
    try:
        proposal = propose(table, replace(unlinked, cuda=built.cuda))
    except ToolkitError:
        return None
    if proposal is None or proposal.tensorflow != built.tensorflow:
        return None
    return proposal if numbers.parse(proposal.cuda) >= numbers.parse(built.cuda) else None


def advise_flags(settings: Settings, *, here: bool) -> str:
    """Return the options to add for a set for CUDA, or what else to do first.

    The set is for the cards of this machine. If it has none, or the command is for other machines and not for one
    `here`, it is the usual set of that TensorFlow.
    """
    machine = read_machine(settings, seconds=BRIEF_SECONDS) if here else Machine()
    if machine.fault and machine.fault.has_gpu:
        return machine.fault.remedy
    if not machine.devices:
        card = "" if here else ", or --card with the name of those GPUs"
        return (
            f"add {name_flags(settings)}{card}" if name_flags(settings) else "`toolkit advise` says what runs on a GPU"
        )
    if flags := name_flags(settings, machine):
        return f"add {flags}"
    decision = _decide(machine, settings)
    return decision.remedy if decision and decision.remedy else "`toolkit advise` says what runs on a GPU"


def describe_unused(settings: Settings, why: str, remedy: str = "") -> str:
    """Return one line about the GPUs of this machine that are not used; empty if there are none.

    `why` says why they are not. `remedy` says what would use them; by default it names the set for CUDA that does.
    """
    machine = read_machine(settings, seconds=BRIEF_SECONDS)
    if machine.fault:
        sentence = f"no GPU is used: {why}; {machine.fault.cause}; `toolkit doctor` says what to do"
        return sentence if machine.fault.has_gpu else ""
    if not machine.devices:
        return ""
    flags, decision = name_flags(settings, machine), _decide(machine, settings)
    if not remedy:
        remedy = f"{flags} uses it" if flags else decision.remedy if decision and decision.remedy else _ASK
    first = decision.devices[0] if decision and decision.devices else machine.devices[0]
    others = f" and {len(machine.devices) - 1} more are" if len(machine.devices) > 1 else " is"
    driver = f", driver {first.driver}" if first.driver else ""
    return f"{describe_card(first)}{driver}{others} not used: {why}; {remedy}"


def _decide(machine: Machine, settings: Settings) -> Decision | None:
    """Return the decision for the TensorFlow and Python of the settings; None if there is no such set."""
    try:
        return decide(machine, settings.asked.without_libraries())
    except ToolkitError:
        return None
