"""Reads sweeps, runs their members in local slots, and compares the runs."""

import csv
import difflib
import fcntl
import io
import itertools
import math
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from toolkit import digest, files, manifest, processes, training_job
from toolkit.console import Console
from toolkit.engine import Engine, Environment, Job, Mount
from toolkit.errors import CheckError, JobError, ToolkitError, UsageError
from toolkit.project import shorten
from toolkit.settings import DECIDED, Settings
from train.cli import SWITCHES, find_result
from train.config.configuration import TrainConfig
from train.system.files import read_regular
from train.use.compare import tabulate

TABLE: Final = "table.csv"
PICTURE: Final = "comparison.png"

KEYS: Final = ("dataset", "options", "grid", "list")

Value = str | int | float | bool
Options = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Member:
    number: int  # from 0, in the order of the file
    options: Options  # those that differ between members
    arguments: tuple[str, ...]  # of `toolkit train`
    config: TrainConfig

    @property
    def label(self) -> str:
        return describe_options(self.options) or "the only member"

    @property
    def point(self) -> str:
        """What members have in common that differ in their seeds alone."""
        return describe_options({name: value for name, value in self.options.items() if name != "seed"}) or "all"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    members: tuple[Member, ...]
    folder: Path  # of the comparison and the logs; its name follows from the members

    @cached_property
    def digest(self) -> str:
        return _digest(self.members)

    def find_results(self) -> dict[int, dict[str, Any]]:
        """Return the manifests of the complete members by their numbers."""
        results = {member.number: find_result(member.config) for member in self.members}
        return {number: value for number, value in results.items() if value is not None}

    def pick(self, number: int) -> Member:
        if number >= len(self.members):
            raise UsageError(
                f"there is no member {number}", why=f"the members have the numbers 0 to {len(self.members) - 1}"
            )
        return self.members[number]

    def find_log(self, member: Member) -> Path:
        return self.folder / "logs" / f"{member.number}.log"


def describe_options(options: Options) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def read(file: Path, settings: Settings, *, limit: int) -> Sweep:
    """Read a sweep and check every member.

    Raises UsageError if the file is no sweep, a member is refused, two are equal, or there are more than ``limit``.
    """
    dataset, common, varied = expand(_load(file), limit=limit)
    members: list[Member] = []
    known: dict[str, int] = {}
    for number, options in enumerate(varied):
        arguments = (dataset, *itertools.starmap(_write_option, (common | dict(options)).items()))
        try:
            config = training_job.read_arguments(arguments, settings)
        except ToolkitError as error:
            name = f"member {number} ({describe_options(options) or 'the only one'})"
            raise UsageError(f"{name} is refused: {error.what}", why=error.why, remedy=error.remedy) from error
        twin = known.setdefault(config.digest, number)
        if twin != number:
            raise UsageError(
                f"members {twin} and {number} are the same run",
                why=f"{describe_options(varied[twin])}; and {describe_options(options)}",
                remedy="leave one of them out",
            )
        if config.report_broken and number:
            raise UsageError(
                "members of a sweep would write over each other's list of broken images",
                why="--report-broken names one file, and members run at the same time",
                remedy="leave it out, and let `toolkit train` of one member list them",
            )
        members.append(Member(number=number, options=options, arguments=arguments, config=config))
    name = re.sub(r"[^\w.-]+", "-", file.stem)
    folder = Path(settings.runs) / f"sweep-{name}-{_digest(members).removeprefix('sha256:')[:8]}"
    return Sweep(members=tuple(members), folder=folder)


def _digest(members: Sequence[Member]) -> str:
    return digest.digest_value([member.config.digest for member in members])


def _load(file: Path) -> object:
    try:
        return files.parse_yaml(read_regular(file))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}", why=str(error), remedy="give the YAML file of a sweep") from error


def expand(value: object, *, limit: int) -> tuple[str, dict[str, Value], list[dict[str, Value]]]:
    """Return the data set, the common options, and those of each member. The first name in a grid varies slowest.

    With both a list and a grid, each entry of the list is combined with each point of the grid. Raises UsageError.
    """
    if not isinstance(value, dict) or not isinstance(value.get("dataset"), str) or value.keys() - set(KEYS):
        other = [str(name) for name in value if name not in KEYS] if isinstance(value, dict) else []
        raise UsageError(
            f"a sweep has no key {other[0]!r}" if other else "a sweep is a mapping that names a dataset",
            remedy="its keys are dataset, options (a mapping), grid (a list of values for each option) and list "
            "(mappings, one for each member)",
        )
    given = {name: values for name, values in value.items() if values is not None}
    common = _read_options(given.get("options", {}), "options")
    entries = [_read_options(entry, "list") for entry in _require_list(given.get("list", [{}]), "list")]
    grid = given.get("grid", {})
    axes = {
        str(name): [_read_options({name: option}, "grid")[name] for option in _require_list(values, f"grid: {name}")]
        for name, values in _require_mapping(grid, "grid").items()
    }
    for entry in entries:
        names = [*common, *axes, *entry]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"--{twice[0]} is in the sweep twice", remedy="name it under options, grid or list alone")
    count = len(entries) * math.prod(map(len, axes.values()))
    if count > limit:
        raise UsageError(
            f"the sweep has {count} members, more than {limit}", remedy=f"shorten it, or say --limit {count}"
        )
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return value["dataset"], common, [entry | point for entry in entries for point in points]


