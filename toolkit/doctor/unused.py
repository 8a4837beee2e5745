"""Names the set for CUDA with which a command would use a GPU, and the GPUs that a set for processors leaves unused."""

from collections.abc import Sequence

from toolkit.doctor.hardware import compare_driver
from toolkit.doctor.machine import Device
from toolkit.doctor.reading import find_devices
from toolkit.engine.host import has_gpu
from toolkit.errors import PreflightError, ToolkitError
from toolkit.findings import Finding
from toolkit.settings import Settings
from toolkit.smoke.checks.gpu_rules import find_coverage
from toolkit.versions import Locked, Table, find_locked, load_table, numbers, propose, rules

ANSWER_SECONDS = 5
"""How long a command that needs no GPU waits for the driver to name those of this machine."""


def name_flags(settings: Settings, devices: Sequence[Device] = ()) -> str:
    """Return the options of the set for CUDA that runs on one of these cards, or of the usual one if none is known.

    Empty: no published TensorFlow of these settings has machine code for the cards, or their driver is too old.
    """
    for item in _list_sets(settings):
        if not devices or any(_serves(item, device, settings) and _runs(item, device) for device in devices):
            return _render(item, settings)
    return ""


def name_wheel_flags(tensorflow: str, python: str, cuda: str) -> str:
    """Return the options of the set in which a wheel that was built for a CUDA runs; empty if none is known.

    A set that is not one of the table's is made by `toolkit lock`, which the command then names.
    """
    table = load_table()
    for item in table.published:
        same = item.tensorflow == tensorflow and python in item.python and item.cuda
        if same and numbers.parse(item.cuda) >= numbers.parse(cuda):
            return f"--cuda {item.cuda} --cudnn {item.cudnn}"
    try:
        found = propose(table, tensorflow, python, cuda, None)
    except ToolkitError:
        return ""
    if found is None or found.tensorflow != tensorflow or numbers.parse(found.cuda) < numbers.parse(cuda):
        return ""
    return f"--cuda {found.cuda} --cudnn {found.cudnn}"


def advise_flags(settings: Settings, *, here: bool) -> str:
    """Return the options to add for a set for CUDA, or what else to do first.

    The set is for the card of this machine. If the driver names none, or the command is for other machines and not for
    one `here`, it is the usual set of that TensorFlow.
    """
    try:
        devices = find_devices(ANSWER_SECONDS) if here else []
    except (FileNotFoundError, ToolkitError):
        devices = []
    if flags := name_flags(settings, devices):
        return f"add {flags}"
    for device in devices:
        if trouble := _find_trouble(settings, device):
            return f"{trouble.remedy}, and add {name_flags(settings)}"
    return "`toolkit advise` says what runs on a GPU"


def describe_unused(settings: Settings, why: str, remedy: str = "") -> str:
    """Return one line about the GPUs of this machine that are not used; empty if there are none.

    `why` says why they are not. `remedy` says what would use them; by default it names the set for CUDA that runs on
    one of them.
    """
    try:
        devices = find_devices(ANSWER_SECONDS)
    except FileNotFoundError:
        if not has_gpu():
            return ""
        flags = name_flags(settings)
        return f"an NVIDIA GPU is not used: {why}; {remedy or (f'{flags} uses it' if flags else _ASK)}"
    except PreflightError as error:
        return f"no GPU is used: {why}; {' '.join(error.what.split())}; `toolkit doctor` says what to do"
    if not devices:
        return ""
    flags = name_flags(settings, devices)
    trouble = next(filter(None, (_find_trouble(settings, device) for device in devices)), None)
    if remedy or flags:
        remedy = remedy or f"{flags} uses it"
    elif trouble:
        remedy = f"{trouble.evidence}: {trouble.remedy}"
    first = next((each for each in devices if name_flags(settings, [each])), devices[0])
    driver = f", driver {first.driver}" if first.driver else ""
    others = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
    verb = "are" if others else "is"
    return f"{first.name} ({first.capability}{driver}){others} {verb} not used: {why}; {remedy or _ASK}"


_ASK = "`toolkit advise` says what would use it"


def _list_sets(settings: Settings) -> list[Locked]:
    """Return the sets for CUDA, those of the TensorFlow of the settings first."""
    table, asked = load_table(), settings.tensorflow
    if not table.platform(settings.platform).gpu_code:
        return []
    known = [item for item in table.published if item.cuda and settings.python in item.python]
    same = [item for item in known if item.tensorflow == asked] or _make_set(table, settings)
    others = known if settings.sources.get("tensorflow", "default") == "default" else []
    return [*same, *(item for item in others if item.tensorflow != asked)]


def _make_set(table: Table, settings: Settings) -> list[Locked]:
    """Return a set that is not one of the table's: one that `toolkit lock` has made, or can make."""
    try:
        found = propose(table, settings.tensorflow, settings.python, None, None)
    except ToolkitError:
        return []
    if found is None or found.tensorflow != settings.tensorflow:
        return []
    asked = (found.tensorflow, settings.python, found.cuda, found.cudnn)
    return [item] if (item := find_locked(table, *asked)) else []


def _render(item: Locked, settings: Settings) -> str:
    other = f"--tensorflow {item.tensorflow} " if item.tensorflow != settings.tensorflow else ""
    return f"{other}--cuda {item.cuda} --cudnn {item.cudnn}"


def _serves(item: Locked, device: Device, settings: Settings) -> bool:
    """Return whether a set has machine code for a card, and no known failure on it."""
    table = load_table()
    try:
        coverage = find_coverage(table.published_code.capabilities, device.capability)
        asked = rules.read(
            table,
            tensorflow=item.tensorflow,
            python=settings.python,
            cuda=item.cuda,
            cudnn=item.cudnn,
            capabilities=[device.capability],
            platform=settings.platform,
        )
    except (ToolkitError, ValueError):  # the driver names no capability
        return False
    return coverage is not None and "machine code" in coverage and not rules.find_refused(table, asked)


def _runs(item: Locked, device: Device) -> bool:
    found = _compare(item, device)
    return found is None or found.state == "ok"


def _compare(item: Locked, device: Device) -> Finding | None:
    """Compare a card's driver with a set; None: the driver is not known."""
    try:
        return compare_driver(device.driver, item.cuda, device.capability) if device.driver else None
    except ToolkitError:  # such as [N/A]
        return None


def _find_trouble(settings: Settings, device: Device) -> Finding | None:
    """Return why the driver cannot run the first set that has machine code for a card; None if none has, or it can."""
    served = next((item for item in _list_sets(settings) if _serves(item, device, settings)), None)
    found = _compare(served, device) if served else None
    return found if found and found.state == "fail" else None
