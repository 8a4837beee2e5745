import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import confirm

ROOT = Path(__file__).parents[2]

# A stand-in for the job: it writes the files of a run, takes a moment, and with --unsteady ends with other weights each
# time. With RECORDED it copies that real run, and can be interrupted once.
JOB = """
import json, os, pathlib, shutil, sys, time
arguments = sys.argv[1:]
out = pathlib.Path(arguments[arguments.index("--out") + 1]) / "run"
(out / "checkpoints").mkdir(parents=True, exist_ok=True)
time.sleep(0.2 if "resumed" in str(out) else 0)
recorded = os.environ.get("RECORDED")
if recorded:
    begun = out / "checkpoints" / "begun"
    if "resumed" in str(out) and not begun.exists():
        try:
            begun.mkdir()
            time.sleep(60)
        except KeyboardInterrupt:
            raise SystemExit(130)
    shutil.copytree(recorded, out, dirs_exist_ok=True)
    print(json.dumps(json.loads((out / "manifest.json").read_text())))
    raise SystemExit
weights = os.urandom(4).hex() if "--unsteady" in arguments else "same"
(out / "metrics.csv").write_text("epoch,images_per_second\\n1,10.0\\n2,20.5\\n")
manifest = json.dumps({"weights_sha256": weights, "hardware": {"devices": ["a processor"]}, "result": {}})
(out / "manifest.json").write_text(manifest)
print(manifest)
"""


