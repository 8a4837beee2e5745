"""Known failures in logs: each row of the table by its own examples, logs in any form, and near misses."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.command import Run
from tests.tiers import weekly
from toolkit import diagnosis
from toolkit.base import project
from toolkit.base.errors import DataError, EngineError, JobError, UsageError
from toolkit.checks import device
from toolkit.diagnosis import Diagnosis, answers, languages, names, packages, patterns, private, specifiers
from toolkit.doctor import cards, examination
from toolkit.engine import Job
from toolkit.jobs import training_job
from toolkit.versions.table import load_table
from toolkit.wheel import bazel_output
from tools import pages
from train.command_line import parse
from train.system import budget

ROWS = diagnosis.load().rows
LOGS = yaml.safe_load((Path(__file__).parents[1] / "fixtures/diagnosis.yaml").read_text())
KILLED = "clang: error: unable to execute command: Killed"


def read(text: str | bytes) -> Diagnosis:
    return diagnosis.diagnose([("", io.BytesIO(text if isinstance(text, bytes) else text.encode()))])


def name(text: str | bytes) -> list[str]:
    return [cause.row.id for cause in read(text).causes]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_example_shows_its_own_failure_and_no_other(row: diagnosis.Row) -> None:
    for example in row.examples:
        causes = read(example).causes
        assert [cause.row.id for cause in causes if not cause.consequence] == [row.id]
        assert "{" not in "".join([causes[0].cause, causes[0].remedy, *causes[0].commands])


def test_every_row_says_where_it_is_from_and_refers_to_what_is_there() -> None:
    known = {failure.id for failure in load_table().failures}
    for row in ROWS.values():
        assert row.sources
        assert row.cause.endswith(".")
        assert row.remedy.endswith(".")
        assert not row.known or row.known in known
        assert row.error in bazel_output.ERRORS


def test_a_source_is_of_few_rows_as_one_of_many_shows_nothing_of_any() -> None:
    rows = Counter(source for row in ROWS.values() for source in row.sources)
    assert [source for source, count in rows.items() if count > 6] == []


def test_what_only_reports_another_failure_gives_way_to_it() -> None:
    report = "subprocess.CalledProcessError: Command '['frob', '-V']' returned non-zero exit status 255."
    assert name(report) == ["command-failed"]
    assert name(f"KeyError: 'frobnication'\n{report}") == ["key-missing"]


def test_a_grave_accent_of_the_page_around_a_line_is_no_part_of_what_it_says() -> None:
    assert "use frobnicate." in read("`NotImplementedError: no frob here. Please use frobnicate`").causes[0].remedy
    assert "use `frob`." in read("NotImplementedError: no frob here. Please use `frob`").causes[0].remedy


def test_a_message_that_ends_the_program_is_not_hidden_by_one_that_does_not() -> None:
    warning = "Could not load dynamic library 'cudart64_110.dll'; dlerror: cudart64_110.dll not found"
    assert name(f"{warning}\nImportError: cannot import name 'frob' from 'numpy'") == [
        "name-missing",
        "gpu-dll-missing",
    ]


HARMLESS = [(row, example) for row in ROWS.values() if row.rank.harmless for example in row.examples]


@pytest.mark.parametrize(("number", "harmless", "line"), [(n, *each) for n, each in enumerate(HARMLESS)])
def test_a_harmless_line_silences_no_failure_of_another_line(number: int, harmless: diagnosis.Row, line: str) -> None:
    ending = [row for row in ROWS.values() if row.rank.stops and not row.rank.harmless and not row.facts]
    for row in [*ending[number :: len(HARMLESS)][:6], ROWS["gpu-memory"], ROWS["key-missing"]]:
        assert row.id in name(f"{line}\n{line}\n{row.examples[0]}"), (harmless.id, row.id)


def test_a_text_beside_a_line_or_a_harmless_row_decides_for_that_line_alone() -> None:
    note = "Allocator (GPU_0_bfc) ran out of memory. The caller indicates that this is not a failure"
    ended = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3199993600 bytes."
    assert name(note) == ["first-allocation"]
    assert name("\n".join([note] * 7 + [ended])) == ["gpu-memory"]
    unknown = "Value 'sm_86' is not defined for option 'gpu-name'"
    old = f"Your CUDA software stack is old. We fallback to the NVIDIA driver for some compilation. {unknown}"
    assert name(old) == ["ptxas-old-fallback"]
    assert name(f"{old}\nnvcc fatal   : {unknown}") == ["compiler-does-not-know-card", "ptxas-old-fallback"]
    plan = "UserWarning: Plan failed with a cudnnException: CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: failed"
    graph = "RuntimeError: CUDNN_BACKEND_OPERATION: cudnnFinalize Failed cudnn_status: CUDNN_STATUS_BAD_PARAM"
    assert name(f"{plan}\n{graph}") == ["cudnn-graph"]
    assert "display-missing" in name("ERROR: GPU:0: no display\nqt.qpa.xcb: could not connect to display")
    refused = "failed to allocate 8.41G (9029127168 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    assert "convolution-no-algorithm" in name(f"{refused}\n{ROWS['convolution-no-algorithm'].examples[0]}")


def test_a_log_that_was_cut_within_a_traceback_is_known_by_what_explains_it() -> None:
    cut = 'Traceback (most recent call last):\n  File "/app/run.py", line 3, in <module>'
    assert not read(f"{NO_DEVICE}\n{cut}").unknown
    assert read(f"{NO_DEVICE}\n{cut}\nFrobError: x").unknown
    assert read(cut).unknown


def test_no_failure_explains_one_that_explains_it() -> None:
    explained = {
        row.id: {*row.rank.explains} | {other for other in ROWS if row.id in ROWS[other].rank.follows}
        for row in ROWS.values()
    }
    assert [(one, other) for one, others in explained.items() for other in others if one in explained[other]] == []


def test_the_smoke_checks_have_the_remedies_of_the_table() -> None:
    assert pages.REMEDIES.read_text() == pages.render_remedies(), "`python -m tools.pages` writes them"


ORDINARY = (Path(__file__).parents[1] / "fixtures/ordinary.txt").read_text()


def test_an_error_that_is_measured_is_no_failure() -> None:
    assert not read("epoch 3 loss: 0.23 error: 0.585\nstep 5 - error: 1.2e-3, rate 3").unknown
    assert read("step 5 - error: 3 files are missing").unknown


def test_each_failure_that_the_code_names_has_a_row() -> None:
    code = "".join(path.read_text() for path in project.locate("toolkit").rglob("*.py"))
    named = re.findall(r"""(?:refer|(?<!\.)find_remedy|load_row)\(["']([\w-]+)["']""", code)
    assert len(named) > 10
    assert {*named} <= diagnosis.load().rows.keys()


def test_each_failure_is_found_alone_as_among_the_others() -> None:
    assert {name: diagnosis.load_row(name).reference for name in ROWS} == {
        name: row.reference for name, row in ROWS.items()
    }


ODD = ("0", "2.", "9999", "1.2.3.4rc1", "1e400", "none", "")
"""What a log that was cut, or another program, may have where a number is expected."""


@pytest.mark.parametrize(("rows", "odd"), [*enumerate(ODD), *(weekly(None, odd) for odd in ODD)])
def test_numbers_that_are_none_leave_an_answer(rows: int | None, odd: str) -> None:
    """What is computed of a log's numbers must take any: those of all logs, or of a part of the rows for each."""
    if rows is None:
        texts = [*(text for row in ROWS.values() for text in row.examples), *(each["log"] for each in LOGS["answers"])]
    else:
        texts = [row.examples[0] for row in [*ROWS.values()][rows :: len(ODD)]]
    for text in texts:
        for changed in (re.sub(r"\d+(?:\.\d+)*", odd, text), re.sub(r"\d+(?:\.\d+)*(?=\D*$)", odd, text)):
            assert read(changed).render()


def test_an_ordinary_log_has_nothing() -> None:
    result = read(ORDINARY * 50)
    assert (result.causes, result.unknown, result.misfits) == ([], False, [])
    assert "nothing known was found" in result.render()


def list_common(lines: Iterable[str]) -> list[str]:
    """Return the patterns for which a log is searched by a text that ordinary logs have often."""
    searched = {line: patterns.Pattern(line).literals for line in lines}
    return [
        line
        for line, words in searched.items()
        if any(patterns.weigh(word) < patterns.LEAST or word in ORDINARY.lower() for word in words)
    ]


def test_no_failure_is_searched_by_what_ordinary_logs_have_often() -> None:
    assert list_common(pattern.text for row in ROWS.values() for pattern in row.sign.lines) == []
    common = ["error {code:number}:", "{tool} not found", "stalled *", "^Requirement already satisfied"]
    assert list_common(common) == common


@pytest.mark.parametrize("near_miss", LOGS["near_misses"], ids=lambda near_miss: near_miss["line"])
def test_a_line_that_looks_alike_is_not_taken_for_the_failure(near_miss: dict[str, Any]) -> None:
    assert name(near_miss["line"]) == near_miss["means"]


@pytest.mark.parametrize(
    "write",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("error: ", "\x1b[0;1;31merror: \x1b[0m\x1b[1m").encode(),
        lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: b"caf\xe9 \xff\n"[:-1] + text.encode(),
        lambda text: f"#12 34.56 {text}".encode(),
        lambda text: f"\x08\x08\r 45% |####    | 1/2\r100% {text}".encode(),
        lambda text: b"x" * 9_000_000 + text.encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text.encode()) + gzip.compress(b"x" * 3_000_000),
        lambda text: gzip.compress(text.encode() + os.urandom(3_000_000).hex().encode())[:2_000_000],
        lambda text: gzip.compress(b"\xff\xfe" + text.encode("utf-16-le")),
    ],
    ids=[
        "crlf",
        "colors",
        "utf-16",
        "utf-16 without mark",
        "broken utf-8",
        "buildkit",
        "progress",
        "long line",
        "mark",
        "gzip",
        "gzip twice",
        "cut gzip",
        "gzip of utf-16",
    ],
)
def test_a_log_may_have_any_form(write: Callable[[str], bytes]) -> None:
    result = read(write(f"{KILLED}\nlast line\n"))
    (cause,) = result.causes
    assert cause.row.id == "compiler-killed"
    assert cause.match.lines[0].number == 1
    assert max(len(line) for line in cause.render().splitlines()) < 400


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\xfd7zXZ\x00", b"BZh9", b"\x28\xb5\x2f\xfd"])
def test_what_is_packed_in_another_way_is_refused(start: bytes) -> None:
    with pytest.raises(UsageError, match="is packed by"):
        read(start + b"\x00\x01")


