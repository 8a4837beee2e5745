"""Chooses the versions and the engine of a command, and plans its tasks: environment, smoke checks, training."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.base import manifest
from toolkit.base.console import Console
from toolkit.base.errors import (
    EngineError,
    GpuError,
    IntegrityError,
    PreflightError,
    ToolkitError,
    UnsupportedError,
    UsageError,
)
from toolkit.base.project import shorten
from toolkit.base.steps import Step, Task
from toolkit.engine import Engine, Environment, EnvironmentPlan, EnvironmentSpec, Job, Platform, gpus
from toolkit.engine.host import HostEngine, find_driver_program, has_gpu, hides_gpus
from toolkit.jobs import training_job
from toolkit.smoke import runner
from toolkit.smoke.checks.check import Expectation
from toolkit.smoke.runner import Report
from toolkit.versions import Set, find_locked, load_table, plan_set
from toolkit.versions.settings import EngineName, Settings, find_own_platform, is_crossed, require_own_platform
from toolkit.wheel import wheel_folder
from train.cli import find_result
from train.config.configuration import TrainConfig
from train.record.reader import find_change

if TYPE_CHECKING:
    from toolkit.doctor.decision import Decision
    from toolkit.doctor.machine import Machine
    from toolkit.wheel.inspection import Inspection

DIST = Path("dist")
"""Default folder of finished wheels."""

PUBLISHED = "pypi"
"""The value of `--wheel` for the published wheel."""


@dataclass(frozen=True, kw_only=True)
class Request:
    settings: Settings
    wheel: str | None = None  # the value of ``--wheel``
    gpu: bool | None = None  # whether jobs get GPUs; None: if the set is for CUDA and the engine has a GPU
    target: str = "train"  # stage of docker/Dockerfile, for an image
    tag: str = ""  # name of the image; empty: derived from its plan
    elsewhere: bool = False  # whether its jobs run on other machines, whose GPUs are not known here
    runs: bool = True  # whether anything is to run in it; if not, it may be for another platform than this machine's
    dry_run: bool = False  # only print what would run; no image is pulled
    # raises an error if the artifact at this path with this digest must not be reused; by default all that has this
    # user's seal may be
    require_trusted: Callable[[Path, str], object] = wheel_folder.require_own


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    engine: Engine
    why: str


@dataclass(frozen=True, kw_only=True)
class ReadyEnvironment:
    request: Request
    engine: Engine
    why: str
    plan: EnvironmentPlan | None  # how the environment is made; None if an existing one was chosen
    existing: Environment | None = None  # the environment, if it exists and is up to date

    @property
    def reference(self) -> str:
        return self.plan.reference if self.plan else self.existing.reference if self.existing else ""

    def step(self, job: Job, *outputs: str) -> Step:
        """Return the step that runs a job in the environment."""
        inputs = {"environment": self.existing.digest if self.existing else ""}
        commands = self.engine.commands(self.reference, job)
        return Step(title=job.title, commands=commands, inputs=inputs, outputs=outputs)

    @property
    def instructions(self) -> tuple[str, ...]:
        """The processor instructions that its TensorFlow needs beyond AVX, as far as a record tells."""
        return self.plan.spec.instructions if self.plan else self.existing.instructions if self.existing else ()

    @cached_property
    def gpu(self) -> bool:
        asked = self.request.gpu
        return asked if asked is not None else self.uses_gpu and self.engine.has_gpu()

    @property
    def uses_gpu(self) -> bool:
        """Whether its TensorFlow can compute on a GPU."""
        return self.plan.spec.uses_gpu if self.plan else bool(self.request.settings.cuda)


ANSWER_SECONDS = 5
"""How long a command waits for the driver to name the GPUs of this machine."""


def choose_set(request: Request, console: Console, decision: "Decision | None" = None) -> Request:
    """Return the request with the set that fits the GPUs of this machine, or the card that is named.

    It prints the cards and the decision, unless the caller passes a ``decision``. Versions and a wheel that the user
    named stay as they are. If the decision is a graft, a finished graft is taken.

    Raises GpuError if a GPU was asked for and cannot be used, or if the graft has still to be made; UnsupportedError if
    what was asked for does not fit the card.
    """
    decision = decision or decide_set(request, console)
    if decision is None:
        return _choose_cpu_set(request)
    chosen = apply_decision(request, decision)
    if request.wheel not in {None, PUBLISHED} or not (decision.uses_gpu and decision.grafted):
        return chosen
    wheel = find_wheel(decision, chosen.settings, DIST, chosen.settings.python, request.require_trusted)
    if wheel is None:
        named = " and ".join(dict.fromkeys(device.name for device in decision.devices))
        raise GpuError(
            f"{named} needs a grafted wheel, and there is none yet",
            why=decision.way.reason,
            remedy=f"`toolkit up` makes it in minutes, as `{decision.way.command}` does; "
            "--card none runs on the processor",
        )
    console.heading("graft", shorten(wheel.folder))
    return replace(chosen, wheel=str(wheel.folder))


def find_wheel(
    decision: "Decision",
    settings: Settings,
    dist: Path,
    python: str,
    require: wheel_folder.Require = wheel_folder.require_own,
) -> wheel_folder.FinishedWheel | None:
    """Return the wheel in ``dist`` that serves a decision for which no published one will do; None if there is none.

    ``python``: for which it must be, or empty. Raises IntegrityError if none that would serve may be taken unasked.
    """
    from toolkit.graft import graft_plan

    request = graft_plan.GraftRequest(cards=decision.grafted)
    planned = graft_plan.plan_graft(load_table(), settings, request) if decision.grafted else None
    need = wheel_folder.Need(
        versions=replace(decision.versions, python=python),
        capabilities=decision.capabilities,
        plan=planned,
    )
    return wheel_folder.search(need, dist, require)


def decide_set(request: Request, console: Console) -> "Decision | None":
    """Return the decision that a command is to carry out, and say it; None if the user has decided.

    Raises what :func:`choose_set` raises.
    """
    settings = request.settings
    named = settings.card not in {"auto", "none"}
    if settings.card == "none" and request.gpu:
        raise UsageError("a GPU is asked for, and --card none asks for the processor", remedy="leave one of them out")
    if not named and not _leaves_choice(request):
        return None
    from toolkit.doctor.decision import decide  # not all commands decide, and they start faster without it

    machine = _read_machine(request, named=named)
    decision = decide(machine, settings.asked, card=settings.card)
    if request.gpu and not decision.uses_gpu:
        raise GpuError(
            "a GPU was asked for, and none can be used",
            why=decision.way.reason,
            remedy=decision.remedy or (decision.way.command if decision.way.kind != "cpu" else "leave out --gpu"),
        )
    _say_decision(machine, decision, console, wanted=request.gpu is not False)
    gpus.grant(decision.visible if decision.uses_gpu else "")
    return decision


def _leaves_choice(request: Request) -> bool:
    """Return whether a user who names no card leaves it to the machine what to run."""
    closed = request.settings.card == "none" or request.gpu is False or request.elsewhere
    return _leaves_versions(request) and not closed and request.settings.platform == find_own_platform()


def _leaves_versions(request: Request) -> bool:
    """Return whether neither versions nor a wheel, an image or downloaded packages were asked for."""
    settings = request.settings
    given = request.wheel not in {None, PUBLISHED} or settings.archive or settings.downloads
    return not (given or _names_versions(settings))


def _names_versions(settings: Settings) -> bool:
    return any(settings.sources.get(name, "default") != "default" for name in ("tensorflow", "cuda", "cudnn"))


def _take_archive(request: Request) -> Request:
    """Return the request with the versions of the image in the archive, if they can be read."""
    from toolkit.engine.apptainer import read_archive

    settings = request.settings
    try:
        held = read_archive(Path(settings.archive)).versions
    except UsageError:  # the engine says so
        return request
    settings = settings.take(replace(held, python=settings.python))
    return replace(request, settings=settings) if held.tensorflow else request


def _choose_cpu_set(request: Request) -> Request:
    """Return a request for which no card decides: with the newest CPU set, or unchanged if the user has chosen.

    Without named versions, an archive decides: the request then has the versions of the image in it.
    """
    settings = request.settings
    if settings.card == "none" and request.gpu is None:
        request = replace(request, gpu=False)
    if settings.archive and not _names_versions(settings):
        return _take_archive(request)
    if request.gpu or not _leaves_versions(request):
        return request
    from toolkit.doctor.decision import decide
    from toolkit.doctor.machine import Machine

    engine = "" if settings.engine == "auto" else settings.engine
    machine = Machine(platform=settings.platform, engine=engine, glibc=platform.libc_ver()[1])
    return apply_decision(request, decide(machine, settings.asked, card="none"))


def _read_machine(request: Request, *, named: bool) -> "Machine":
    """Return this machine, as its engine sees it; without its GPUs if they are hidden or not meant."""
    from toolkit.doctor.machine import Machine
    from toolkit.doctor.reading import read_machine

    settings = request.settings
    if request.elsewhere:
        return Machine(platform=settings.platform)
    if hides_gpus() and not named:
        return Machine(platform=settings.platform, engine="" if settings.engine == "auto" else settings.engine)
    machine = read_machine(settings, seconds=ANSWER_SECONDS)
    if not machine.devices or settings.engine not in {"auto", "docker"}:
        return machine
    try:
        engine = choose_engine(settings).engine
    except ToolkitError:  # the command that needs it says so
        return machine
    runtime = engine.has_gpu() if engine.name == "docker" else None
    kept = settings.engine == "docker" or engine.name == "host"
    return replace(machine, has_nvidia_runtime=runtime, engine=engine.name if kept or runtime else "")


def apply_decision(request: Request, decision: "Decision") -> Request:
    """Return the request with the set of a decision, or with the CPU set if no GPU can be used now."""
    settings = request.settings
    chosen = settings.versions.merge(decision.versions)
    engine: EngineName = "host" if settings.engine == "auto" and decision.on_host else settings.engine
    if not decision.uses_gpu:
        processors = next((way.versions.tensorflow for way in decision.ways if way.kind == "cpu"), settings.tensorflow)
        chosen = replace(settings.versions, tensorflow=processors, python=decision.versions.python)
        engine = settings.engine
    return replace(request, settings=settings.take(chosen, engine=engine))


def _say_decision(machine: "Machine", decision: "Decision", console: Console, *, wanted: bool) -> None:
    """Say which cards were found, what runs, why, and what would have to be done first."""
    from toolkit.doctor.decision import WITHOUT_GPU, describe_cards
    from toolkit.versions.rules import warn_of_advisories

    if not decision.devices and not machine.devices:
        console.heading("card", f"none: {decision.way.reason}")
    else:
        console.heading("card", describe_cards(decision.devices or machine.devices))
        name = decision.versions.describe() if decision.uses_gpu else "the CPU set"
        console.heading("set", f"{name}: {decision.way.reason}")
    may_have_gpu = bool(machine.devices or decision.devices or (machine.fault and machine.fault.id not in WITHOUT_GPU))
    lines = [f"first: {decision.remedy}"] if decision.remedy and may_have_gpu else []
    known = warn_of_advisories(load_table(), decision.versions.tensorflow)  # which `up` says of the set that it takes
    lines += [line for line in decision.warnings if line != known] if may_have_gpu and wanted else []
    for line in lines:
        console.say(f"  {line}")
    if may_have_gpu and not decision.uses_gpu and decision.way.kind != "cpu":
        console.say(f"  then: {decision.way.command}")


def choose_environment(request: Request, console: Console) -> ReadyEnvironment:
    """Choose the engine and the environment, and check a user's wheel against the base image.

    A missing base image is pulled, except in a dry run. If the set and the GPUs do not go together, a line says so.

    Raises UsageError if a GPU is asked for and the set cannot use one, UnsupportedError if the versions are
    incompatible or the wheel cannot run, IntegrityError if the wheel is damaged, EngineError, and PreflightError if
    there is no base image.
    """
    things = "environments and jobs are made" if request.runs else "such images are made"
    require_own_platform(request.settings, things, crossed=not request.runs)
    spec = choose_spec(request.settings)
    wheel = read_wheel_option(request.wheel)
    if request.settings.cuda and not wheel:
        remedy = "give --wheel with one that was built, or leave out --cuda"
        load_table().require_gpu_code(request.settings.platform, "no set for CUDA has TensorFlow", remedy)
    if request.gpu and not request.settings.archive:  # an archive says which set it holds when it is planned
        _require_gpu_code(request, wheel)
    choice = choose_engine(request.settings, target=request.target, tag=request.tag)
    console.heading("engine", f"{choice.engine.name}: {choice.why}")
    if wheel:
        platform = choice.engine.find_platform(fetch=not request.dry_run)
        spec = use_wheel(spec, wheel, platform, machine=load_table().platform(request.settings.platform).machine)
    plan = choice.engine.plan(spec)
    if request.gpu and request.settings.archive:
        _require_gpu_code(request, wheel)
    existing = choice.engine.find(plan)
    if existing and not _is_trusted(request, existing.folder, existing, console):
        plan, existing = replace(plan, force=True), None
    resolved = ReadyEnvironment(request=request, engine=choice.engine, why=choice.why, plan=plan, existing=existing)
    if line := _describe_gpu(resolved):
        console.heading("gpu", line)
    return resolved


def _require_gpu_code(request: Request, wheel: Path | None) -> None:
    """Raise UsageError if the TensorFlow that is asked for cannot compute on a GPU. It names one that can."""
    from toolkit.doctor import unused  # a usual command asks for no GPU, and starts faster without it

    settings = request.settings
    flags = _find_wheel_flags(settings, wheel) if wheel else ""
    if wheel and flags is None:
        raise UsageError(
            f"a GPU was asked for, and {wheel.name} has no code for one",
            why="it is a build for processors alone",
            remedy="give a wheel that was built for CUDA, or do not ask for a GPU",
        )
    if not settings.cuda:
        of_wheel = f"add {flags or '--cuda and --cudnn of what it was built for'}"
        advice = of_wheel if wheel else unused.advise_flags(settings, here=not request.elsewhere)
        name = f"{wheel.name} in the CPU set" if wheel else settings.versions.describe()
        kind = "NVIDIA's libraries are not in it" if wheel else "it has neither GPU code nor NVIDIA's libraries"
        raise UsageError(
            f"a GPU was asked for, and this is {name}",
            why=f"{kind}, so that everything would run on the processor",
            remedy=f"{advice}, or do not ask for a GPU",
        )


def _find_wheel_flags(settings: Settings, wheel: Path) -> str | None:
    """Return the options of the set that a user's wheel for CUDA needs; None if it is for processors alone.

    Empty: no set is known for it.
    """
    from toolkit.wheel import inspection

    inspected = inspection.inspect(wheel)
    if not inspected.build.is_cuda:
        return None
    found = find_wheel_set(inspected, wheel, settings.python)
    return " ".join(found.libraries.flags()) if found else ""


def find_wheel_set(inspected: "Inspection", wheel: Path, python: str) -> Set | None:
    """Return the set of a wheel for CUDA: that of its record, or without one a set that is new enough, or None."""
    from toolkit.doctor import unused

    record = manifest.read(wheel.parent)
    spec = (record.facts.get("lock") or {}).get("spec", {}) if record and record.digest == inspected.digest else {}
    if (recorded := Set.of(spec)).cuda and recorded.cudnn:
        return recorded
    return unused.find_set(Set(tensorflow=inspected.public_version, python=python, cuda=inspected.build.cuda))


def _describe_gpu(resolved: ReadyEnvironment) -> str:
    """Return one line if the set and the GPUs of this machine do not go together; empty if there is nothing to say."""
    request = resolved.request
    if request.gpu is False:
        return ""
    if request.elsewhere:
        idle = resolved.uses_gpu and not request.gpu
        return "none is asked for: this set for CUDA computes on processors; --gpus N asks for GPUs" if idle else ""
    if not resolved.uses_gpu:
        return _describe_unused(resolved)
    return "" if not request.runs or resolved.engine.has_gpu() else _describe_missing(resolved)


def _describe_missing(resolved: ReadyEnvironment) -> str:
    """Return one line that says what becomes of jobs of a set for CUDA, where the engine has no GPU."""
    why = f"the {resolved.engine.name} engine shows no GPU here"
    if resolved.request.gpu:
        return f"{why}: a job that finds none ends with exit code {GpuError.exit_code}"
    return f"{why}: this set for CUDA computes on the processor; `toolkit doctor` says what is missing"


def _describe_unused(resolved: ReadyEnvironment) -> str:
    """Return one line about a GPU that a set or a wheel of the user's own choice leaves unused."""
    plan, settings = resolved.plan, resolved.request.settings
    chosen = settings.asks("tensorflow") or settings.asks("cuda")
    wheel = plan.spec.wheel if plan else None
    if hides_gpus() or not (has_gpu() or find_driver_program()) or not (wheel or chosen):
        return ""
    from toolkit.doctor import unused

    if not wheel:
        return unused.describe_unused(settings, "this is the CPU set")
    if not plan or not plan.spec.cuda_wheel:
        return unused.describe_unused(settings, "the wheel is for processors alone", "a wheel for CUDA uses it")
    flags = _find_wheel_flags(settings, wheel)
    why = "NVIDIA's libraries are not in the CPU set"
    return unused.describe_unused(settings, why, f"{flags} uses it" if flags else "")


