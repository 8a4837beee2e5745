import subprocess

import pytest

from tests.makers.smoke_images import failures, smoke
from toolkit.base import naming
from toolkit.base.console import Console
from toolkit.checks.cli import CHECKS
from toolkit.jobs import engines, pipeline
from toolkit.versions import settings

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def find_image(requirements: str) -> str | None:
    label = f"label={naming.LABEL_PREFIX}.requirements={requirements}"
    argv = ["docker", "image", "ls", "--quiet", "--filter", label]
    return next(iter(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()), None)


@pytest.fixture(scope="session")
def cpu_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = find_image("cpu-2.21.0")
    if found is None:
        asked = settings.resolve(
            {"tensorflow": "2.21.0", "engine": "docker", "state": str(tmp_path_factory.mktemp("state"))}
        )
        engine = engines.choose_engine(asked).engine
        found = engine.prepare(engine.plan(pipeline.choose_spec(asked, own_wheel=False)), Console(verbosity=-1)).digest
    return found


def test_the_cpu_image_passes_with_nothing_but_a_tmpfs(cpu_image: str) -> None:
    code, found = smoke(cpu_image, "--expect-version", "2.21.0", "--device", "cpu")
    assert (code, found.verdict) == (0, "pass"), failures(found)
    assert [check.id for check in found.checks] == [check.id for check in CHECKS]


def test_too_little_memory_is_a_finding_not_silence(cpu_image: str) -> None:
    limit = ("--memory", "120m", "--memory-swap", "120m")
    code, found = smoke(cpu_image, "--only", "numerics.matmul", docker=limit)
    assert code == 7
    assert failures(found) == {"tensorflow.import": "the worker died: SIGKILL"}
    assert "memory" in found.failures[0].remedy
