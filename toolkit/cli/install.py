import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.base.errors import UsageError
from toolkit.base.project import DIST
from toolkit.cli.command import AllowUnsigned, From, Session, Trust, command
from toolkit.jobs.wheels import obtain_graft, order, read_origin
from toolkit.versions.set import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.base.interpreters import Interpreter
    from toolkit.graft.graft_plan import GraftPlan
    from toolkit.install.installation import Installation
    from toolkit.install.package_set import Resolved
    from toolkit.install.target import Target
    from toolkit.jobs.choice import Chosen
    from toolkit.records.obtaining import WheelSource
    from toolkit.versions.settings import Settings
    from toolkit.wheel.wheel_folder import FinishedWheel


@command(*VERSIONS, "card", "ca_bundle", "downloads", remember=True, long=True)
def install(
    session: Session,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The environment; a new one if there is no such folder. Default: the active."),
    ] = None,
    system: Annotated[
        bool,
        typer.Option("--system", help="Take a Python of your own that is in no environment: of an image, of pyenv."),
    ] = False,
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="A wheel of your own, such as dist/NAME, and its set.")
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Install nothing: write a file with hashes for `pip install -r FILE`."),
    ] = None,
    pyproject: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Install nothing: write it into a project of uv, or say how another gets it."),
    ] = None,
    from_: From = "",
    trust: Trust = None,
    allow_unsigned: AllowUnsigned = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Bring back what the last installation has replaced, and do nothing else.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Do not ask before packages get another version, or a graft is made."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
) -> None:
    """Install a TensorFlow, and exactly the NVIDIA packages that it needs, into an environment of your own.

    That is the active venv or conda environment, or the one of --into. If the card needs a graft, it is made first;
    with --from, it is downloaded from a registry that has it. With --trust, a wheel that you name is refused unless
    it is signed (exit code 8). Your packages keep their versions if TensorFlow runs with them. What would change is
    said first, and needs --yes or an answer. Each package is checked by its hash, and nothing is touched before
    everything is downloaded. At the end, the checks of `toolkit smoke` run there (exit code 7: one failed).
    """
    from toolkit.install import installation, target
    from toolkit.jobs.choice import read_wheel_option

    if undo:
        place = target.find(into, system=system)
        if place is None:
            raise UsageError(f"there is no environment {into}", remedy="name the one that was changed")
        if dry_run:
            session.console.result({"dry_run": True}, "nothing was changed: this is a dry run")
            return
        installation.revert(place, session.console)
        session.console.result({"environment": str(place.folder)}, f"undone: {place.folder} has what it had before")
        return
    file = str(wheel) if wheel else None
    if file and from_:
        raise UsageError("--wheel and --from exclude each other", remedy="leave one of them out")
    named = read_wheel_option(file)
    source = read_origin(session.settings, from_, trust, allow_unsigned=allow_unsigned, reuses=named is not None)
    if named and trust:
        source.require_trusted(named.parent, "")
    if requirements or pyproject:
        _write(session, into, file, requirements=requirements, project=pyproject, source=source, yes=yes)
    else:
        _install(session, target.find(into, system=system), into, file, source=source, yes=yes, dry_run=dry_run)


def _write(
    session: Session,
    into: Path | None,
    named: str | None,
    *,
    requirements: Path | None,
    project: Path | None,
    source: "WheelSource",
    yes: bool,
) -> None:
    """Write what another program is to install. For a GPU, this is a wheel that finds NVIDIA's libraries by itself."""
    from toolkit.graft import graft_plan
    from toolkit.install import installation, package_set, projects, target
    from toolkit.versions.table import load_table

    manager = projects.find(project) if project else projects.UV
    console, active = session.console, target.find_active(into)
    chosen = _decide(session, active, named, source=source, yes=yes, dry_run=False)
    settings, wheel = (chosen.settings, chosen.wheel) if chosen else (session.settings, None)
    if settings.cuda and wheel is None:
        repair = graft_plan.plan_graft(load_table(), settings, graft_plan.GraftRequest(mode="repair"))
        made = _graft(session, repair, source=source, yes=yes, dry_run=False)
        wheel = made.wheel.resolve() if made else None
    resolved = package_set.resolve(settings, wheel, _choose_python(settings, active, wheel), {}, console)
    written: list[str] = []
    commands: list[str] = []
    if project:
        written, command = projects.write(manager, project, resolved.packages, resolved.uv)
        commands.append(command)
    if requirements:
        installation.write_requirements(requirements, resolved.packages, resolved.chosen.describe())
        written.append(str(requirements))
        commands.append(f"pip install -r {requirements}")
    console.result(
        {"written": written, **resolved.to_json()},
        f"wrote {' and '.join(written) or 'nothing'}: {len(resolved.packages)} packages\n"
        f"install them: {' or '.join(commands)}",
    )


