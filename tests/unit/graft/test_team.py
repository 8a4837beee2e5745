"""A graft of one machine, signed and pushed, is fetched by the next one, which has another folder and another HOME."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Run
from tests.unit.exchange import oci
from tests.unit.exchange.world import read
from tests.unit.graft import maker
from tests.unit.graft.maker import Graft
from toolkit.base.errors import PreflightError
from toolkit.graft import job

CARD = "RTX 5090"


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
    words = (
        ("key", "new", "builder"),
        ("graft", "--gpu", CARD, "--wheel", name_wheel(first), "--sign", "builder"),
    )
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
    assert (code, "not signed as --trust asks" in said) == (8, True), said
    assert not list((second.folder / "dist").glob("*"))
    code, said = fetch(second, *words, "--trust", "builder.pub", "--json")
    assert code == 0, said
    (made,), (fetched,) = ((run.folder / "dist").iterdir() for run in machines)
    assert fetched.name == made.name
    assert read(fetched) == read(made)
    assert fetch(second, "verify", str(fetched), "--trust", "builder.pub")[0] == 0
    code, said = fetch(second, "graft", "--gpu", "B200", *words[3:], "--allow-unsigned")
    assert (code, "has no plan-" in said, "it is made here" in said) == (4, True, True), said
