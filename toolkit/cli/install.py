import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command import Session, command
from toolkit.errors import UsageError
from train.system.progress import Work

if TYPE_CHECKING:
    from toolkit.install.changes import Changes
    from toolkit.install.choice import Choice
    from toolkit.install.packages import Package
    from toolkit.install.pip import Pip
    from toolkit.install.target import Target
    from toolkit.interpreters import Interpreter
    from toolkit.settings import Settings


@command("tensorflow", "python", "cuda", "cudnn", "card", "ca_bundle", "downloads", remember=True, long=True)
def install(
    session: Session,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The environment; a new one if there is no such folder. Default: the active."),
    ] = None,
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="A wheel of your own, such as dist/NAME, and its set.")
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Install nothing: write a file with hashes for `pip install -r FILE`."),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Do not ask before packages of the environment get another version."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
) -> None:
    """Install a TensorFlow, and exactly the NVIDIA packages that it needs, into an environment of your own.

    That is the active venv or conda environment, or the one of --into. Each package is checked by its hash. It is said
    first what would change. Packages of the environment that are to get another version, or to be removed, are named,
    and that needs --yes or an answer. At the end, the checks of `toolkit smoke` run there (exit code 7: one failed).
    However the command ends, the environment is as before, or has everything.
    """
    from toolkit.install import changes, installation, target
    from toolkit.pipeline import read_wheel_option

    console = session.console
    file = read_wheel_option(str(wheel)) if wheel else None
    if requirements:
        active = target.find_active(into)
        settings, file = _decide(session, active, file)
        resolved = _resolve(session, settings, _choose_python(settings, active, file), file)
        installation.write_requirements(requirements, resolved.packages, resolved.chosen.describe())
        if resolved.chosen.spec.cuda and not file:
            console.say(
                "pip installs the published wheel as it is; one of `toolkit graft --repair` finds NVIDIA's libraries "
                "without LD_LIBRARY_PATH in every version"
            )
        console.result(
            {"requirements": str(requirements), **resolved.to_json()},
            f"wrote {requirements}: {len(resolved.packages)} packages\ninstall them: pip install -r {requirements}",
        )
        return
    place = target.find(into)
    settings, file = _decide(session, place, file)
    python = _choose_python(settings, place, file)
    place = place or target.plan_new(into or Path(), python)
    resolved = _resolve(session, settings, python, file)
    planned = installation.Installation(
        target=place,
        packages=resolved.packages,
        changes=changes.compare(resolved.packages, {} if place.new else changes.list_installed(python), python),
        pip=resolved.pip,
    )
    for line in planned.changes.describe():
        console.say(f"  {line}")
    console.heading("install", f"{planned.changes.summarize()} in {place.folder}")
    console.add({"environment": str(place.folder), "changes": planned.changes.to_json(), **resolved.to_json()})
    if dry_run:
        console.result({"dry_run": True}, "nothing was changed: this is a dry run")
        return
    if planned.changes.needs_consent and not yes and not _ask(session, planned.changes):
        console.result({"smoke": None}, "nothing was changed")
        return
    installation.install(planned, console)
    _check(session, place, resolved.chosen)


@dataclass(frozen=True, kw_only=True)
class _Found:
    chosen: "Choice"
    pip: "Pip"
    packages: "tuple[Package, ...]"

    def to_json(self) -> dict[str, object]:
        spec = self.chosen.spec
        value = {name: getattr(spec, name) for name in ("tensorflow", "python", "cuda", "cudnn")}
        return {**value, "wheel": str(spec.wheel) if spec.wheel else ""}


def _decide(session: Session, place: "Target | None", wheel: Path | None) -> "tuple[Settings, Path | None]":
    """Return the settings and the wheel that fit the card, and say why; what was asked for stays."""
    from toolkit.doctor.decision import describe_cards
    from toolkit.engine import gpus
    from toolkit.install import choice
    from toolkit.pipeline import DIST

    console, settings = session.console, session.settings
    python = place.python.minor if place else ""
    decision = None if wheel else choice.decide_for(settings, python)
    if decision is None:
        return settings, wheel
    console.add({"decision": decision.to_json()})
    name = describe_cards(decision.devices) if decision.devices else "none"
    console.heading("card", f"{name}: {decision.reason}")
    for line in decision.warnings:
        console.say(f"  {line}")
    if decision.remedy:
        later = "" if decision.way == "cpu" else "; until then it computes on the processor"
        console.say(f"  first: {decision.remedy}{later}")
    gpus.grant(decision.visible)
    asked = settings.python if settings.sources["python"] != "default" else ""
    return choice.apply(decision, settings, python or asked, DIST)


def _choose_python(settings: "Settings", place: "Target | None", wheel: Path | None) -> "Interpreter":
    """Return the Python of an environment, or that for a new one. Raises UsageError if another one was asked for."""
    from toolkit.install import choice, target

    asked = settings.python if settings.sources["python"] != "default" else ""
    if place is None:
        return target.choose_python(choice.list_pythons(settings, wheel), asked)
    if asked and asked != place.python.minor:
        raise UsageError(
            f"{place.folder} has Python {place.python.minor}, and {asked} was asked for",
            why=f"python: {asked} (from {settings.sources['python']})",
            remedy="leave out --python, or name a folder for a new environment with --into",
        )
    return place.python


def _resolve(session: Session, settings: "Settings", python: "Interpreter", wheel: Path | None) -> _Found:
    """Return the packages to install, with the pip that installs them."""
    from toolkit.install import choice, packages, pip

    console = session.console
    chosen = choice.choose(settings, wheel, python.minor)
    console.heading("set", f"{chosen.describe()}, Python {python.version}")
    folder = Path(settings.downloads) / "packages" if settings.downloads else None
    tool = pip.find(python.path, ca_bundle=settings.ca_bundle, packages=folder)
    locked = packages.read_locked(chosen.spec.locked.read_text(), packages.describe_environment(python))
    with console.follow("resolve") as status:
        resolved = packages.select_packages(
            tool,
            python,
            locked,
            chosen.roots,
            wheel=chosen.spec.wheel,
            digest=chosen.digest,
            show=lambda line: status.show(Work(line)),
        )
    return _Found(chosen=chosen, pip=tool, packages=resolved)


def _ask(session: Session, changes: "Changes") -> bool:
    """Ask whether packages may be changed. Raises UsageError if there is no terminal to ask on."""
    names = [change.describe() for change in changes.changed] + list(changes.broken)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "nothing was changed: packages of the environment would be, and there is no terminal to ask on",
            why="; ".join(names),
            remedy="give --yes, or a folder for a new environment with --into DIR",
        )
    return session.console.ask("\n".join([*(f"  {name}" for name in names), "change them?"]))


def _check(session: Session, place: "Target", chosen: "Choice") -> None:
    """Run the checks in an environment, and say how it is used. Raises CheckError if one failed."""
    from toolkit.smoke import runner
    from toolkit.smoke.checks.check import Expectation

    console, spec = session.console, chosen.spec
    # The releases of CUDA and cuDNN follow from the hashes. Another ptxas in the user's PATH is taken if it will do.
    expectation = Expectation(version=spec.tensorflow, instructions=spec.instructions)
    report = runner.run_in(place.folder, expectation, console)
    console.heading("smoke", report.summary)
    if report.failures:
        console.say(runner.render(report).rstrip())
    program = shlex.quote(str(place.program))
    console.result(
        {"program": str(place.program), "smoke": report.to_json()},
        f"TensorFlow {report.tensorflow or spec.tensorflow} is in {place.folder}\nuse it:  {program} your_program.py",
    )
    report.require_pass()