def test_a_log_that_unpacks_to_far_more_than_its_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "FREE", 1_000_000)
    packed = gzip.compress(b"line\n" * 2_000_000)
    for stream in (packed, packed * 3):
        with pytest.raises(DataError, match="the log unpacks to more than 100 times its size"):
            read(stream)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="not text"):
        read(Path(sys.executable).read_bytes()[:100_000])


def test_an_empty_log_says_where_errors_are_printed() -> None:
    assert "2>&1 | toolkit diagnose" in read("").render()


def test_an_id_that_nearly_fits_is_proposed(run: Run) -> None:
    for asked in ("diskfull", "full"):
        done = run("diagnose", "--id", asked)
        assert done.returncode == 2
        assert "disk-full" in done.stderr


def test_what_cannot_be_read_is_one_message(run: Run, tmp_path: Path) -> None:
    for path, code in ((tmp_path, 2), (Path("/proc/self/mem"), 4)):
        done = run("diagnose", str(path))
        assert done.returncode == code
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


def test_a_notebook_is_read_by_its_text() -> None:
    trace = [
        "W Could not load dynamic library 'libcublas.so.12'\n",
        'Layer "d" expects 1 input(s), but it received 2 input',
    ]
    notebook = {"cells": [{"outputs": [{"text": trace}, {"text": ["- loss: nan\ntensors"]}]}]}
    for indent in (None, 1):
        assert {"gpu-library-missing", "loss-nan"} <= set(name(json.dumps(notebook, indent=indent)))