def _is_trusted(request: Request, place: Path, environment: Environment, console: Console) -> bool:
    """Return whether an environment, or a report about it, may be reused; say why not."""
    try:
        request.require_trusted(place, environment.digest)
    except ToolkitError as error:
        console.heading("trust", f"{shorten(place)} is made anew: {error.why or error.what}")
        return False
    return True


def choose_engine(settings: Settings, *, target: str = "train", tag: str = "") -> EngineChoice:
    """Choose an engine. ``auto`` takes Apptainer for an archive, else Docker if it can build here, else the host.

    Raises EngineError or PreflightError.
    """
    if settings.engine == "host":
        return EngineChoice(engine=make_host_engine(settings), why="asked for")
    if settings.engine == "apptainer" or (settings.engine == "auto" and settings.archive):
        return EngineChoice(engine=make_apptainer_engine(settings), why="asked for")
    try:
        return _choose_docker(settings, target=target, tag=tag)
    except (EngineError, PreflightError) as error:
        if settings.engine == "docker":
            raise
        return EngineChoice(engine=make_host_engine(settings), why=error.what)


def adopt_image(settings: Settings, reference: str) -> tuple[Engine, Environment]:
    """Return the container engine and an existing image. Raises EngineError, and UsageError if there is none."""
    from toolkit.engine.client import BaseImage, connect
    from toolkit.engine.docker import DockerEngine

    engine = DockerEngine(connect(), BaseImage(reference="", identity=""), state=Path(settings.state))
    return engine, engine.adopt(reference)


