"""The steps that commands share: engine and recipe → environment → smoke. Training comes after, in its own module."""

from dataclasses import dataclass

from toolkit import environment as environments
from toolkit.console import Console
from toolkit.engine import Engine, Environment
from toolkit.engine.choice import choose
from toolkit.environment import EnvironmentSpec
from toolkit.settings import Settings
from toolkit.smoke import launch
from toolkit.smoke.report import Report


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """An engine and the recipe that it will follow; nothing is made yet."""

    engine: Engine
    recipe: EnvironmentSpec
    why: str

    def decide_gpu(self, asked: bool | None) -> bool:
        """Whether jobs get the GPUs: as asked, else where the set is for CUDA and the engine has one to give."""
        return asked if asked is not None else bool(self.recipe.cuda) and self.engine.has_gpu()


def choose_workplace(
    settings: Settings,
    wheel: str | None,
    console: Console,
    *,
    target: str = "train",
    tag: str = "",
    dry_run: bool = False,
) -> Workplace:
    """Decide what is made and where. Refuses what cannot work before anything starts.

    Who brings a wheel has it held against the base image, which is pulled for that; a dry run pulls nothing.

    Raises:
        UnsupportedError: the versions do not go together, or the wheel cannot run there.
        IntegrityError: the wheel is damaged.
        EngineError: the engine asked for does not answer.
        PreflightError: it has no base image.
    """
    recipe = environments.resolve(settings)
    own = environments.find_wheel(wheel)
    choice = choose(settings, target=target, tag=tag)
    console.heading("engine", f"{choice.engine.name}: {choice.why}")
    if own:
        recipe = environments.use_wheel(recipe, own, choice.engine.find_platform(fetch=not dry_run))
    return Workplace(engine=choice.engine, recipe=recipe, why=choice.why)


def prepare(workplace: Workplace, console: Console) -> Environment:
    """Make the environment, or find it made. Raises as :meth:`toolkit.engine.Engine.prepare`."""
    recipe = workplace.recipe
    origin = recipe.wheel.name if recipe.wheel else f"published, {recipe.variant} set"
    console.heading("wheel", f"TensorFlow {recipe.tensorflow}, {origin}")
    environment = workplace.engine.prepare(workplace.engine.plan(recipe), console)
    done = "reused" if environment.reused else "made"
    console.heading("image" if environment.kind == "image" else "venv", f"{done} {environment.reference}")
    return environment


def prove(
    engine: Engine, environment: Environment, expected: launch.Expectation, console: Console, *, again: bool = False
) -> Report:
    """Run the checks, or take the report of the same checks on the same environment.

    Args:
        engine: where the environment lives.
        environment: what is checked.
        expected: what must be found.
        console: where progress goes.
        again: run them although they passed before.

    Raises:
        CheckError: the checks did not run to their end. A check that fails is in the report, not raised.
    """
    report = None if again else launch.recall(environment, expected)
    reused = report is not None
    report = report or launch.run(engine, environment, expected, console)
    console.heading("smoke", f"{report.summary}{' (reused)' if reused else ''}")
    return report