def test_what_stands_near_decides_also_where_blocks_meet() -> None:
    filler = "x" * 99 + "\n"
    rule, header = "undeclared inclusion(s) in rule '@zlib//:zlib':\n", "  '/usr/lib/clang/17/include/stddef.h'\n"
    for lines in range(10_483, 10_488):  # a block ends after 1 MiB
        assert name(filler * lines + rule + header)[0] == "undeclared-compiler-headers"
    assert name(rule + filler * 5000 + header)[0] != "undeclared-compiler-headers"


def test_a_message_that_was_broken_over_lines_leaves_the_numbers_of_lines() -> None:
    broken = "CMake Error at x.cmake:3 (message):\n  The flux is\n  old.\n\n  So is the frob.\nCall Stack:\n"
    (cause,) = read(broken * 2).causes
    assert [line.number for line in cause.match.lines] == [1, 7]
    assert "The flux is old." in cause.cause


def test_a_version_of_a_package_is_no_python() -> None:
    assert read("Ignored versions that require a different python version: 1.21.2").found.facts == {}
    assert read("Using Python version: 3.11.2").found.facts == {"Python": "3.11.2"}


@pytest.mark.parametrize(
    ("log", "facts"),
    [
        ("Name: tensorflow\nVersion: 2.15.0\nSummary: x", {"TensorFlow": "2.15.0"}),
        ("Name: keras\r\nVersion: 3.3.3\r\n---\r\nName: torch\r\nVersion: 2.1.0", {"Keras": "3.3.3", "torch": "2.1.0"}),
        ("numpy              1.26.4\ntensorflow-intel   2.15.0", {"TensorFlow": "2.15.0", "NumPy": "1.26.4"}),
        ("numpy 1.26.4\ntensorflow-gpu==2.6.0", {"TensorFlow": "2.6.0", "NumPy": "1.26.4"}),
        ("tensorflow      2.10.0      gpu_py39h9333_0  conda-forge", {"TensorFlow": "2.10.0"}),
        ("cudatoolkit     11.2.2      hbe64b41_10", {"CUDA": "11.2.2"}),
        ("python          3.9.16      h2782a2a_0_cpython", {"Python": "3.9.16"}),
        ("nvidia-cudnn-cu12==8.9.4.25", {"cuDNN": "8.9.4.25"}),
        ("Cuda compilation tools, release 11.2, V11.2.152", {"CUDA": "11.2"}),
        ("| NVIDIA-SMI 470.82    Driver Version: 470.82    CUDA Version: 11.4 |", {"driver": "470.82"}),
        (">>> tf.__version__\n'2.15.0'", {"TensorFlow": "2.15.0"}),
        ("$ python -c 'import tensorflow as tf; print(tf.__version__)'\n2.15.0", {"TensorFlow": "2.15.0"}),
        ('In [2]: np.__version__\nOut[2]: "1.26.4"', {"NumPy": "1.26.4"}),
        ("v2.11.0-rc2-17-gd5b57ca93e5 2.11.0", {"TensorFlow": "2.11.0"}),
        ("Name: frob\nVersion: 2.15.0\nRequires: tensorflow", {}),
        ("print(tf.__version__)\n2.15.0 is too old", {}),
        ("frob wants numpy 1.26.4\nnumpy  and 1.26.4", {}),
    ],
)
def test_the_version_of_what_is_installed_is_a_fact(log: str, facts: dict[str, str]) -> None:
    found = read(log).found.facts
    assert {name: value for name, value in found.items() if value != "yes"} == facts