def run(folder: Path, *arguments: str, train: str = "") -> tuple[int, list[dict[str, Any]], str]:
    job = folder / "job.py"
    job.write_text(JOB)
    train = train or shlex.join([sys.executable, str(job)])
    command = [sys.executable, "benchmarks/confirm.py", "digits", "--rehearse", "", "--train", train]
    done = subprocess.run(
        [*command, "--out", str(folder / "report"), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    path = folder / "report" / "report.json"
    return done.returncode, json.loads(path.read_text()) if path.exists() else [], done.stdout + done.stderr


def test_equal_weights_hold(tmp_path: Path) -> None:
    code, rows, said = run(tmp_path)
    assert code == 0, said
    assert [row["memory"] for row in rows] == ["plain", "recompute", "shared"]
    assert rows[0]["speed"] == 20.5
    row = "| digits | shared | a processor | 20 | yes (3 runs) | - | - | - |"
    assert row in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.parametrize(
    ("option", "words"),
    [("--options=--unsteady", "| NO |"), ("--gpu", "NOTHING")],
    ids=["other weights", "not on the GPU that was asked for"],
)
def test_a_run_that_does_not_hold_is_named(tmp_path: Path, option: str, words: str) -> None:
    code, rows, said = run(tmp_path, option, "--modes", "shared")
    assert code == 7
    assert not rows[0]["holds"]
    assert words in said


def test_a_run_that_fails_ends_it_with_the_command(tmp_path: Path) -> None:
    code, rows, said = run(tmp_path, train=shlex.join([sys.executable, "-c", "raise SystemExit(9)"]))
    assert code == 1
    assert not rows
    assert "ended with exit code 9" in said


def test_a_profile_needs_its_steps(tmp_path: Path) -> None:
    code, _, said = run(tmp_path, "--steps", "8")
    assert code == 2
    assert "more than 8" in said


def test_the_events_of_a_gpu_are_counted_by_kind(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    for plane_name in ("/host:CPU", "/device:GPU:0"):
        plane = space.planes.add(name=plane_name, id=2**63 - 1)
        for number, name in enumerate(("void reduce(float*)", "MemcpyH2D", "MemcpyD2H", "Memset"), start=200):
            plane.event_metadata[number].id = number
            plane.event_metadata[number].name = name
        for line_name, counts in (
            ("Stream #14(Compute)", {200: 6, 203: 3}),
            ("Stream #15", {201: 3}),
            ("Steps", {200: 9}),
        ):
            line = plane.lines.add(name=line_name, timestamp_ns=12345)
            for number, count in counts.items():
                for _ in range(count):
                    line.events.add(metadata_id=number, offset_ps=1, duration_ps=2**40)
    folder = tmp_path / "tb" / "plugins"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(space.SerializeToString())
    assert confirm.count_events(tmp_path) == {"MemcpyH2D": 1.0, "Memset": 1.0, "kernel": 2.0}


SEEN = {"MemcpyH2D": 1.0, "MemcpyD2H": 1.0, "Memset": 3.0, "kernel": 150.0}
REHEARSED = {"launches": 100, "library_calls": 50, "to_device": 1, "to_host": 1, "peak": 2**20, "findings": 0}


def make_row(*, peak: int = 2**21, rehearsed: dict[str, int] | None = None, **seen: float) -> confirm.Row:
    return confirm.Row(
        dataset="digits",
        memory="shared",
        device="T4",
        digests={"first": "same", "second": "same"},
        speed=1.0,
        seen=SEEN | seen,
        peak=peak,
        rehearsed=REHEARSED if rehearsed is None else rehearsed,
        on_gpu=True,
    )


def test_a_gpu_that_does_as_rehearsed_holds(tmp_path: Path) -> None:
    assert make_row().holds
    assert make_row(rehearsed={}, kernel=1.0).holds  # without a rehearsal there is nothing to compare with
    confirm.write_report(tmp_path, [make_row()])
    report = (tmp_path / "report.md").read_text()
    assert "| 2 | launches 100, library calls 50, to device 1, to host 1, peak 1 MiB, findings 0 |" in report
    assert "Not as rehearsed" not in report


@pytest.mark.parametrize(
    ("row", "miss"),
    [
        (make_row(kernel=149.0), "149 kernels in a step, at least 150"),
        (make_row(MemcpyH2D=2.0), "2.0 copies to device in a step, not 1"),
        (make_row(MemcpyD2H=0.0), "0.0 copies to host in a step, not 1"),
        (make_row(peak=2**20 - 1), "a peak of 1,048,575 bytes"),
    ],
)
def test_a_gpu_that_does_other_than_rehearsed_does_not(row: confirm.Row, miss: str, tmp_path: Path) -> None:
    assert not row.holds
    confirm.write_report(tmp_path, [row])
    assert miss in (tmp_path / "report.md").read_text()
    assert miss in json.loads((tmp_path / "report.json").read_text())[0]["misses"][0]


REPORT = {
    "steps": [{"launched": 110, "library_calls": 57, "copies": {"to device": {"1156": 1}, "to host": {"12": 2}}}],
    "allocator_peak_bytes": 1000,
    "job_peak_bytes": 5000,
    "findings": [],
}


def make_plan(folder: Path, rehearse: list[str]) -> confirm.Plan:
    options = ["--depth", "10", "--batch-size", "16"]
    return confirm.Plan(train=[], rehearse=rehearse, options=options, steps=12, out=folder)


def test_a_rehearsal_is_counted(tmp_path: Path) -> None:
    script = f"import sys; assert sys.argv[1:4] == ['digits', '--memory', 'shared']; print({json.dumps(REPORT)!r})"
    found = confirm.rehearse(make_plan(tmp_path, [sys.executable, "-c", script]), "digits", "shared")
    assert found == {
        "launches": 110, "library_calls": 57, "to_device": 1, "to_host": 2, "peak": 5000, "findings": 0,
    }  # fmt: skip


def test_a_rehearsal_that_comes_to_no_step_says_so(tmp_path: Path) -> None:
    script = 'print(\'{"steps": [], "findings": ["no device"]}\'); raise SystemExit(7)'
    with pytest.raises(SystemExit, match="no device"):
        confirm.rehearse(make_plan(tmp_path, [sys.executable, "-c", script]), "digits", "shared")


@pytest.mark.rehearse
def test_the_rehearsal_itself_is_counted(tmp_path: Path) -> None:
    command = [os.environ["TOOLKIT_CUDA_PYTHON"], "-m", "rehearsal", "--library-cache", str(tmp_path / "library")]
    found = confirm.rehearse(make_plan(tmp_path, command), "digits", "shared")
    assert found["launches"] > 50
    assert found["library_calls"] > 20
    assert (found["to_device"], found["to_host"], found["findings"]) == (1, 1, 0)
    assert found["peak"] > 2**20


@pytest.mark.slow
def test_what_a_real_run_leaves_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--memory", "recompute", "--depth", "10", "--batch-size", "16", "--steps", "9", "--profile", "6:8"]
    made = subprocess.run(
        [sys.executable, "-m", "train", "digits", *options, "--out", str(tmp_path / "runs"), "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "device_peak_bytes" not in json.loads(made.stdout.splitlines()[-1])["result"]  # there is no GPU
    (recorded,) = (tmp_path / "runs").iterdir()
    monkeypatch.setenv("RECORDED", str(recorded))
    code, rows, said = run(tmp_path, "--modes", "recompute")
    assert code == 0, said
    assert set(rows[0]["digests"]) == {"first", "second", "resumed"}
    assert len(rows[0]["digests"]["first"]) == 64
    assert rows[0]["speed"] > 0
    assert list((tmp_path / "report").rglob("*.xplane.pb"))