def make_host_engine(settings: Settings) -> HostEngine:
    packages = Path(settings.downloads) / "packages" if settings.downloads else None
    return HostEngine(Path(settings.state), settings.ca_bundle, packages if packages and packages.is_dir() else None)


def make_apptainer_engine(settings: Settings) -> Engine:
    from toolkit.engine.apptainer import ApptainerEngine

    return ApptainerEngine(Path(settings.state), settings.archive)


def _choose_docker(settings: Settings, *, target: str, tag: str) -> EngineChoice:
    # Imported here because the SDK takes longer to import than `toolkit matrix` takes to run.
    from toolkit.engine import bundle
    from toolkit.engine.client import BaseImage, connect, require_buildx, select_base, select_crossing
    from toolkit.engine.docker import DockerEngine

    client = connect()
    require_buildx()
    crossed = is_crossed(settings)
    if crossed and settings.downloads:
        raise UnsupportedError(
            f"{settings.downloads} has what a machine of its own platform needs, and not what {settings.platform} does",
            remedy="leave out --downloads",
        )
    carried = bundle.read(Path(settings.downloads)) if settings.downloads else None
    if carried:
        if (python := carried.lock["spec"]["python"]) != settings.python:
            raise UsageError(
                f"{settings.downloads} was collected for Python {python}, and {settings.python} was asked for",
                remedy=f"give --python {python}, or collect again",
            )
        why = f"from {settings.downloads}"
        base = BaseImage(reference=carried.base["base"], identity=carried.base["digest"], why=why)
    else:
        base = select_base(client, settings, settings.python)
    engine = DockerEngine(
        client,
        base,
        state=Path(settings.state),
        ca_bundle=settings.ca_bundle,
        target=target,
        tag=tag,
        carried=carried,
        crossing=select_crossing(client, settings, base) if crossed else None,
    )
    return EngineChoice(engine=engine, why=base.why or f"base {base.reference}")


