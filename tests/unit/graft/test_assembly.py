import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.graft.maker import make_ptx, write_ptxas
from toolkit.base import digest
from toolkit.base.errors import BuildError, PreflightError
from toolkit.graft import assembly
from toolkit.graft.assembly import Assembled, Assembler, PtxModule
from train.system.progress import Work


def make_text(data: bytes) -> PtxModule:
    return PtxModule(digest=digest.digest_bytes(data), size=len(data), read=lambda: data)


def assemble(assembler: Assembler, texts: Sequence[bytes], architecture: int = 120) -> Assembled:
    return assembly.assemble(assembler, map(make_text, texts), architecture, lambda work: None)


TEXTS = [make_ptx("one"), make_ptx("two"), make_ptx("three", "four")]


def test_a_damaged_result_is_made_again(assembler: Assembler) -> None:
    (file,) = assemble(assembler, TEXTS[:1]).cubins.values()
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:40] + b"x" + whole[41:], b""):
        file.write_bytes(damaged)
        assert assemble(assembler, TEXTS[:1]).reused == 0
        assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        (make_ptx("one", target="sm_90a"), 120),
        (make_ptx("one", target="sm_120"), 100),
        (make_ptx("one", version="9.9"), 120),
        (make_ptx("one"), 75),
    ],
)
def test_what_ptxas_refuses_is_told_in_its_words(assembler: Assembler, text: bytes, architecture: int) -> None:
    found = assemble(assembler, [text], architecture)
    assert not found.cubins
    assert [said.startswith("ptxas fatal") for said in found.refused.values()] == [True]


def test_an_interrupt_keeps_what_is_done(assembler: Assembler) -> None:
    def interrupt(work: Work) -> None:
        if work.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assembly.assemble(assembler, map(make_text, TEXTS), 120, interrupt)
    folder = assembler.cache / "sm_120"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert assemble(assembler, TEXTS).reused >= 1


@pytest.mark.parametrize(
    ("before", "error", "message"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", BuildError, "--id program-killed"),
        ("sys.exit('write error: No space left on device')", PreflightError, "filled up"),
        ("import time; time.sleep(60)", BuildError, "did not end"),
    ],
)
def test_a_ptxas_that_cannot_work(
    tmp_path: Path, before: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "_SECONDS", 2)
    bad = Assembler(ptxas=write_ptxas(tmp_path, before=before), digest="sha256:bad", cache=tmp_path / "cubins")
    with pytest.raises(error, match=message):
        assemble(bad, TEXTS[:1])
    assert not list((tmp_path / "cubins" / "sm_120").iterdir())
