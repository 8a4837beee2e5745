"""Plans the tasks of a command: its environment, the smoke checks, the training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.base import manifest
from toolkit.base.errors import GpuError, IntegrityError, ToolkitError, UnsupportedError, UsageError
from toolkit.base.project import shorten
from toolkit.base.steps import Step, Task
from toolkit.checks.check import Expectation
from toolkit.engine import Engine, Environment, EnvironmentPlan, EnvironmentSpec, Job, Platform
from toolkit.engine.gpus import find_driver_program, has_gpu, hides_gpus
from toolkit.jobs import training_job
from toolkit.jobs.choice import Chosen, Manner
from toolkit.jobs.engines import adopt_image, choose_engine
from toolkit.smoke import runner
from toolkit.smoke.runner import Report
from toolkit.versions.rules import plan_set
from toolkit.versions.set import Set
from toolkit.versions.sets import find_locked
from toolkit.versions.settings import Settings, require_own_platform
from toolkit.versions.table import load_table
from train.config.configuration import TrainConfig
from train.record.reader import COMPLETE, find_change, find_result

if TYPE_CHECKING:
    from toolkit.wheel.inspection import Inspection


@dataclass(frozen=True, kw_only=True)
class ResolvedEnvironment:
    chosen: Chosen
    how: Manner
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
        asked = self.chosen.gpu
        return asked if asked is not None else self.uses_gpu and self.engine.has_gpu()

    @property
    def uses_gpu(self) -> bool:
        """Whether its TensorFlow can compute on a GPU."""
        return self.plan.spec.uses_gpu if self.plan else bool(self.chosen.settings.cuda)


def choose_environment(
    chosen: Chosen, how: Manner, *, target: str = "train", tag: str = "", runs: bool = True
) -> ResolvedEnvironment:
    """Choose the engine and the environment, and check a user's wheel against the base image.

    A missing base image is pulled, except in a dry run. If the set and the GPUs do not go together, a line says so.

    ``target``: stage of docker/Dockerfile, for an image. ``tag``: its name, or empty for one derived from its plan.
    ``runs``: whether anything is to run in it; if not, nothing is said of GPUs.

    Raises GpuError if the graft that it needs is not made yet, UsageError if a GPU is asked for and the set cannot use
    one, UnsupportedError if the versions are incompatible or the wheel cannot run, IntegrityError if the wheel is
    damaged, EngineError, and PreflightError if there is no base image.
    """
    chosen.require_wheel()
    settings, wheel, console = chosen.settings, chosen.wheel, how.console
    require_own_platform(settings, "environments, images and jobs are made")
    spec = choose_spec(settings, own_wheel=bool(wheel))
    if chosen.gpu and not settings.archive:  # an archive says which set it holds when it is planned
        _require_gpu_code(chosen)
    choice = choose_engine(settings, target=target, tag=tag)
    console.heading("engine", f"{choice.engine.name}: {choice.why}")
    if wheel:
        platform = choice.engine.find_platform(fetch=not how.dry_run)
        spec = use_wheel(spec, wheel, platform, machine=load_table().platform(settings.platform).machine)
    plan = choice.engine.plan(spec)
    if chosen.gpu and settings.archive:
        _require_gpu_code(chosen)
    existing = choice.engine.find(plan)
    if existing and not _is_trusted(how, existing.folder, existing):
        plan, existing = replace(plan, force=True), None
    resolved = ResolvedEnvironment(
        chosen=chosen, how=how, engine=choice.engine, why=choice.why, plan=plan, existing=existing
    )
    if line := _describe_gpu(resolved, runs=runs):
        console.heading("gpu", line)
    return resolved


def _require_gpu_code(chosen: Chosen) -> None:
    """Raise UsageError if the TensorFlow that is asked for cannot compute on a GPU. It names one that can."""
    from toolkit.doctor import unused  # a usual command asks for no GPU, and starts faster without it

    settings, wheel = chosen.settings, chosen.wheel
    flags = _find_wheel_flags(settings, wheel) if wheel else ""
    if wheel and flags is None:
        raise UsageError(
            f"a GPU was asked for, and {wheel.name} has no code for one",
            why="it is a build for processors alone",
            remedy="give a wheel that was built for CUDA, or do not ask for a GPU",
        )
    if not settings.cuda:
        of_wheel = f"add {flags or '--cuda and --cudnn of what it was built for'}"
        advice = of_wheel if wheel else unused.advise_flags(settings, here=not chosen.elsewhere)
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
    from toolkit.doctor import unused
    from toolkit.wheel import inspection

    inspected = inspection.inspect(wheel)
    if not inspected.build.is_cuda:
        return None
    found = find_wheel_set(inspected, wheel, settings.python)
    return unused.name_set(found, settings) if found else ""


def find_wheel_set(inspected: "Inspection", wheel: Path, python: str) -> Set | None:
    """Return the set of a wheel for CUDA: that of its record, or without one a set that is new enough, or None."""
    from toolkit.doctor import unused

    record = manifest.read(wheel.parent)
    spec = (record.facts.get("lock") or {}).get("spec", {}) if record and record.digest == inspected.digest else {}
    if (recorded := Set.of(spec)).cuda and recorded.cudnn:
        return recorded
    return unused.find_set(Set(tensorflow=inspected.public_version, python=python, cuda=inspected.build.cuda))


def _describe_gpu(resolved: ResolvedEnvironment, *, runs: bool) -> str:
    """Return one line if the set and the GPUs of this machine do not go together; empty if there is nothing to say."""
    chosen = resolved.chosen
    if chosen.gpu is False:
        return ""
    if chosen.elsewhere:
        idle = resolved.uses_gpu and not chosen.gpu
        return "none is asked for: this set for CUDA computes on processors; --gpus N asks for GPUs" if idle else ""
    if not resolved.uses_gpu:
        return _describe_unused(resolved)
    return "" if not runs or resolved.engine.has_gpu() else _describe_missing(resolved)


def _describe_missing(resolved: ResolvedEnvironment) -> str:
    """Return one line that says what becomes of jobs of a set for CUDA, where the engine has no GPU."""
    why = f"the {resolved.engine.name} engine shows no GPU here"
    if resolved.chosen.gpu:
        return f"{why}: a job that finds none ends with exit code {GpuError.exit_code}"
    return f"{why}: this set for CUDA computes on the processor; `toolkit doctor` says what is missing"


def _describe_unused(resolved: ResolvedEnvironment) -> str:
    """Return one line about a GPU that a set or a wheel of the user's own choice leaves unused."""
    plan, settings = resolved.plan, resolved.chosen.settings
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