def choose_spec(settings: Settings) -> EnvironmentSpec:
    """Return the published wheel's environment. Raises UnsupportedError if there is no such set."""
    table = load_table()
    asked = replace(settings.versions, platform="")
    locked = find_locked(table, asked)
    if locked is None:
        plan_set(table, asked)
        raise UnsupportedError(
            f"no locked set holds {asked.describe()} for Python {asked.python}",
            why="locked: " + "; ".join(dict.fromkeys(item.choose("").describe() for item in table.published)),
            remedy=f"`toolkit lock {' '.join(asked.flags())}` makes it, or choose one of these",
        )
    return EnvironmentSpec(**vars(asked), requirements=locked.requirements)


def read_wheel_option(wheel: str | None) -> Path | None:
    """Return the file that ``--wheel`` names, or None for the published wheel. Raises UsageError if it is not one."""
    if wheel is None or wheel == PUBLISHED:
        return None
    path = Path(wheel)
    wheels = sorted(path.glob("tensorflow*.whl")) if path.is_dir() else [path]
    if len(wheels) != 1 or not wheels[0].is_file():
        raise UsageError(
            f"there is no wheel {path}" if not wheels or not path.is_dir() else f"{path} holds {len(wheels)} wheels",
            remedy=f"give a .whl file, a folder with one such as dist/NAME, or {PUBLISHED} for the published one",
        )
    return wheels[0].resolve()