def _install(
    session: Session,
    place: "Target | None",
    into: Path | None,
    named: str | None,
    *,
    source: "WheelSource",
    yes: bool,
    dry_run: bool,
) -> None:
    from toolkit.install import changes, installation, package_set, projects, target
    from toolkit.install.installed import list_installed

    console = session.console
    if place and not dry_run:
        installation.recover(place, console)
    chosen = _decide(session, place, named, source=source, yes=yes, dry_run=dry_run)
    if chosen is None:
        console.result({"dry_run": True}, "nothing was changed: this is a dry run")
        return
    settings, wheel = chosen.settings, chosen.wheel
    python = _choose_python(settings, place, wheel)
    place = place or target.plan_new(into or Path(), python)
    there = {} if place.new else list_installed(python)
    resolved = package_set.resolve(settings, wheel, python, there, console)
    planned = installation.Installation(
        target=place,
        packages=resolved.packages,
        changes=changes.compare(resolved.packages, there),
        uv=resolved.uv,
    )
    changes.require_apart(planned.changes, there)
    beside = [] if into else [Path.cwd()]  # an active environment may lie elsewhere, as Poetry's do
    for line in (*planned.changes.describe(), *projects.describe([*place.folder.parents[:3], *beside])):
        console.say(f"  {line}")
    console.heading("install", f"{planned.changes.summarize()} in {place.folder}")
    console.add({"environment": str(place.folder), "changes": planned.changes.to_json(), **resolved.to_json()})
    if dry_run:
        if not place.new:
            installation.foretell_repair(python.packages, console)
        console.result({"dry_run": True}, "nothing was changed: this is a dry run")
        return
    names = [change.describe() for change in planned.changes.changed] + list(planned.changes.broken)
    if planned.changes.needs_consent and not yes and not _ask(session, names, "change them?"):
        console.result({"smoke": None}, "nothing was changed")
        return
    installation.install(planned, console)
    _check(session, planned, resolved)


def _decide(
    session: Session, place: "Target | None", wheel: str | None, *, source: "WheelSource", yes: bool, dry_run: bool
) -> "Chosen | None":
    """Return what fits the card, and say why; what was asked for stays.

    A graft that the card needs is fetched or made first. None if a dry run ends before it.
    """
    from toolkit.jobs.choice import Manner, Wishes, choose

    how = Manner(console=session.console, dry_run=dry_run, require_trusted=source.require_trusted)
    python = place.python.minor if place else ""
    chosen = choose(Wishes(settings=session.settings, wheel=wheel, installs=True, python=python), how)
    if chosen.decision:
        session.console.add({"decision": chosen.decision.to_json()})
    if chosen.missing is None:
        return chosen
    made = _graft(session, chosen.missing, source=source, yes=yes, dry_run=dry_run)
    return chosen.take(made) if made else None


def _graft(
    session: Session, planned: "GraftPlan", *, source: "WheelSource", yes: bool, dry_run: bool
) -> "FinishedWheel | None":
    """Fetch or make a wheel of a plan. None in a dry run. Raises UsageError if nobody agrees to it."""
    from toolkit.doctor.advice import estimate_graft
    from toolkit.versions.table import load_table

    how = f"fetched from {source.registry}, or made if it has none" if source.registry else "made for that first"
    question = f"a wheel is {how}, in {DIST}: {estimate_graft(load_table())}"
    if not dry_run and not yes and not (DIST / planned.name).exists() and not _ask(session, [question], "make it?"):
        raise UsageError(
            "nothing was installed: the card needs that wheel",
            remedy="type the same again and answer y, or give --yes; --card none installs one for the processor",
        )
    return obtain_graft(planned, order(session.settings, session.console, DIST, source, dry_run=dry_run))


def _choose_python(settings: "Settings", place: "Target | None", wheel: Path | None) -> "Interpreter":
    """Return the Python of an environment, or that for a new one. Raises UsageError if another one was asked for."""
    from toolkit.install import package_set, target

    asked = settings.asked.python
    if place is None:
        return target.choose_python(package_set.list_pythons(settings, wheel), asked)
    if asked and asked != place.python.minor:
        raise UsageError(
            f"{place.folder} has Python {place.python.minor}, and {asked} was asked for",
            why=f"python: {asked} (from {settings.sources['python']})",
            remedy="leave out --python, or name a folder for a new environment with --into",
        )
    return place.python


def _ask(session: Session, lines: "Sequence[str]", question: str) -> bool:
    """Ask whether something may be done. Raises UsageError if there is no terminal to ask on."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "nothing was changed: that needs an answer, and there is no terminal to ask on",
            why="; ".join(lines),
            remedy="give --yes; --dry-run says what would be done",
        )
    return session.console.ask("\n".join([*(f"  {line}" for line in lines), question]))


def _check(session: Session, done: "Installation", found: "Resolved") -> None:
    """Run the checks in an environment, and say how it is used. Raises CheckError if one failed."""
    from toolkit.checks.check import Expectation
    from toolkit.smoke import runner

    console, spec = session.console, found.chosen.spec
    # The releases of CUDA and cuDNN follow from the hashes. Another ptxas in the user's PATH is taken if it will do.
    expectation = Expectation(version=spec.tensorflow, instructions=spec.instructions)
    place = done.target
    report = runner.run_in(place.folder, expectation, console)
    console.heading("smoke", report.summary)
    if report.failures:
        console.say(runner.render(report).rstrip())
    console.result(
        {"program": str(place.program), "constraint": done.constraint, "smoke": report.to_json()},
        f"TensorFlow {report.tensorflow or spec.tensorflow} is in {place.folder}\n"
        f"use it:  {shlex.quote(str(place.program))} your_program.py\n"
        f"keep it: give later installations `-c FILE` with the line {done.constraint}",
    )
    report.require_pass()
