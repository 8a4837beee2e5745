"""Finds the packages that are installed: those of a set or of a wheel, for the Python of an environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.base import digest, manifest
from toolkit.base.console import Console
from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.base.interpreters import Interpreter
from toolkit.engine import EnvironmentSpec
from toolkit.engine.host import HostEngine
from toolkit.engine.uv import Uv
from toolkit.install import resolution
from toolkit.install.installed import Installed
from toolkit.install.resolution import Package
from toolkit.jobs import pipeline
from toolkit.versions import numbers
from toolkit.versions.set import VERSIONS
from toolkit.versions.sets import describe_set, list_packages
from toolkit.versions.settings import Settings
from toolkit.versions.table import Locked, PlatformRow, Table, load_table
from toolkit.wheel import inspection
from train.system.progress import Work

_RANGES = (2, 20)
"""The first TensorFlow whose extra ``and-cuda`` accepts ranges of versions, by the metadata of its published wheel."""


@dataclass(frozen=True, kw_only=True)
class PackageSet:
    spec: EnvironmentSpec  # the set, and the wheel that takes the place of its TensorFlow
    roots: tuple[str, ...]  # what is wanted of the set; what these packages need comes with them
    digest: str = ""  # of the wheel

    def describe(self) -> str:
        spec = self.spec
        name = spec.wheel.name if spec.wheel else f"TensorFlow {spec.tensorflow}"
        return f"{name} with {spec.describe_libraries() or 'no GPU code'}"


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The packages to install, by what they were resolved."""

    chosen: PackageSet
    python: str
    uv: Uv
    packages: tuple[Package, ...]

    def to_json(self) -> dict[str, object]:
        spec = self.chosen.spec
        value = {name: getattr(spec, name) for name in VERSIONS}
        return {**value, "python": self.python, "wheel": str(spec.wheel) if spec.wheel else ""}


def resolve(
    settings: Settings, wheel: Path | None, python: Interpreter, installed: Mapping[str, Installed], console: Console
) -> Resolved:
    """Return the packages to install, in versions that fit what is installed. Raises what :func:`find` raises."""
    with console.follow("resolve") as status:
        status.show(Work(f"reading {wheel.name}" if wheel else "reading the set"))
        chosen = find(settings, wheel, python.minor, plain=resolution.needs_name(installed))
        console.heading("set", f"{chosen.describe()}, Python {python.version}")
        folder = Path(settings.downloads) / "packages" if settings.downloads else None
        uv = Uv(ca_bundle=settings.ca_bundle, packages=folder)
        question = resolution.Question(
            python=python,
            roots=tuple(root for root in chosen.roots if not (installed and root == "tensorboard")),
            locked=resolution.read_locked(chosen.spec.locked.read_text(), python),
            installed=installed,
            wheel=resolution.describe_wheel(chosen.spec.wheel, chosen.digest) if chosen.spec.wheel else None,
        )
        status.show(Work("finding versions that fit together"))
        return Resolved(chosen=chosen, python=python.minor, uv=uv, packages=resolution.resolve(uv, question))


def list_pythons(settings: Settings, wheel: Path | None) -> tuple[str, ...]:
    """Return the Pythons ``X.Y`` for which there is a set of these settings, or for which a wheel is."""
    if wheel:
        return inspection.inspect(wheel).python_versions
    table = load_table()
    return tuple(numbers.sort({python for item in _list_sets(table, settings) for python in _list_served(table, item)}))


def _list_served(table: Table, item: Locked) -> tuple[str, ...]:
    """Return the Pythons for which TensorFlow of a set has wheels, whose hashes are all in the lock.

    If the set was not locked for a Python, other packages may come in other versions. The index tells their hashes.
    """
    return tuple({*item.python, *table.tensorflow(item.tensorflow).python})


def _list_sets(table: Table, settings: Settings) -> list[Locked]:
    """Return the sets that fit the TensorFlow, CUDA and cuDNN that are asked for, the newest first."""
    named = settings.sources["tensorflow"] != "default"
    sets = [item for item in table.published if item.libraries == settings.libraries]
    if sets and not named:
        return sorted(sets, key=lambda item: numbers.parse(item.tensorflow), reverse=True)
    made = describe_set(table, settings.versions)
    return [item for item in [*sets, made] if item.tensorflow == settings.tensorflow]