def test_a_line_that_differs_from_many_others_in_a_digit_alone_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LONG", 0)
    lines = "".join(f"write 0x{number:08x}: (os error {number % 10}1)\n" for number in range(20_000))
    assert name(f"{lines}write 0x0000abcd: (os error 28)\n{lines}") == ["disk-pip"]
    assert name(lines.replace("os error", "error")) == []


def test_consequences_come_after_their_cause_and_what_frightens_comes_last() -> None:
    log = "TF-TRT Warning: Could not find TensorRT\nDNN library is not found\n" + ROWS["cudnn-older"].examples[0]
    result = read(log)
    assert [(cause.row.id, cause.consequence) for cause in result.causes] == [
        ("cudnn-older", False),
        ("cudnn-missing", True),
        ("tensorrt-missing", False),
    ]
    assert "9.1.0" in result.causes[0].cause
    assert "9.3.0" in result.causes[0].remedy


def test_versions_of_a_log_are_held_against_the_version_table() -> None:
    result = read("Python 3.13.1 (main)\nYou have bazel 7.3.2 installed.\ntensorflow-2.19.0/WORKSPACE\n")
    assert result.found.facts == {"TensorFlow": "2.19.0", "Python": "3.13.1", "Bazel": "7.3.2"}
    assert "Bazel 7.3.2 with TensorFlow 2.19.0, which wants 6.5.0" in result.misfits
    assert any(each.startswith("Python 3.13.1") for each in result.misfits)


def test_the_command_reads_files(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"fine\n{KILLED}\n")
    done = run("diagnose", str(log), "--json")
    (cause,) = json.loads(done.stdout)["causes"]
    assert {"id", "cause", "remedy", "certainty", "harmless", "lines", "sources"} <= cause.keys()
    assert cause["lines"] == [{"number": 2, "text": KILLED}]
    assert (cause["certainty"], cause["harmless"], done.returncode) == ("certain", False, 0)
    assert "toolkit build-wheel --jobs" in run("diagnose", str(log)).stdout
    assert run("diagnose", str(tmp_path / "none")).returncode == 2
    assert run("diagnose", str(log), "--last").returncode == 2


def list_own_commands() -> list[str]:
    """Return the commands of the toolkit in all answers that can be run as they stand."""
    said = [answer for row in ROWS.values() for answer in (row, *row.answers, *row.places.values())]
    commands = {command for answer in said for command in answer.commands if command.startswith("toolkit ")}
    return sorted(command for command in commands if not re.search(r"[…{|]|\b[A-Z]{4,}\b", command))


