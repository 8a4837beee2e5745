"""Describes wheels, grafts, environments, images and smoke reports on pages of their own, each with its chain."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolkit.base import files, manifest, naming
from toolkit.base.errors import ToolkitError
from toolkit.base.findings import Finding
from toolkit.engine.packages import read_installed
from toolkit.records import Artifact, SmokeReport, Wheel
from toolkit.records.artifact import Facts
from toolkit.records.origins import flatten
from toolkit.report import chain
from toolkit.report.chain import PageContext
from toolkit.report.page_model import Cell, Chain, Number, Page, Row, Section, Table
from toolkit.report.run_files import show_bytes, show_seconds
from toolkit.smoke import runner
from toolkit.versions.set import LIBRARIES, TITLES
from toolkit.wheel import wheel_folder
from train.system.files import read_text

_DOTLESS: Final = re.compile(r"_(\d+)(\d)(?!\d)")
"""A compute capability as compilers write it: ``sm_75``."""

LINE: Final = 120
"""Most letters that a table shows of what a check has seen; the report has all of it."""


def describe(artifact: Artifact, context: PageContext) -> Page:
    """Return the page of a wheel, an environment, an image or a smoke report."""
    links = chain.follow(artifact, context)
    match artifact:
        case Wheel():
            return _describe_wheel(artifact, links)
        case SmokeReport():
            return _describe_report(artifact, links)
        case _:
            return _describe_base(artifact, links)


def _close(links: Chain, artifact: Artifact, *others: Section | None) -> dict[str, Any]:
    """Return the sections that have something, with the chain before them, and what checks the page."""
    origin = Section(id="chain", title="Where it came from", lead=chain.LEAD, parts=[links])
    return {
        "sections": [section for section in (*others, origin) if section and section.parts],
        "chain": links,
        "commands": [f"toolkit verify {artifact.name}"],
    }


def _pair(caption: str, values: Mapping[str, object]) -> Table:
    """Return a table of names and values, without those that have none."""
    rows = [(name, _show(value)) for name, value in values.items() if value not in (None, "", [], {}, ())]
    return Table(caption=caption, columns=("What", "Value"), rows=rows)


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _show_version(version: str) -> Number:
    """Return a version without its local part, which is too long for a large number and stands below it."""
    public, _, local = version.partition("+")
    return Number(label="TensorFlow", text=public, note=version if local else "")


def _describe_machine(recorded: object) -> str:
    """Return in words what a record says of the machine, as far as it says it."""
    machine = dict(recorded) if isinstance(recorded, Mapping) else {}
    memory = str(machine.get("memory_bytes", ""))
    words = [
        (f"{machine.get('cores')} cores", machine.get("cores")),
        (f"{show_bytes(int(memory))} of memory" if memory.isdecimal() else "", memory),
        (str(machine.get("machine")), machine.get("machine")),
        (f"Linux {machine.get('kernel')}", machine.get("kernel")),
        (f"engine {machine.get('engine')}", machine.get("engine")),
    ]
    return ", ".join(word for word, value in words if word and value)


def _show_device(spec: Mapping[str, str]) -> list[Number]:
    if not spec.get("cuda"):
        return [Number(label="Device", text="processor")]
    plain = ", ".join(re.findall(r"[\d.]+", _DOTLESS.sub(r"\1.\2", spec["capabilities"])))
    shown = {TITLES[name]: spec[name] for name in LIBRARIES if name in spec} | {"Compute capability": plain}
    return [Number(label=label, text=text) for label, text in shown.items()]


def _describe_wheel(target: Wheel, links: Chain) -> Page:
    try:
        record = target.read_record()
    except ToolkitError as error:
        return Page(
            kind=target.title, title=target.folder.name, lead=f"{error.what}.", numbers=[], **_close(links, target)
        )
    facts = record.facts
    inspected, spec = dict(facts["inspection"]), dict(facts["lock"]["spec"])
    seconds = facts.get("seconds")
    numbers = [
        _show_version(str(inspected.get("version", spec["tensorflow"]))),
        *_show_device(spec),
        *(
            [Number(label="Size", text=show_bytes(inspected["bytes"]))]
            if isinstance(inspected.get("bytes"), int)
            else []
        ),
        *([Number(label="Time to make it", text=show_seconds(seconds))] if isinstance(seconds, int | float) else []),
    ]
    content = _pair(
        "What the wheel holds",
        {
            "GPU code in its libraries": inspected.get("architectures"),
            "Interpreters": inspected.get("pythons"),
            "Platforms": inspected.get("platforms"),
            "Needs from the system, at least": inspected.get("symbols"),
            "Loads and does not bring along": inspected.get("needed"),
            "Processor instructions beyond AVX": facts.get("instructions"),
            "Size once unpacked": show_bytes(inspected["unpacked_bytes"]) if "unpacked_bytes" in inspected else None,
        },
    )
    return Page(
        kind=target.title,
        title=str(inspected.get("file", target.folder.name)),
        lead=f"{target.describe_trust()}.".capitalize(),
        numbers=numbers,
        **_close(
            links,
            target,
            Section(id="content", title="What it holds", parts=[content]),
            _show_facts(target.describe_making(facts), facts.get("host")),
            Section(id="files", title="Files", parts=[_list_files(target.folder)]),
        ),
    )


def _show_facts(made: Facts, host: object) -> Section:
    """Return how a wheel was made. ``host``: what its record says of the machine."""
    named = _pair(made.caption, {**made.values, "Machine": _describe_machine(host)})
    rows: list[Row] = [
        [
            Cell(text=str(name), note=note),
            *(_show_count(value, is_size=at in made.sizes) for at, value in enumerate(numbers, 1)),
        ]
        for (name, *numbers), note in zip(made.rows, made.notes or [""] * len(made.rows), strict=True)
    ]
    table = Table(
        caption=made.rows_caption,
        columns=tuple(made.columns),
        rows=rows,
        numeric=frozenset(range(1, len(made.columns))),
    )
    return Section(id=made.id, title=made.title, parts=[named, *([table] if made.columns else [])])


def _show_count(value: object, *, is_size: bool) -> str:
    return f"+{show_bytes(value)}" if is_size and isinstance(value, int) else _show(value)


def _list_files(path: Path) -> Table:
    try:
        lines = [line.split(maxsplit=1) for line in read_text(path / wheel_folder.SUMS).splitlines()]
    except (OSError, UnicodeDecodeError):
        lines = []
    rows: list[Row] = []
    for value, name in (line for line in lines if len(line) == 2):
        file = path / name
        size = show_bytes(file.stat().st_size) if file.is_file() else "not here"
        rows.append((name, size, Cell(text=value, code=True)))
    return Table(
        caption=f"Files of the folder, by {wheel_folder.SUMS}",
        columns=("File", "Size", "SHA-256"),
        rows=rows,
        numeric=frozenset({1}),
    )


def _describe_report(target: SmokeReport, links: Chain) -> Page:
    report = runner.from_json(files.read_json(target.path))
    rows = [
        (
            Cell(text=item.id, tone=item.state, note=item.title),
            Cell(text=item.evidence or _tell(item), note=f"Try: {item.remedy}" if item.state == "fail" else ""),
            "" if item.seconds is None else f"{item.seconds:.2f}",
        )
        for item in report.checks
    ]
    table = Table(
        caption="Checks in the order in which they ran",
        columns=("Check", "Seen", "Seconds"),
        rows=rows,
        numeric=frozenset({2}),
    )
    seconds = sum(item.seconds or 0 for item in report.checks)
    return Page(
        kind=target.title,
        title=target.report,
        lead=f"TensorFlow {report.tensorflow or '?'}, Python {report.python}. {_describe_device(report.device)}",
        numbers=[
            Number(label="Verdict", text=report.verdict),
            Number(label="Passed", text=str(report.count("ok"))),
            Number(label="Failed", text=str(report.count("fail"))),
            Number(label="Skipped", text=str(report.count("skipped"))),
            Number(label="Time", text=show_seconds(seconds)),
        ],
        **_close(links, target, Section(id="checks", title="Checks", parts=[table])),
    )


def _tell(item: Finding) -> str:
    """Return what a check has seen, cut to the length of a line."""
    seen = {name: value for name, value in item.facts["evidence"].items() if isinstance(value, str | int | float)}
    text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in seen.items())
    return text if len(text) <= LINE else f"{text[:LINE]}…"


def _describe_device(device: Mapping[str, Any]) -> str:
    return f"Device: {_show(device)}." if device else ""


def _describe_base(target: Artifact, links: Chain) -> Page:
    try:
        folder: Path | None = target.locate()
    except ToolkitError:
        folder = None
    record = manifest.read(folder) if folder else None
    facts = dict(record.facts) if record else {}
    labels = {
        name.removeprefix(f"{naming.LABEL_PREFIX}."): value for name, value in dict(facts.get("labels") or {}).items()
    }
    shown = {name: value for name, value in facts.items() if name != "labels"}
    packages = read_installed(folder / "venv") if folder and target.holds == "venv" else {}
    listed = Table(
        caption=f"{len(packages)} packages",
        columns=("Package", "Version"),
        rows=[(name, package.version) for name, package in sorted(packages.items())],
    )
    parents = [dict(parent) for parent in flatten(record.parent)] if record else []
    numbers = [
        Number(label=str(origin.get("kind")).capitalize(), text=str(origin.get("name"))) for origin in parents[-1:]
    ]
    return Page(
        kind=target.title,
        title=str(facts.get("tag") or target.path.name or target.name),
        lead=f"Made from {parents[0].get('name')}." if parents else "It has no record here.",
        numbers=[
            *numbers,
            *([Number(label="Packages", text=str(len(packages)))] if packages else []),
            *([Number(label="Python", text=str(facts["python"]))] if "python" in facts else []),
        ],
        **_close(
            links,
            target,
            Section(
                id="facts",
                title="What is recorded",
                parts=[_pair("Facts", shown), *([_pair("Labels", labels)] if labels else [])] if shown else [],
            ),
            Section(id="packages", title="Packages", parts=[listed] if packages else []),
        ),
    )