def find(settings: Settings, wheel: Path | None, python: str, *, plain: bool = False) -> PackageSet:
    """Return the set for a Python ``X.Y``, with a wheel of the user's own or the published one.

    ``plain``: whether the set for processors must have the package `tensorflow`, and not `tensorflow-cpu`, because
    packages that are there need the name.

    Raises UnsupportedError if there is no such set or the wheel cannot run here, IntegrityError if the wheel is damaged
    or contradicts its record, and UsageError if the set of the wheel is not known.
    """
    table = load_table()
    settings = _read_wheel(settings, wheel, python) if wheel else _pick(table, settings, python)
    place = table.platform(settings.platform)
    spec = pipeline.choose_spec(settings, own_wheel=bool(wheel))
    if wheel:
        platform = HostEngine(Path(settings.state)).find_platform(fetch=False)
        spec = pipeline.use_wheel(spec, wheel, platform, machine=place.machine)
    roots = _keep_roots(list_packages(table, describe_set(table, spec)), place, own_wheel=bool(wheel))
    if spec.cuda and not wheel and not settings.asked.cuda and numbers.parse(spec.tensorflow) >= _RANGES:
        roots = _accept_ranges(roots, spec.tensorflow)
    if plain:
        roots = tuple(root.replace("tensorflow-cpu==", "tensorflow==") for root in roots)
    return PackageSet(spec=spec, roots=roots, digest=digest.digest_file(wheel) if wheel else "")


def _accept_ranges(roots: Sequence[str], tensorflow: str) -> tuple[str, ...]:
    """Let NVIDIA's libraries that are there stay, if TensorFlow accepts them. Others get the versions of the set."""
    rest = (root for root in roots if not root.startswith(("nvidia-", "tensorflow==")))
    return (f"tensorflow[and-cuda]=={tensorflow}", *rest)


def _keep_roots(packages: Sequence[str], place: PlatformRow, *, own_wheel: bool) -> tuple[str, ...]:
    """Leave out the TensorFlow of a set for which there is a wheel, and that of other machines."""
    return tuple(
        package
        for package in packages
        if not (own_wheel and package.partition("=")[0] in manifest.PUBLISHED)
        and ("platform_machine" not in package or f"'{place.machine}'" in package)
    )


def _pick(table: Table, settings: Settings, python: str) -> Settings:
    """Return the settings of the newest set for a Python. Raises UnsupportedError if there is no set for it."""
    sets = _list_sets(table, settings)
    for item in sets:
        if python in _list_served(table, item):
            locked = python if python in item.python else item.python[0]
            return replace(settings, tensorflow=item.tensorflow, python=locked)
    name = f"TensorFlow {settings.tensorflow}" if settings.sources["tensorflow"] != "default" else "TensorFlow"
    for_cuda = f" with {settings.describe_libraries()}" if settings.cuda else ""
    pythons = numbers.sort({version for item in sets for version in _list_served(table, item)})
    if not pythons:
        return replace(settings, python=python)  # choose_spec says which sets there are
    raise UnsupportedError(
        f"there is no set of {name}{for_cuda} for Python {python}",
        why=f"there are sets for Python {', '.join(pythons)}",
        remedy=f"name a new environment: --into DIR --python {pythons[-1]}",
    )


def _read_wheel(settings: Settings, wheel: Path, python: str) -> Settings:
    """Return the settings of the set in which a wheel runs: by its record, or without one by what is in it.

    Raises UnsupportedError if the wheel is for another Python, and UsageError if its set is not known.
    """
    inspected = inspection.inspect(wheel)
    pythons = inspected.python_versions
    remedy = f"name a new environment: --into DIR --python {pythons[-1]}" if pythons else "give another wheel"
    inspection.require_python(inspected, python, remedy)
    settings = replace(settings, tensorflow=inspected.public_version, python=python)
    if settings.cuda or not inspected.build.is_cuda:
        return settings
    found = pipeline.find_wheel_set(inspected, wheel, python)
    if found is None:
        raise UsageError(
            f"the set of {wheel.name} is not known",
            why=f"there is no record beside it, and no known set has CUDA {inspected.build.cuda} or a later one for it",
            remedy="give --cuda and --cudnn",
        )
    return settings.merge(found.libraries)