def use_wheel(spec: EnvironmentSpec, path: Path, platform: Platform, *, machine: str = "") -> EnvironmentSpec:
    """Check the user's wheel, and return the environment with this wheel instead of the published one.

    ``machine``: the processor that the wheel is to be for; empty for any.

    Raises UnsupportedError if it is not TensorFlow, has other versions, or needs a newer C library. Raises
    IntegrityError if it is damaged, or contradicts the checksums or the manifest beside it.
    """
    # The libraries that read ELF and records are slow to load, and only a user's wheel needs them.
    from toolkit.records import open_wheel
    from toolkit.wheel import inspection, wheel_folder

    for file in (path, path.with_name(manifest.FILE)):
        wheel_folder.check_sum(file)
    inspected = inspection.inspect(path)
    record = _find_record(path, inspected.digest)
    inspection.require_runnable(
        inspected,
        spec,
        built_cudnn=open_wheel(path.parent).find_cudnn() if record else "",
        glibc=platform.glibc,
        base_python=platform.python,
        machine=machine,
    )
    return replace(
        spec,
        wheel=path,
        cuda_wheel=inspected.build.is_cuda,
        instructions=tuple(record.facts.get("instructions", ())) if record else (),
    )


def choose_image(request: Request, reference: str) -> ReadyEnvironment:
    """Return an existing image as the environment. Raises EngineError, and UsageError if there is none."""
    engine, environment = adopt_image(request.settings, reference)
    return ReadyEnvironment(request=request, engine=engine, why="asked for", plan=None, existing=environment)