def _read_options(value: object, place: str) -> dict[str, Value]:
    for name, entry in _require_mapping(value, place).items():
        if name not in SWITCHES:
            near = difflib.get_close_matches(str(name), SWITCHES, n=1)
            raise UsageError(
                f"{place} has a name that no option has: {name!r}",
                remedy=f"did you mean {near[0]}?" if near else "write it as in `python -m train --help`, as seed",
            )
        if not isinstance(entry, Value):
            remedy = "several values belong under grid" if isinstance(entry, list) else "give text, a number or a truth"
            raise UsageError(f"{place} gives {name} no single value: {entry!r}", remedy=remedy)
        if isinstance(entry, bool) != SWITCHES[name]:
            remedy = "write true or false" if SWITCHES[name] else "write the value that it has in --help"
            raise UsageError(f"{place} gives {name} a value that it cannot have: {entry!r}", remedy=remedy)
    return dict(_require_mapping(value, place))


def _require_mapping(value: object, place: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{place} is not a mapping of options: {value!r}", remedy="write it as {epochs: 10}")
    return value


def _require_list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise UsageError(f"{place} is not a list of values: {value!r}", remedy="write it as [0, 1, 2]")
    return value


def _write_option(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"  # one word, so that no value is read as an option


def run(
    sweep: Sweep, options: Sequence[str], variables: Mapping[str, str], slots: int, console: Console
) -> dict[int, int]:
    """Run the members that are not complete, as commands of their own, and return their exit codes by number.

    One that fails leaves the others alone. An interrupt stops all of them with time for a checkpoint, and is raised
    again. Raises PreflightError if the sweep's folder is not writable.
    """

    def begin(number: int, log: Path) -> None:
        console.heading("start", f"{name(number)}; its log is {shorten(log)}")

    def end(number: int, code: int) -> None:
        result = find_result(sweep.members[number].config)
        ended = f"test accuracy {result['result']['test_accuracy']:.2%}" if result else f"exit code {code}"
        console.heading("end", f"{name(number)}: {ended}")

    def name(number: int) -> str:
        return f"member {number} ({sweep.members[number].label})"

    with _locked(sweep.folder / "logs", console) as lock:
        complete = sweep.find_results()
        console.heading("sweep", f"{len(sweep.members)} members, {len(complete)} complete")
        commands = {
            member.number: processes.LoggedCommand(
                argv=(sys.executable, "-m", "toolkit", "train", *member.arguments, *options), log=sweep.find_log(member)
            )
            for member in sweep.members
            if member.number not in complete
        }
        return processes.CommandPool(
            commands, variables=variables, lock=lock, grace=training_job.GRACE_SECONDS + 30, begin=begin, end=end
        ).run(processes.share_cores(slots))


@contextmanager
def _locked(logs: Path, console: Console) -> Iterator[int]:
    """Hold the sweep's lock, which members inherit: those of a killed command hold it until they end."""
    files.require_writable(logs)
    with (logs / ".lock").open("w") as stream:
        try:
            files.lock_file(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.say("another command runs this sweep, or left members running: waiting for their end")
            files.lock_file(stream, fcntl.LOCK_EX)
        yield stream.fileno()


def pass_on(settings: Settings, engine: str) -> dict[str, str]:
    """Return the variables that give a command the settings of this one; files and variables it finds itself."""
    given = [name for name, source in settings.sources.items() if source in {"flag", DECIDED}]
    return {f"TOOLKIT_{name.upper()}": str(getattr(settings, name)) for name in given} | {"TOOLKIT_ENGINE": engine}


def read_reason(log: Path) -> str:
    """Return the last error in a log with its cause, on one line; without one, its last line."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    places = [index for index, line in enumerate(lines) if line.startswith("error: ")]
    if not places:
        return lines[-1] if lines else "it said nothing"
    first, *rest = lines[places[-1] :]
    why = [line for line in rest[:1] if line.startswith("why: ")]
    return ": ".join(part.partition(": ")[2] for part in [first, *why])


def group(sweep: Sweep, results: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the results of complete members by point and run: a point's members differ in their seeds alone."""
    groups: dict[str, dict[str, Any]] = {}
    for member in sweep.members:
        if member.number in results:
            groups.setdefault(member.point, {})[member.config.run_dir.name] = results[member.number]["result"]
    return groups


def plan_picture(sweep: Sweep, results: Mapping[int, object]) -> Job:
    """Return the job that draws the curves of the complete members; it can read their folders alone."""
    folders = [member.config.run_dir for member in sweep.members if member.number in results]
    runs = [Mount(source=folder, target=f"{training_job.RUNS}/{folder.name}") for folder in folders]
    picture = Mount(source=sweep.folder / PICTURE, target=f"/out/{PICTURE}")
    return Job(
        title="compare",
        argv=("-P", "-m", "train.compare", *runs, "--band", "--out", picture),
        mounts=(*runs, Mount(source=sweep.folder, target="/out", writable=True)),
    )


def summarize(sweep: Sweep, codes: Mapping[int, int], engine: Engine, environment: Environment) -> dict[str, Any]:
    """Write table, picture and, last, the manifest of the complete members, and return what the manifest says.

    Raises JobError if the picture could not be drawn, PreflightError if the folder is not writable.
    """
    results = sweep.find_results()
    files.require_writable(sweep.folder)
    rows = tabulate(group(sweep, results))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_atomically(sweep.folder / TABLE, text.getvalue())
    code = engine.run(environment, plan_picture(sweep, results), lambda _line: None)
    if code:
        raise JobError("drawing the comparison", code)
    facts = {
        "points": rows,
        "members": describe_members(sweep, codes),
        "files": {name: digest.digest_file(sweep.folder / name) for name in (TABLE, PICTURE)},
    }
    manifest.write(sweep.folder, manifest.Manifest(kind="sweep", digest=sweep.digest, facts=facts))
    return {"sweep": str(sweep.folder), "digest": sweep.digest, **facts}


def describe_members(sweep: Sweep, codes: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return what is known of each member: a complete one has its weights, one that failed its exit code and reason."""
    results, members = sweep.find_results(), []
    for member in sweep.members:
        value: dict[str, Any] = {
            "number": member.number,
            "options": dict(member.options),
            "arguments": list(member.arguments),
            "run": str(member.config.run_dir),
            "config_sha256": member.config.digest,
            "status": "missing",
        }
        if member.number in results:
            value |= {"status": "complete", "weights_sha256": results[member.number]["weights_sha256"]}
        elif member.number in codes:
            reason = read_reason(sweep.find_log(member))
            value |= {"status": "failed", "exit_code": codes[member.number], "reason": reason}
        members.append(value)
    return members


def require_complete(sweep: Sweep, codes: Mapping[int, int], console: Console) -> None:
    """Print the members that are not complete.

    Raises JobError, with the exit code of the first member that failed, and CheckError if none failed but some have not
    run.
    """
    members = [value for value in describe_members(sweep, codes) if value["status"] != "complete"]
    failed = [value for value in members if value["status"] == "failed"]
    for value in members:
        why = f"exit code {value['exit_code']}: {value['reason']}" if value in failed else "it is not complete"
        console.say(
            f"{value['status']:<8} member {value['number']} ({describe_options(value['options']) or 'all'}): {why}"
        )
    count = f"{len(members)} of {len(sweep.members)} members"
    if failed:
        logs = f"the logs are in {shorten(sweep.folder)}/logs; the same command leaves complete members alone"
        raise JobError(
            count, failed[0]["exit_code"] or 1, why=f"member {failed[0]['number']}: {failed[0]['reason']}; {logs}"
        )
    if members:
        raise CheckError(f"{count} are not complete", remedy="run the sweep, or these members, and compare them again")


def show(sweep: Sweep, members: Sequence[Member], options: Sequence[str], console: Console) -> None:
    """Print the members, each as the command that would run it."""
    results = sweep.find_results()
    commands = {member.number: ["toolkit", "train", *member.arguments, *options] for member in members}
    lines = [
        f"{shlex.join(commands[member.number])}  # {member.number}: {shorten(member.config.run_dir)}"
        + (", complete" if member.number in results else "")
        for member in members
    ]
    value = {"sweep": str(sweep.folder), "members": describe_members(sweep, {}), "commands": list(commands.values())}
    console.result(value, "\n".join(lines))
