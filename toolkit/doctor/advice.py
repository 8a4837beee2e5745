"""Says which TensorFlow runs on a card: a published wheel as it is or grafted, or one that is built for it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from toolkit.doctor.cards import find_card, find_note
from toolkit.doctor.hardware import compare_driver, estimate_build
from toolkit.doctor.machine import Device
from toolkit.doctor.reading import find_devices
from toolkit.errors import PreflightError, UnsupportedError
from toolkit.findings import Finding
from toolkit.settings import Settings, find_own_platform
from toolkit.smoke.checks.gpu_rules import find_coverage
from toolkit.versions import Locked, Table, load_table, rules
from toolkit.versions.matrix import find_evidence
from toolkit.versions.rules import VersionRequest
from toolkit.versions.table import PlatformRow
from train.cores import count_cores


@dataclass(frozen=True, kw_only=True)
class Advice:
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

    def render(self) -> str:
        shown = [f"{self.card}: compute capability {self.capability}, {self.platform}"]
        shown += [f"  published wheel  {self.published}: {self.why}"]
        ways = [
            ("run it", self.run, ""),
            ("graft it", self.graft, self.graft_cost),
            ("build", self.build, self.build_cost),
        ]
        for name, command, cost in ways:
            shown += [f"  {name:<15}  {command}{f'  ({cost})' if cost else ''}"] if command else []
        shown += [f"  toolchain        {self.toolchain}"] if self.toolchain else []
        shown += [f"  not run          {self.untried}"] if self.untried else []
        shown += [f"  note             {self.note}"] if self.note else []
        shown += [f"  driver           {self.driver_says}"] if self.driver_says else []
        return "\n".join([*shown, *([f"  try              {self.remedy}"] if self.remedy else [])])


def advise(table: Table, device: Device, settings: Settings) -> Advice:
    """Return what to run or to build for a card: the newest published TensorFlow, unless one was asked for."""
    python, named = settings.python, settings.sources["tensorflow"] != "default"
    place = table.platform(device.platform or settings.platform)
    asked = _read(table, settings, device.capability, place)
    code = table.published_code
    coverage = find_coverage(code.capabilities, device.capability) if place.gpu_code else None
    published = "none" if coverage is None else "native" if "machine code" in coverage else "ptx"
    runtime = _find_runtime(table, asked, settings.tensorflow if named else "") if published == "native" else None
    nearest = rules.suggest(table, asked if place.gpu_code else _choose_cuda(table, asked))
    generated = find_coverage(code.generated, device.capability)
    # PTX is for every later GPU, and the kernels that MLIR generated have less machine code than the others.
    graftable = published == "ptx" or (runtime is not None and generated is None)
    cuda = runtime.cuda if runtime else nearest.cuda if nearest else ""
    driver = compare_driver(device.driver, cuda, device.capability) if device.driver and cuda else None
    return Advice(
        card=device.name,
        capability=device.capability,
        platform=place.name,
        driver=device.driver,
        way="published" if runtime else "graft" if graftable else "build" if nearest else "none",
        published=published,
        why=_explain(published, coverage, generated, table, place),
        run=f"toolkit up digits {_list_flags(runtime, python)}" if runtime else "",
        graft=f"toolkit graft --compute-capability {device.capability}{_name_version(settings)}" if graftable else "",
        build=f"toolkit build-wheel {nearest.render()}" if nearest else "",
        cuda=cuda,
        driver_says=driver.evidence if driver else "",
        remedy=_find_remedy(nearest is None and runtime is None, driver.remedy if driver else ""),
        graft_cost=_estimate_graft(table) if graftable else "",
        build_cost=f"about {estimate_build().facts['hours']} h on this machine"
        if nearest and place.name == find_own_platform()
        else "",
        toolchain=_describe_toolchain(table, nearest) if nearest else "",
        untried=place.untried if nearest else "",
        note=find_note(device.name),
        advisories=_list_advisories(table, runtime, nearest, settings.tensorflow if named and graftable else ""),
    )


def _read(table: Table, settings: Settings, capability: str, place: PlatformRow) -> VersionRequest:
    return rules.read(
        table,
        tensorflow=settings.tensorflow,
        python=settings.python,
        capabilities=[capability],
        platform=place.name,
    )


def _choose_cuda(table: Table, asked: VersionRequest) -> VersionRequest:
    """Return the request with the first CUDA that compiles for the card itself, unless that asked for does."""
    wanted = asked.numbers[0]
    knowing = [row.version for row in table.cuda_rows.values() if row.parts and wanted in row.capabilities]
    return asked if asked.cuda in knowing or not knowing else replace(asked, cuda=knowing[0])


def _describe_toolchain(table: Table, nearest: VersionRequest) -> str:
    evidence = find_evidence(table, nearest)
    return f"{evidence['state']}, {evidence['date']}" if "date" in evidence else evidence["state"]


def _list_advisories(
    table: Table, runtime: Locked | None, nearest: VersionRequest | None, grafted: str
) -> tuple[str, ...]:
    versions = [runtime.tensorflow if runtime else "", grafted, nearest.tensorflow if nearest else ""]
    return tuple(filter(None, (rules.warn_of_advisories(table, each) for each in dict.fromkeys(versions))))


def _name_version(settings: Settings) -> str:
    return f" --tensorflow {settings.tensorflow}" if settings.sources["tensorflow"] != "default" else ""


def _estimate_graft(table: Table) -> str:
    cost = table.published_code.graft
    minutes = max(1, round(cost["seconds"] / count_cores() / 60))
    return f"about {minutes} minutes on this machine, a wheel of {cost['bytes'] / 1e6:.0f} MB"


def check_gpu(settings: Settings) -> Iterator[Finding]:
    """Check the GPUs of this machine, its driver, and whether the published wheels have code for them."""
    try:
        devices = find_devices()
    except FileNotFoundError:
        yield Finding(id="gpu", state="absent", evidence="no NVIDIA driver on this machine: everything runs on the CPU")
        return
    except PreflightError as error:
        yield Finding(id="gpu", state="fail", advisory=True, evidence=error.what, remedy=error.remedy)
        return
    for index, device in enumerate(devices):
        summary = f"{device.name}, compute capability {device.capability}, driver {device.driver}"
        yield Finding(id=f"gpu-{index}", state="ok", evidence=summary)
        found = advise(load_table(), device, settings)
        if (cuda := settings.cuda or found.cuda) and device.driver and index == 0:
            compared = compare_driver(device.driver, cuda, device.capability)
            yield replace(compared, advisory=compared.advisory or not settings.cuda)
        said = f"; not run: {found.untried}" if found.untried else ""
        yield Finding(
            id=f"wheel-{index}",
            state="ok" if found.run else "fail",
            advisory=True,
            evidence=f"published wheels: {found.published}: {found.why}{said}",
            remedy="" if found.run else found.graft or found.build or found.remedy or found.note,
            facts=found.to_json(),
        )


def _explain(published: str, coverage: str | None, generated: str | None, table: Table, place: PlatformRow) -> str:
    code = table.published_code
    if not place.gpu_code:
        held = f"those for {place.shown} have no GPU code, neither machine code nor PTX, so that no graft helps"
        return f"{held} ({', '.join(place.issues)})"
    if published == "none":
        return f"their code is for {', '.join(code.capabilities)}"
    if published == "native" and generated:
        return str(coverage)
    if published == "native":
        return f"{coverage}, but PTX for the elementwise kernels; a graft spares the driver compiling these"
    return f"{coverage}; users of capability 12.0 report that this takes long or fails ({', '.join(code.issues)})"


def find_native(table: Table, capability: str, settings: Settings) -> Locked | None:
    """Return the locked set of a published wheel with machine code for a card; None: there is none."""
    place = table.platform(settings.platform)
    coverage = find_coverage(table.published_code.capabilities, capability) if place.gpu_code else None
    if coverage is None or "machine code" not in coverage:
        return None
    named = settings.sources["tensorflow"] != "default"
    asked = _read(table, settings, capability, place)
    return _find_runtime(table, asked, settings.tensorflow if named else "")


def _find_runtime(table: Table, asked: VersionRequest, tensorflow: str) -> Locked | None:
    for item in reversed(table.published):
        if tensorflow and item.tensorflow != tensorflow:
            continue
        wanted = VersionRequest(
            **{**vars(asked), "tensorflow": item.tensorflow, "cuda": item.cuda, "cudnn": item.cudnn}
        )
        if item.cuda and asked.python in item.python and not rules.find_refused(table, wanted):
            return item
    return None


def _list_flags(item: Locked, python: str) -> str:
    return f"--tensorflow {item.tensorflow} --python {python} --cuda {item.cuda} --cudnn {item.cudnn}"


def _find_remedy(unserved: bool, driver: str) -> str:
    return (
        "no set of the table runs on this card: `toolkit up` without --cuda runs on the processor"
        if unserved
        else driver
    )


def require_platform(text: str, settings: Settings) -> str:
    """Return a card's platform, or else that of the settings. Raises UnsupportedError: another was named."""
    place = find_card(text).platform
    if place and place != settings.platform and settings.sources["platform"] != "default":
        raise UnsupportedError(
            f"{text} is in machines of {place} alone, and {settings.platform} was asked for",
            why=f"platform: {settings.platform} (from {settings.sources['platform']})",
            remedy=f"--platform {place}",
        )
    return place or settings.platform