def environment_task(resolved: ReadyEnvironment, console: Console) -> Task[Environment]:
    plan, existing = resolved.plan, resolved.existing
    if plan is None:
        if existing is None:
            raise ValueError("neither a plan nor an environment")
        return Task(Step(title="environment", commands=(), outputs=(existing.reference,)), lambda: existing)

    def make() -> Environment:
        spec = plan.spec
        origin = plan.origin or (spec.wheel.name if spec.wheel else f"published, {spec.requirements} set")
        console.heading("wheel", f"TensorFlow {spec.tensorflow}, {origin}")
        environment = resolved.engine.prepare(plan, console)
        done = "reused" if environment.reused else "made"
        console.heading("image" if environment.kind == "image" else "venv", f"{done} {environment.reference}")
        return environment

    return Task(Step(title="environment", commands=plan.commands, inputs=plan.inputs, outputs=(plan.reference,)), make)


def smoke_task(
    resolved: ReadyEnvironment,
    prepared: Task[Environment],
    expectation: Expectation,
    console: Console,
    *,
    force: bool = False,
    required: bool = False,
) -> Task[Report]:
    """Return the task that runs the checks, or reuses their last report. ``required``: a failed check is an error."""

    expectation = replace(expectation, instructions=resolved.instructions)

    def check() -> Report:
        environment = prepared.result
        report = None if force else runner.recall(environment, expectation)
        if report and not _is_trusted(resolved.request, report.path, environment, console):
            report = None
        reused = report is not None
        report = report or runner.run(resolved.engine, environment, expectation, console)
        console.heading("smoke", f"{report.summary}{' (reused)' if reused else ''}")
        if required:
            report.require_gpu()
            report.require_pass()
        return report

    return Task(resolved.step(runner.plan(expectation)), check)