@pytest.mark.parametrize("command", list_own_commands())
def test_a_command_of_the_toolkit_in_an_answer_is_one_that_it_takes(run: Run, command: str) -> None:
    name, *options = command.split()[1:]
    if name == "build-wheel":
        done = run(name, *options, "--dry-run")
        assert done.returncode == 0, done.stderr
    helped = run(name, "--help").stdout
    assert [each for each in options if each.startswith("--") and each not in helped] == []


def test_an_unknown_error_is_shown_and_not_guessed_at(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("fine\nFrobnicationError: \x1b]0;title\x07the \x9bflux is out of range\nmore\n")
    done = run("diagnose", str(log))
    assert done.returncode == 13
    assert "nothing known was found" in done.stdout
    assert "line 2: FrobnicationError: the " in done.stdout
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", done.stdout)
    log.write_text("fine\n")
    assert run("diagnose", str(log)).returncode == 0


def test_a_row_is_shown_by_its_id_and_by_that_of_the_version_table(run: Run) -> None:
    for asked in ("offsetof-extension", "P5"):
        assert "--copt=-Wno-gnu-offsetof-extensions" in run("diagnose", "--id", asked).stdout
    assert run("diagnose", "--id", "none").returncode == 2
    assert "`toolkit diagnose --id offsetof-extension`" in run("matrix").stdout


def test_the_newest_log_of_the_clone_is_found(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert run("diagnose", "--last", TOOLKIT_STATE=str(state)).returncode == 2
    (state / "wheel-x" / "bazel").mkdir(parents=True)
    (state / "wheel-x" / "bazel" / "build.log").write_text(KILLED)
    assert "compiler-killed" in run("diagnose", "--last", TOOLKIT_STATE=str(state)).stdout


def test_a_command_that_fails_names_the_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise EngineError("the engine does not answer", why="Cannot connect to the Docker daemon at unix:///x")

    monkeypatch.setattr(examination, "examine", fail)
    done = run("doctor")
    assert done.returncode == 5
    assert "`toolkit diagnose --id docker-not-running`" in done.stderr


def test_each_cause_of_a_missing_gpu_that_the_checks_know_has_its_row() -> None:
    said = [f"cuInit returned error {code}, {cause.text}" for code, cause in device._ANSWERS.items()]
    rows = [diagnosis.explain(each, certain=False) for each in said]
    assert [cause and cause.row.id for cause in rows] == [
        "no-device",
        "devices-hidden",
        "fabric-manager",
        "driver-mismatch",
        "driver-compat",
        "driver-state",
    ]


def test_a_job_that_fails_names_the_failure_of_its_traceback(tmp_path: Path) -> None:
    config = parse(["digits", "--out", str(tmp_path)])
    config.run_dir.mkdir(parents=True)

    def fail(*_: object) -> int:
        (config.run_dir / "failure.txt").write_text(
            "UnimplementedError: " + ROWS["deterministic-operation"].examples[0]
        )
        return 1

    engine: Any = SimpleNamespace(run=fail)
    with pytest.raises(JobError) as caught:
        training_job.run(engine, engine, Job(title="training", argv=()), config)
    assert "no deterministic GPU version" in caught.value.why
    assert "--id deterministic-operation" in caught.value.remedy
    assert "would fail again" in caught.value.remedy


@pytest.mark.parametrize("answer", LOGS["answers"], ids=lambda answer: answer["log"][-60:])
def test_an_answer_is_computed_from_what_the_line_names(answer: dict[str, str]) -> None:
    (cause,) = (cause for cause in read(answer["log"]).serious if not cause.consequence)
    assert answer["cause"].lower() in cause.cause.lower()
    assert "command" not in answer or answer["command"] in cause.commands


@pytest.mark.parametrize(
    ("evidence", "line"),
    [
        ("keras==2.15.0", "No module named 'keras.engine'"),
        ("TensorFlow version: 2.15.0", "No module named 'keras.engine'"),
        ("TensorFlow version: 2.15.0", "module 'keras._tf_keras.keras' has no attribute '__internal__'"),
        (
            "LOCAL_CUDA_PATH=/x",
            "no such target '@local_config_cuda//cuda:x': target 'x' not declared in package 'cuda'",
        ),
    ],
)
def test_a_cause_is_certain_only_beside_its_evidence(evidence: str, line: str) -> None:
    assert [cause.certainty for cause in read(line).serious] == ["likely"]
    assert [cause.certainty for cause in read(f"{evidence}\n{line}").serious] == ["certain"]
    assert "(likely)" in read(line).render()


@pytest.mark.parametrize(
    ("found", "spec", "direction"),
    [
        ("2.1", "<2", "new"),
        ("1.9", ">=2", "old"),
        ("1.9", "==2.0", "old"),
        ("2.1", "==2.0.*", "new"),
        ("2.5", "~=2.18", "old"),
        ("1.5", ">=1.2,<2", ""),
        ("one", "<2", ""),
        ("1.0", "<<2", ""),
    ],
)
def test_a_version_is_too_old_or_too_new(found: str, spec: str, direction: str) -> None:
    assert specifiers.compare(found, spec) == direction


@pytest.mark.parametrize(
    ("tensorflow", "package", "spec"),
    [
        ("2.15.0", "ml_dtypes", "~=0.2.0"),
        ("2.15.1", "ml-dtypes", "~=0.3.1"),
        ("2.12.0", "numpy", ">=1.22,<1.24"),
        ("2.12.1", "numpy", ">=1.22,<=1.24.3"),
        ("2.8", "numpy", ">=1.20,<2"),
        ("2.8", "frob", ""),
        ("9.9", "numpy", ""),
    ],
)
def test_each_release_of_tensorflow_wants_what_its_metadata_says(tensorflow: str, package: str, spec: str) -> None:
    assert packages.find_wish(package, {"TensorFlow": tensorflow}, answers.load_knowledge()) == spec


NO_DEVICE = "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (f"ls /.dockerenv\n{NO_DEVICE}", "docker run --gpus all …"),
        (f"root@0a1b2c3d4e5f:/app# python train.py\n{NO_DEVICE}", "docker run --gpus all …"),
        (f"1:name=systemd:/docker/0a1b2c\n{NO_DEVICE}", "docker run --gpus all …"),
        (f"Linux box 5.15.90.1-microsoft-standard-WSL2\n{NO_DEVICE}", "nvidia-smi.exe"),
        (f"LD_LIBRARY_PATH=/usr/lib/wsl/lib\n{NO_DEVICE}", "nvidia-smi.exe"),
        (f"Linux box 6.8.0-48-generic\n{NO_DEVICE}", "nvidia-smi -L"),
    ],
)
def test_the_remedy_is_that_of_the_place_which_the_log_names(log: str, command: str) -> None:
    (cause,) = read(log).serious
    assert command in cause.commands
    assert (cause.remedy == cause.row.remedy) == (command == "nvidia-smi -L")


