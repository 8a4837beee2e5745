import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.graft.maker import ROOT, make_ptx, write_ptxas
from toolkit.base import digest
from toolkit.base.errors import BuildError, PreflightError
from toolkit.graft import assembly
from toolkit.graft.assembly import Assembled, Assembler, PtxModule
from train.system import memory
from train.system.progress import Work


def make_text(data: bytes) -> PtxModule:
    return PtxModule(digest=digest.digest_bytes(data), size=len(data), read=lambda: data)


def assemble(assembler: Assembler, texts: Sequence[bytes], architecture: int = 120) -> Assembled:
    return assembly.assemble(assembler, map(make_text, texts), architecture, lambda work: None)


TEXTS = [make_ptx("one"), make_ptx("two"), make_ptx("three", "four")]


def test_results_are_kept_for_later_grafts(assembler: Assembler) -> None:
    first = assemble(assembler, TEXTS[:2])
    assert (len(first.cubins), first.reused, first.refused) == (2, 0, {})
    second = assemble(assembler, TEXTS)
    assert (len(second.cubins), second.reused) == (3, 2)
    assert assemble(assembler, TEXTS, 100).reused == 0
    assert assemble(replace(assembler, digest="sha256:other"), TEXTS).reused == 0


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


def test_ptx_for_one_gpu_is_made_general_in_its_length() -> None:
    bound = make_ptx("one", target="sm_90a")
    general = assembly.drop_gpu_suffix(bound)
    assert general == bound.replace(b"sm_90a", b"sm_90 ")
    assert (assembly.has_no_gpu_suffix(bound), assembly.has_no_gpu_suffix(general)) == (False, True)
    assert assembly.drop_gpu_suffix(general) == general
    assert assembly.drop_gpu_suffix(b"a.target sm_90a\n") == b"a.target sm_90a\n"


def test_an_interrupt_keeps_what_is_done(assembler: Assembler) -> None:
    def interrupt(work: Work) -> None:
        if work.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assembly.assemble(assembler, map(make_text, TEXTS), 120, interrupt)
    folder = assembler.cache / "sm_120"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert assemble(assembler, TEXTS).reused >= 1


ASSEMBLE = """
import sys
from pathlib import Path
from tests.unit.graft.test_assembly import TEXTS, make_text
from toolkit.graft import assembly
assembler = assembly.Assembler(ptxas=Path(sys.argv[1]), digest="sha256:ptxas", cache=Path(sys.argv[2]))
assembly.count_workers = lambda: 1
assembly.assemble(assembler, map(make_text, TEXTS), 120, lambda work: work.done and print(1, flush=True))
"""


def test_a_killed_graft_goes_on_where_it_stopped_and_leaves_nothing(tmp_path: Path) -> None:
    slow = "import time; 'three' in open(sys.argv[-3]).read() or time.sleep(3)"  # three is the first
    argv = [sys.executable, "-c", ASSEMBLE, write_ptxas(tmp_path, before=slow), tmp_path / "cubins"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        assert process.stdout.readline() == "1\n"
        time.sleep(1)  # until the next one has started
        process.kill()
    (kept,) = (path for path in (tmp_path / "cubins" / "sm_120").iterdir() if path.name[0] != ".")
    stamp = kept.stat().st_mtime_ns
    time.sleep(2.5)  # until the ptxas has ended that the killed graft had started
    again = Assembler(ptxas=write_ptxas(tmp_path), digest="sha256:ptxas", cache=tmp_path / "cubins")
    found = assemble(again, TEXTS)
    assert (len(found.cubins), found.reused, kept.stat().st_mtime_ns) == (3, 1, stamp)
    assert sorted(kept.parent.iterdir()) == sorted(found.cubins.values())


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


def test_a_missing_ptxas(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="ptxas cannot run: No such file"):
        assemble(Assembler(ptxas=tmp_path / "none", digest="", cache=tmp_path / "cubins"), TEXTS[:1])


def test_there_are_as_many_at_a_time_as_cores_and_memory_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "count_cores", lambda: 64)
    for available, workers in ((1 << 20, 1), (3 * 600 << 20, 3), (1 << 40, 64)):
        monkeypatch.setattr(memory, "read_free", lambda value=available: value)
        assert assembly.count_workers() == workers