def train_task(
    resolved: ReadyEnvironment,
    prepared: Task[Environment],
    arguments: Sequence[str],
    config: TrainConfig,
    console: Console,
    *,
    run: Callable[[Engine, Environment, Job, TrainConfig], dict[str, Any]] | None = None,
) -> Task[dict[str, Any]]:
    """Return the task that trains, by ``run`` or as one job, or that returns the manifest of a finished run.

    Raises what ``require_trusted`` of the request raises of a finished run.
    """
    finished = find_result(config)
    if finished is not None:
        resolved.request.require_trusted(config.run_dir, "")
    quiet = "quiet" in {config.progress, console.mode}
    plan = partial(training_job.plan, arguments, config, gpu=resolved.gpu, display=console.mode)

    def train() -> dict[str, Any]:
        if finished is not None:
            if not quiet:
                console.say(f"{shorten(config.run_dir)} is complete; nothing to do")
            return finished
        if (change := find_change(config)) and not quiet:  # the job in a container sees no other run
            console.say(change)
        environment = prepared.result
        return (run or training_job.run)(resolved.engine, environment, plan(environment), config)

    return Task(resolved.step(plan(resolved.existing), str(config.run_dir)), train)


def _find_record(wheel: Path, value: str) -> manifest.Manifest | None:
    record = manifest.read(wheel.parent)
    if record and (record.kind, record.digest) != ("wheel", value):
        raise IntegrityError(
            f"{wheel.name} is not the wheel of the manifest beside it",
            why=f"the manifest is of the {record.kind} {record.digest}, and the wheel is {value}",
            remedy="build the wheel again; to use this wheel without its manifest, copy it to a folder of its own",
        )
    return record