TRACEBACK = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 12, in main
    model.fit(data)
  File "/home/u/venv/lib/python3.12/site-packages/frob/core.py", line 7, in run
"""


@pytest.mark.parametrize(
    "end",
    [
        "frob.core.Unheard: of",
        "frob.FrobError: of",
        "    raise Unheard",
        "process exited, exit code 3",
        "Frobnication terminated",
        "frob: FATAL of",
        "job 7: FAILED",
        "[rank2]:[E424 01:11:21.1608 x.cpp:629] the flux",
        "2024-07-19 15:49:01.34: E external/frob/x.cc:1] the flux",
        "waiting for the flux timed out",
        "FrobError                Traceback (most recent call last)",
    ],
)
def test_a_log_that_ends_in_a_failure_is_never_without_one(end: str, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for text in (f"fine\n{TRACEBACK}{end}\n", f"{ROWS['tensorrt-missing'].examples[0]}\n{TRACEBACK}{end}\n\n"):
        log.write_text(text)
        done = run("diagnose", str(log))
        assert done.returncode == 13
        assert "are not known" in done.stdout


@pytest.mark.parametrize(
    "end",
    [
        "frob: ./frob: Keine Berechtigung",
        "frob: 加载失败",
        "Erreur : le flux",
        "Abgebrochen (Speicherabzug geschrieben)",
    ],
)
def test_a_log_in_another_language_that_ends_in_a_failure_is_not_without_one(end: str) -> None:
    assert read(f"fine\n{end}").unknown


def test_a_message_in_another_language_is_searched_no_more_often_than_in_english() -> None:
    lines = [pattern for row in ROWS.values() for pattern in row.sign.lines]
    translated = [pattern for pattern in lines if languages.translate(pattern.text) != pattern.text]
    assert any(not word.isascii() for pattern in translated for word in pattern.literals)
    assert {pattern.sample.isascii() for pattern in translated if pattern.text.isascii()} == {True}
    disk = patterns.Pattern("_bazel_*No space left on device")
    assert disk.literals[0] == "no space left on device"
    assert disk.match("/_bazel_me/x: 设备上没有空间", "/_bazel_me/x: 设备上没有空间") is not None
    assert languages.translate("<Segmentation fault|SIGSEGV> {why=Killed}").startswith(
        "<Segmentation fault|SIGSEGV|段错误|"
    )


def test_headline_of_a_pattern_leaves_open_what_differs_from_log_to_log():
    assert patterns.Pattern("package {name:package} has*wheels for <cp311|cp312>").headline == (
        "package … has … wheels for cp311"
    )
    assert patterns.Pattern("needs ptxas {wanted:version}").headline == "needs ptxas 1.2.3"


@pytest.mark.parametrize(
    "line", ["Invalid frob: --barn", "frob: barn is not installed", "FrobNotFound: barn", "frob cannot barn it"]
)
def test_a_word_of_a_failure_counts_in_a_log_of_few_lines_alone(line: str) -> None:
    assert read(f"frobbing\n{line}\nbye").unknown
    assert not read("\n".join(["frobbing", line, *["step"] * 5])).unknown
    assert not read("frobbing\n0 errors, nothing to do\nCorrected error received").unknown


@pytest.mark.parametrize(
    ("log", "tracker"),
    [
        ("FrobError: x", "the tracker of the program that printed them"),
        ("import jax\nFrobError: x", "https://github.com/jax-ml/jax/issues"),
        ("import torch\nimport tensorflow as tf\nFrobError: x", "https://github.com/tensorflow/tensorflow/issues"),
    ],
)
def test_an_unknown_error_is_looked_for_at_the_tracker_of_what_the_log_names(log: str, tracker: str) -> None:
    assert f"search for them at {tracker}," in read(log).render()


def test_of_an_unknown_exception_its_place_in_the_program_and_in_the_library_is_shown() -> None:
    result = read(f"{TRACEBACK}frob.FrobError: of\n")
    assert result.to_json()["origin"] == [
        "/home/u/train.py, line 12, in main",
        "/home/u/venv/lib/python3.12/site-packages/frob/core.py, line 7, in run",
    ]
    assert "raised at:\n  /home/u/train.py, line 12, in main" in result.render()
    own = TRACEBACK.replace("/home/u/venv/lib/python3.12/site-packages/", "/home/u/")
    assert read(f"{own}frob.FrobError: of\n").found.origin == ("/home/u/frob/core.py, line 7, in run",)
    assert read(f"{TRACEBACK}{KILLED}\n").to_json()["origin"] == []


def test_of_what_is_not_known_the_first_errors_and_the_last_are_shown() -> None:
    log = "".join(f"error: unheard of {number} times\n" for number in ("one", "two", "three", "four", "five", "six"))
    shown = [line.number for line in read(log).unexplained]
    assert (shown[0], shown[-1], len(shown)) == (1, 6, 5)


def test_a_step_of_a_build_that_failed_does_not_stand_for_what_the_compiler_says() -> None:
    step = b"ERROR: x/BUILD:1:2: Compiling x.cc failed: (Exit 1): gcc failed: error executing command\n"
    refusal = b"x/frob.h(176): error: frobnication is no such thing\n"
    alone = diagnosis.diagnose([("", io.BytesIO(step))])
    assert [cause.row.id for cause in alone.causes] == ["bazel-action"]
    assert not alone.unknown
    told = diagnosis.diagnose([("", io.BytesIO(step + refusal))])
    assert [cause.row.id for cause in told.causes] == ["bazel-action"]
    assert [line.text.encode() + b"\n" for line in told.unexplained] == [refusal]


def test_every_piece_of_knowledge_can_be_read() -> None:
    known = answers.load_knowledge()
    for row in [*known["libraries"], *known["symbols"]]:
        re.compile(row["match"])
    for row in names.list_rows(known):
        assert ("gone" in row) != ("since" in row), row
        assert specifiers.compare("0", f"<{row.get('gone') or row['since']}") == ""
    assert None not in list_values(known), "a text with a comma that has no quotes"


def test_what_is_known_of_cards_is_what_the_other_tables_say() -> None:
    known, rows = answers.load_knowledge(), load_table().cuda_rows
    for chip in cards.load_chips().values():
        row = known["cards"].get(int(chip.capability.replace(".", "")), {})
        if chip.last_cuda.startswith(("8", "10.2", "11.8", "12.9")) and not chip.last_driver.startswith("L4T"):
            assert specifiers.compare(chip.last_cuda, f"<{row['gone']}") == ""
    for cuda, row in rows.items():
        for number, dates in known["cards"].items():
            there = f"{number // 10}.{number % 10}" in row.capabilities
            limits = [f">={dates[name]}" if name == "since" else f"<{dates[name]}" for name in dates]
            assert specifiers.fits(cuda, ",".join(limits)) == there, (cuda, number)


def test_what_is_known_of_each_tensorflow_is_what_the_version_table_says() -> None:
    known, table = answers.load_knowledge(), load_table()
    for version, row in table.tensorflow_rows.items():
        told = known["tensorflow"][specifiers.read_minor(version)]["python"]
        assert told == f"{row.python[0]} to {row.python[-1]}", version
        floors = known["least_capabilities"]["TensorFlow"]
        least = [floor for since, floor in floors.items() if specifiers.fits(version, f">={since}")][-1]
        assert table.published_code.capabilities[0] == f"sm_{least.replace('.', '')}"


def test_a_card_has_by_its_name_the_capability_of_the_list_of_devices() -> None:
    rows, real = answers.load_knowledge()["card_names"], defaultdict(set)
    pattern = re.compile(patterns._WORDS["cardname"]["is"])
    for entries in cards._load_index().spelled.values():
        for entry in entries:
            if (match := pattern.search(f"nvidia {entry.name}".lower())) and (chip := cards.find_chip(entry.code)):
                real[match[0]].add(chip.capability)
    told = {name: next((row["capability"] for row in rows if re.match(row["match"], name)), "") for name in real}
    assert {name: (told[name], real[name]) for name in real if told[name] and told[name] not in real[name]} == {}
    assert sum(map(bool, told.values())) > 150


def list_values(told: Any) -> list[Any]:
    """Return what a table holds, without lists and mappings."""
    if isinstance(told, dict | list):
        return [each for part in (told.values() if isinstance(told, dict) else told) for each in list_values(part)]
    return [told]


_HELD = """
import importlib, importlib.metadata, importlib.util, sys
from packaging.version import Version
from toolkit.diagnosis import answers, names

