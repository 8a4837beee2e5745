import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.docker import distribution, stages
from tests.makers.publication import finish_build, publish
from toolkit.base import keys
from toolkit.records import attestation, find
from toolkit.versions.settings import resolve
from toolkit.wheel import build_plan
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import BuildPlan

NAME = "team/tensorflow"


@dataclass(frozen=True)
class Machines:
    """Two folders that stand for two machines, with the keys of both and the registry between them."""

    root: Path
    registry: distribution.Registry
    plan: BuildPlan

    def __call__(self, machine: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        home = self.root / machine
        given = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
        given |= {"PYTHONPATH": str(stages.ROOT), "DOCKER_CONFIG": str(home / "docker"), "NO_COLOR": "1"}
        given |= {"TOOLKIT_CA_BUNDLE": str(self.registry.authority), **variables}
        argv = [sys.executable, "-m", "toolkit", *words]
        return subprocess.run(argv, cwd=home, env=given, capture_output=True, text=True, check=False)

    @property
    def where(self) -> str:
        return f"{self.registry.host}/{NAME}"

    @property
    def take(self) -> tuple[str, ...]:
        return ("build-wheel", "--from", self.where, "--trust", "../key.pub", "--verbose")


@contextmanager
def connect(root: Path) -> Iterator[Machines]:
    """Make a wheel on the first machine, and the others."""
    asked = build_plan.plan_wheel(resolve({}), BuildOptions(), lock_file=Path("none")).plan
    keys.make(root / "key")
    made = root / "first" / "dist" / asked.name
    made.parent.mkdir(parents=True)
    publish(finish_build(root / "staging"), made, asked)
    attestation.sign(find(str(made), root), keys.load(str(root / "key")), fresh=True)
    with distribution.serve(root) as registry:
        found = Machines(root, registry, asked)
        registry.log_in(root / "first" / "docker")
        for name in ("second", "third"):
            (root / name).mkdir()
            registry.log_in(root / name / "docker", "" if name == "second" else "wrong")
        yield found
