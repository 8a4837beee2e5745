"""A graft of one machine, signed and pushed, is fetched by the next one, which has another folder and another HOME."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from tests.command import Run
from tests.unit.exchange import oci
from tests.unit.exchange.world import read
from tests.unit.graft import maker
from tests.unit.graft.maker import Graft
from toolkit.base.errors import GpuError, PreflightError
from toolkit.graft import job

CARD = "RTX 5090"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def registry() -> Iterator[oci.Registry]:
    with oci.serve() as found:
        yield found


@pytest.fixture
def machines(tmp_path: Path, graft: Graft, registry: oci.Registry, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Run]:
    """Return two machines. The first has made, signed and pushed a graft for the card; the second has no ptxas."""
    registry.copy(oci.Registry())
    runs = Run(tmp_path / "first"), Run(tmp_path / "second")
    for run in runs:
        run.folder.mkdir()
        (run.folder / "wheel").symlink_to(maker.make_tensorflow(tmp_path).parent)
    first, second = runs
    home = {"HOME": str(first.folder)}
    words = (("key", "new", "builder"), ("graft", "--gpu", CARD, "--wheel", name_wheel(first), "--sign", "builder"))
    for each in words:
        done = first(*each, **home)
        assert done.returncode == 0, done.stderr
    (made,) = (first.folder / "dist").iterdir()
    pushed = first("push", str(made), registry.reference, **home)
    assert pushed.returncode == 0, pushed.stderr
    (second.folder / "builder.pub").write_bytes((first.folder / "builder.pub").read_bytes())
    assert second("key", "new", "stranger").returncode == 0

    def fetch(*_: Any) -> Path:
        raise PreflightError("it is made here")

    monkeypatch.setattr(job, "fetch_ptxas", fetch)
    return runs


def read_steps(name: str) -> list[str]:
    """Return the commands of an example, from the one that uses the toolkit first."""
    (job,) = yaml.safe_load((ROOT / "examples" / name).read_text())["jobs"].values()
    return [step["run"] for step in job["steps"] if step.get("run", "").startswith("toolkit ")]


def name_wheel(run: Run) -> str:
    return str(next((run.folder / "wheel").glob("*.whl")))


def fetch(run: Run, *words: str) -> tuple[int, str]:
    """Run a command on a machine, and return its exit code and what it says."""
    done = run(*words, HOME=str(run.folder))
    return done.returncode, done.stdout + done.stderr


def test_the_next_machine_fetches_the_graft_of_the_first(machines: tuple[Run, Run], registry: oci.Registry) -> None:
    second = machines[1]
    words = ("graft", "--gpu", CARD, "--wheel", name_wheel(second), "--from", registry.reference)
    code, said = fetch(second, *words, "--trust", "stranger.pub")
    assert (code, "--trust" in said) == (8, True), said
    assert not list((second.folder / "dist").glob("*"))
    code, said = fetch(second, *words, "--trust", "builder.pub", "--json")
    assert code == 0, said
    (made,), (fetched,) = ((run.folder / "dist").iterdir() for run in machines)
    assert fetched.name == made.name
    assert read(fetched) == read(made)
    assert fetch(second, "verify", str(fetched), "--trust", "builder.pub")[0] == 0
    code, said = fetch(second, "graft", "--gpu", "B200", *words[3:], "--allow-unsigned")
    assert (code, "has no plan-" in said, "it is made here" in said) == (4, True, True), said


def test_the_workflows_of_the_examples_share_a_graft(tmp_path: Path, graft: Graft, registry: oci.Registry) -> None:
    """What follows the installation in ``graft.yml``, and what ``gpu.yml`` would fetch on a runner with the card."""
    registry.copy(oci.Registry())
    first = Run(tmp_path)
    assert first("key", "new", "secret").returncode == 0
    (tmp_path / "keys").mkdir()
    (tmp_path / "secret.pub").rename(tmp_path / "keys/builder.pub")
    wheel = str(maker.make_tensorflow(tmp_path))
    for step in read_steps("graft.yml"):
        _, *words = shlex.split(Template(step).substitute(CARD=CARD, REGISTRY=registry.reference))
        words = [str(next((tmp_path / "dist").iterdir())) if word == "dist/*/" else word for word in words]
        given = ("--wheel", wheel) if words[0] == "graft" else ()
        done = first(*words, *given, HOME=str(tmp_path), SIGNING_KEY=(tmp_path / "secret").read_text())
        assert done.returncode == 0, done.stderr
    text = (ROOT / "examples/gpu.yml").read_text()
    _, wanted = text.partition("The wheel of graft.yml: ")[::2]
    words = shlex.split(wanted.partition("\n")[0].replace("ghcr.io/OWNER/tensorflow", registry.reference))
    second = Run(tmp_path / "second")
    second.folder.mkdir()
    (second.folder / "keys").symlink_to(tmp_path / "keys")
    assert words[:2] == ["--card", "12.0"]
    done = second("graft", "--gpu", *words[1:], "--wheel", wheel, HOME=str(second.folder))
    assert done.returncode == 0, done.stderr
    assert "pull" in done.stderr + done.stdout
    up, verify = read_steps("gpu.yml")
    _, *words = shlex.split(Template(up).substitute(JOB="digits", WHEEL=""))
    done = second(*words)
    assert done.returncode == GpuError.exit_code, "a runner without a GPU fails the job"
    assert verify == "toolkit verify runs/*/"