OTHER_NAMES = {"tensorflow": "tensorflow-cpu"}
CLASSES = {
    "DataFrame": "pandas",
    "Series": "pandas",
    "TFLiteConverter": "tensorflow._api.v2.lite",
    "TFLiteConverterV2": "tensorflow.lite.python.lite",
    "MessageFactory": "google.protobuf.message_factory",
    "SymbolDatabase": "google.protobuf.symbol_database",
}
wrong, seen = [], 0

def has(module, name):
    if module in CLASSES:
        return hasattr(getattr(importlib.import_module(CLASSES[module]), module), name)
    try:
        found = importlib.import_module(module)
        return name == "*" or hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}") is not None
    except (ImportError, AttributeError):
        return False

for row in names.list_rows(answers.load_knowledge()):
    package = row["package"]
    try:
        version = importlib.metadata.version
        here = sys.version.split()[0] if package == "Python" else version(OTHER_NAMES.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        continue
    limit, version = Version(str(row.get("gone") or row["since"])), Version(here)
    there = version < limit if "gone" in row else version >= limit
    there = there or ("back" in row and version >= Version(row["back"]))
    seen += len(row["names"])
    wrong += [f"{row['module']}.{name} {here}" for name in row["names"] if has(row["module"], name) != there]
print(seen > 150, *wrong)
"""


@pytest.mark.slow
def test_names_that_a_module_lost_or_got_are_so_in_what_is_installed() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _HELD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("python.keras.layers.Dense", "tensorflow.keras.layers"),
        ("python.keras.frob", "tensorflow.keras"),
        ("python.keras.optimizer_v2.adam", "tensorflow.keras.optimizers"),
        ("python.ops.image_ops_impl", "tf.image"),
        ("python.ops.nn_impl", "tf.nn"),
        ("python.framework.ops.Tensor", "tf.Tensor, tf.Operation, tf.Graph and the like"),
        ("contrib.data", "tf.data"),
        ("contrib.slim.nets", "the package tf-slim"),
        ("python.frob", ""),
    ],
)
def test_a_private_name_of_tensorflow_has_a_public_one(path: str, public: str) -> None:
    assert private.find_public(path, answers.load_knowledge()["private"]) == public


_PUBLIC = """
import functools, re
import tensorflow as tf
from toolkit.diagnosis import answers

table = answers.load_knowledge()["private"]
told = [f"tf.{name}" for name in table["public"]] + [f"tensorflow.keras.{name}" for name in table["keras"]]
lasting = " ".join(said for said in table["paths"].values() if "until" not in said)
told += re.findall(r"(?:tf|tensorflow)[.][\\w.]*\\w", lasting)
wrong = []
for name in told:
    try:
        functools.reduce(getattr, name.split(".")[1:], tf)
    except AttributeError:
        wrong.append(name)
print(len(told) > 100, *wrong)
"""


@pytest.mark.slow
def test_each_public_name_that_takes_the_place_of_a_private_one_is_there() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _PUBLIC], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