def _is_trusted(how: Manner, place: Path, environment: Environment) -> bool:
    """Return whether an environment, or a report about it, may be reused; say why not."""
    try:
        how.require_trusted(place, environment.digest)
    except ToolkitError as error:
        how.console.heading("trust", f"{shorten(place)} is made anew: {error.why or error.what}")
        return False
    return True


def choose_spec(settings: Settings, *, own_wheel: bool) -> EnvironmentSpec:
    """Return the environment of a locked set, with the published wheel in it.

    ``own_wheel``: whether another wheel is put in its place. Raises UnsupportedError if there is no such set, or if the
    published wheel has no code for its CUDA, and UsageError if the versions of CUDA and cuDNN are swapped.
    """
    table = load_table()
    asked = replace(settings.versions, platform="")
    locked = find_locked(table, asked)
    if locked is None:
        plan_set(table, asked)
    if asked.cuda and not own_wheel:
        remedy = "give --wheel with one that was built, or leave out --cuda"
        table.require_gpu_code(settings.platform, "no set for CUDA has TensorFlow", remedy, asked.cuda)
    if locked is None:
        raise UnsupportedError(
            f"no locked set holds {asked.describe()} for Python {asked.python}",
            why="locked: " + "; ".join(dict.fromkeys(item.choose("").describe() for item in table.published)),
            remedy=f"`toolkit lock {' '.join(asked.flags())}` makes it, or choose one of these",
        )
    return EnvironmentSpec(**vars(asked), requirements=locked.requirements)


def use_wheel(spec: EnvironmentSpec, path: Path, platform: Platform, *, machine: str = "") -> EnvironmentSpec:
    """Check the user's wheel, and return the environment with this wheel instead of the published one.

    ``machine``: the processor that the wheel is to be for; empty for any.

    Raises UnsupportedError if it is not TensorFlow, has other versions, or needs a newer C library. Raises
    IntegrityError if it is damaged, or contradicts the checksums or the manifest beside it.
    """
    # The libraries that read ELF and records are slow to load, and only a user's wheel needs them.
    from toolkit.wheel import inspection, wheel_folder

    for file in (path, path.with_name(manifest.FILE)):
        wheel_folder.check_sum(file)
    inspected = inspection.inspect(path)
    record = _find_record(path, inspected.digest)
    inspection.require_runnable(
        inspected,
        spec,
        built_cudnn=wheel_folder.find_built_cudnn(record) if record else "",
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


def choose_image(chosen: Chosen, how: Manner, reference: str) -> ResolvedEnvironment:
    """Return an existing image as the environment. Raises EngineError, and UsageError if there is none."""
    engine, environment = adopt_image(chosen.settings, reference)
    return ResolvedEnvironment(chosen=chosen, how=how, engine=engine, why="asked for", plan=None, existing=environment)


def environment_task(resolved: ResolvedEnvironment) -> Task[Environment]:
    plan, existing, console = resolved.plan, resolved.existing, resolved.how.console
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
    resolved: ResolvedEnvironment,
    prepared: Task[Environment],
    expectation: Expectation,
    *,
    force: bool = False,
    required: bool = False,
) -> Task[Report]:
    """Return the task that runs the checks, or reuses their last report. ``required``: a failed check is an error."""
    console, expectation = resolved.how.console, replace(expectation, instructions=resolved.instructions)

    def check() -> Report:
        environment = prepared.result
        report = None if force else runner.recall(environment, expectation)
        if report and not _is_trusted(resolved.how, report.path, environment):
            report = None
        reused = report is not None
        report = report or runner.run(resolved.engine, environment, expectation, console)
        console.heading("smoke", f"{report.summary}{' (reused)' if reused else ''}")
        if required:
            report.require_pass()
        return report

    return Task(resolved.step(runner.plan(expectation)), check)


def train_task(
    resolved: ResolvedEnvironment,
    prepared: Task[Environment],
    arguments: Sequence[str],
    config: TrainConfig,
) -> Task[dict[str, Any]]:
    """Return the task that trains, or that returns the manifest of a finished run.

    Raises what ``require_trusted`` of `how` raises of a finished run.
    """
    console = resolved.how.console
    finished = find_result(config)
    if finished is not None:
        resolved.how.require_trusted(config.run_dir, "")
    quiet = "quiet" in {config.progress, console.mode}
    plan = partial(training_job.plan, arguments, config, gpu=resolved.gpu, display=console.mode)

    def train() -> dict[str, Any]:
        if finished is not None:
            if not quiet:
                console.say(f"{shorten(config.run_dir)} {COMPLETE}")
            return finished
        if (change := find_change(config)) and not quiet:  # the job in a container sees no other run
            console.say(change)
        environment = prepared.result
        return training_job.run(resolved.engine, environment, plan(environment), config)

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
