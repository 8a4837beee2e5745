"""Known failures in logs: each row of the table by its own examples, logs in any form, and near misses."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import Run
from toolkit import diagnosis, doctor
from toolkit.base import project
from toolkit.base.errors import DataError, EngineError, JobError, UsageError
from toolkit.diagnosis import Diagnosis, answers, packages
from toolkit.engine import Job
from toolkit.jobs import training_job
from toolkit.smoke.checks import device
from toolkit.versions.table import load_table
from toolkit.wheel import bazel_output
from tools import pages
from train.command_line import parse
from train.system import budget

ROWS = diagnosis.load().rows
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


def test_the_smoke_checks_have_the_remedies_of_the_table() -> None:
    assert pages.REMEDIES.read_text() == pages.render_remedies(), "`python -m tools.pages` writes them"


ORDINARY = """\
INFO: From Compiling x.cc:
x.cc:3:2: warning: unused variable 'killed' [-Wunused-variable]
INFO: Build completed successfully, 22512 total actions
WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError("Read timed out.")': /x/
Successfully installed numpy-2.1.2 tensorflow-cpu-2.21.0
debconf: delaying package configuration, since apt-utils is not installed
29/29 - 2s - 62ms/step - loss: 32.2522 - mean_absolute_error: 4.5603 - val_loss: 29.3002
I0000 gpu_device.cc:2019] Created device /device:GPU:0 with 13272 MB memory: -> name: NVIDIA L4, compute capability: 8.9
| NVIDIA-SMI 590.57                 Driver Version: 591.86         CUDA Version: 13.1     |
 => => extracting sha256:3ea009573b472d108af9af31ec35a06fe3649084f6611cf11f7d594b85cf7a7c                   0.4s
saved model.keras; error on test data 0.2718188762664795
"""


def test_each_failure_that_the_code_names_has_a_row() -> None:
    code = "".join(path.read_text() for path in project.locate("toolkit").rglob("*.py"))
    named = re.findall(r"""(?:refer|(?<!\.)find_remedy|load_row)\(["']([\w-]+)["']""", code)
    assert len(named) > 10
    assert {*named} <= diagnosis.load().rows.keys()


def test_each_failure_is_found_alone_as_among_the_others() -> None:
    assert {name: diagnosis.load_row(name).reference for name in ROWS} == {
        name: row.reference for name, row in ROWS.items()
    }


def test_an_ordinary_log_has_nothing() -> None:
    result = read(ORDINARY * 50)
    assert (result.causes, result.unknown, result.misfits) == ([], False, [])
    assert "nothing known was found" in result.render()


NEAR_MISSES = {
    "ValueError: Only instances of `keras.Layer` can be added to a Sequential model. Received: 5 (of type int)": [],
    "AttributeError: 'Tensor' object has no attribute 'read_value'": ["object-attribute"],
    "running bdist_wheel": [],
    "Exception ignored in: <function IteratorResourceDeleter.__del__ at 0x7f20>": [],
    "zsh: illegal hardware instruction  python train.py": ["rosetta"],
    "ValueError: Attempt to convert a value (<map object>) with an unsupported type (<class 'map'>) to a Tensor.": [],
    "warning C4819: The file contains a character that cannot be represented in the current code page (936).": [],
    "Skipping registering GPU devices...": [],
    "failed with 'CUDA_ERROR_INVALID_HANDLE'": ["gpu-code"],
    "HERMETIC_PYTHON_VERSION variable was not set correctly, using default version.": [],
    "warning: defining a type within 'offsetof' is a Clang extension [-Wgnu-offsetof-extensions]": [],
    "clang: warning: argument unused during compilation: '-fno-canonical-system-headers'": [],
    'error: linkage specification is incompatible with previous "main"': [],
    "Successfully opened dynamic library libcublas.so.12": [],
    "ptxas fatal   : Unsupported .version 8.7; current version is '8.5'": ["ptx-newer-than-ptxas"],
    "no such target '@local_config_cc//:cc-compiler-k8'": ["compiler-missing"],
    "version `GLIBC_2.29' not found": ["glibc-too-old"],
    "Unrecognized keyword arguments: ['batch_shape']": ["keras-3-file"],
    "10/10 - loss: 0.5 - val_loss: nan": ["validation-nan"],
    "Relying on driver to perform ptx compilation.": ["ptxas-driver-note"],
    "UNIMPLEMENTED: DNN library is not found.": ["cudnn-missing"],
    "failed call to cuInit: UNKNOWN ERROR (303)": ["no-nvidia-driver"],
    "Server terminated abruptly (error code: 2, error message: 'Stream removed)": ["bazel-server-crashed"],
    "requirement tensorflow==2.22 (from versions: 2.16.1, 2.17.0)": ["pip-version-too-new"],
    "tensorflow-2.18.0-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform": ["wheel-other-python"],
    "Executor start aborting (you can ignore this message): OUT_OF_RANGE: End of sequence": ["end-of-data"],
    "RuntimeWarning: numpy.ndarray size changed, may indicate binary incompatibility.": ["numpy-size-warning"],
    "cannot load any more object with static TLS": ["static-tls"],
    "archive/tar: invalid tar header": ["image-layer-format"],
    "cc1plus: warning: unrecognized command line option '-Wno-foo'": [],
    "WARNING: Retrying after connection broken by 'ReadTimeoutError(\"Read timed out.\")': /simple/": [],
    "NCCL WARN Cuda failure 'invalid argument'\nError while creating shared memory segment /dev/shm/n": ["nccl-cuda"],
    "shm.so: undefined symbol: _ZN10tensorflow8OpKernelE": ["custom-op-symbol"],
    "_multiprocessing.SemLock(\nOSError: [Errno 28] No space left on device": ["semaphores-full"],
    "OSError: [Errno 28] No space left on device": ["disk-full"],
    "Built with CUDA: True": [],
    "tensorflow-cpu==2.21.0\nkeras==3.14.0": [],
    "Successfully installed tensorflow-2.21.0 tensorflow-cpu-2.21.0": ["tensorflow-twice"],
    "Could not find cuda drivers on your machine\nCannot dlopen some GPU libraries": [
        "cudart-missing",
        "gpu-library-missing",
    ],
    "cc1plus: warning: unrecognized command line option '-std=c++17'": [],
    "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.": ["gpu-lost"],
    "watchdog: BUG: soft lockup - CPU#6 stuck for 22s! [python:1]": [],
    "AttributeError: 'str' object has no attribute 'decode'": ["object-attribute"],
    "pcieport 0000:00:1c.5: AER: Corrected error received: 0000:2d:00.0": [],
    "tf2xla conversion failed\nDetected unsupported operations when trying to compile graph": ["xla-unsupported"],
    "ModuleNotFoundError: No module named 'tensorflow.contrib'": ["tensorflow-1-code"],
    "ModuleNotFoundError: No module named 'tensorflow.keras'": ["keras-internals"],
    "nvidia-smi: command not found": ["program-missing"],
    "zipfile.BadZipFile: File is not a zip file": ["archive-broken"],
    "PermissionError: [Errno 13] Permission denied: '/usr/lib/python3/dist-packages/x'": ["pip-permission"],
    "+ pip install tensorflow || echo pip: command failed": [],
    "warning: Failed to hardlink files; falling back to full copy.": [],
    "Epoch 3/10 - indices in [0, 30522)": [],
    "Collecting uv: No interpreter constraints": [],
}


@pytest.mark.parametrize("line", NEAR_MISSES)
def test_a_line_that_looks_alike_is_not_taken_for_the_failure(line: str) -> None:
    assert name(line) == NEAR_MISSES[line]


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
    assert {"id", "title", "cause", "remedy", "certainty", "harmless", "lines", "sources"} <= cause.keys()
    assert cause["lines"] == [{"number": 2, "text": KILLED}]
    assert (cause["certainty"], cause["harmless"], done.returncode) == ("certain", False, 0)
    assert "toolkit build-wheel --jobs" in run("diagnose", str(log)).stdout
    assert run("diagnose", str(tmp_path / "none")).returncode == 2
    assert run("diagnose", str(log), "--last").returncode == 2


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

    monkeypatch.setattr(doctor, "examine", fail)
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

    def execute() -> int:
        (config.run_dir / "failure.txt").write_text(
            "UnimplementedError: " + ROWS["deterministic-operation"].examples[0]
        )
        return 1

    unused: Any = None
    with pytest.raises(JobError) as caught:
        training_job.run(unused, unused, Job(title="training", argv=()), config, execute)
    assert "no deterministic GPU version" in caught.value.why
    assert "--id deterministic-operation" in caught.value.remedy
    assert "would fail again" in caught.value.remedy


SITE = '  File "/env/lib/python3.11/site-packages'
"""How a frame of a package begins."""

SPECIFIC = {
    "OSError: libGL.so.1: cannot open shared object file": ("OpenGL", "sudo apt-get install libgl1"),
    "ImportError: libcudnn.so.8: cannot open shared object file": ("cuDNN 8", "pip install 'nvidia-cudnn-cu12<9'"),
    "ImportError: libcudart.so.13: cannot open shared object file": (
        "CUDA 13",
        "pip install 'nvidia-cuda-runtime-cu13'",
    ),
    "x.so: undefined symbol: cublasLtFancy": ("cuBLAS", "unset LD_LIBRARY_PATH"),
    "#error -- unsupported clang version! clang version must be less than 20 and greater than 3.2": (
        "clang 19",
        "export NVCC_CCBIN=/usr/bin/clang++-19",
    ),
    "#error -- unsupported GNU version! gcc versions later than 13 are not supported!": ("(13)", "ls /usr/bin/gcc-*"),
    "zlib/uncompr.c:1: fatal error: 'stddef.h' file not found": ("own header stddef.h", "clang -print-resource-dir"),
    "zlib/foo.c:1: fatal error: 'xstddef.h' file not found": ("finds no header xstddef.h", "apt-file search xstddef.h"),
    "Cannot batch tensors with different shapes in component 0. First element had shape [2,3] and element 1 had": (
        "one batch",
        "",
    ),
    "ValueError: Arguments `target` and `output` must have the same shape. Received: target.shape=(None, 1), "
    "output.shape=(None, 8)": ("(None, 1) and (None, 8)", ""),
    "x.so: undefined symbol: cuMemFancy_v2": ("driver is too old", "toolkit advise"),
    "module 'ml_dtypes' has no attribute 'float8_e4mb11'": ("older ml_dtypes", "pip install 'ml_dtypes<0.3'"),
    "module 'ml_dtypes' has no attribute 'float4_e2m1fn'": (
        "since ml_dtypes 0.5",
        "pip install --upgrade 'ml_dtypes>=0.5'",
    ),
    "TensorFlow version: 2.17.1\nmodule 'ml_dtypes' has no attribute 'int2'": (
        "installed ml_dtypes is older",
        "pip check",
    ),
    "AttributeError: module 'numpy' has no attribute 'bool'": ("NumPy 1.24", "pip install 'numpy<1.24'"),
    "No module named 'numpy._core'": ("since numpy 2.0", "pip install --upgrade 'numpy>=2.0'"),
    "ImportError: cannot import name 'Mapping' from 'collections'": ("Python 3.10", "uv venv --python 3.9"),
    "ModuleNotFoundError: No module named 'distutils'": ("Python 3.12", "uv venv --python 3.11"),
    "cannot import name 'TFAutoModel' from 'transformers'": ("transformers 5", "pip install 'transformers<5'"),
    "ModuleNotFoundError: No module named 'cv2'": ("no module cv2", "python -m pip install opencv-python-headless"),
    "a 1.0 requires numpy<2,>=1.2, but you have numpy 2.1.0 which is incompatible": (
        "too new",
        "pip install 'numpy<2,>=1.2'",
    ),
    "a 1.0 requires numpy>=2.1, but you have numpy 1.26.4 which is incompatible": (
        "too old",
        "pip install 'numpy>=2.1'",
    ),
    "tensorflow-2.19.0\ntf-models 2.19 requires tf-keras>=2.16, but you have tf-keras 2.15.0 which is incompatible": (
        "too old",
        "pip install 'tf-keras~=2.19.0'",
    ),
    "nothing provides __glibc >=2.28 needed by x": ("C library", "CONDA_OVERRIDE_GLIBC=2.28 conda install …"),
    "nothing provides __cuda needed by tensorflow-2.17.0-cuda120": ("CUDA of NVIDIA's driver", "conda info | grep __"),
    "E x.cc:1] CUDA_ERROR_STUB_LIBRARY": ("stub of libcuda", ""),
    "subprocess died with <Signals.SIGKILL: 9>": ("memory ran out", "dmesg | tail"),
    "Could not find a version that satisfies the requirement tensorflow==2.15.0 (from versions: 2.16.1, 2.17.0)": (
        "Python 3.9 to 3.11",
        "uv venv --python 3.11 && uv pip install 'tensorflow==2.15.0'",
    ),
    "nvcc fatal : Unsupported gpu architecture 'compute_50'": ("too new for compute_50", "nvcc --list-gpu-arch"),
    "ptxas fatal : Value 'sm_121a' is not defined for option 'gpu-name'": ("too old for sm_121a", "toolkit advise"),
    "nvcc fatal : Unsupported gpu architecture 'compute_'": ("no compute capability", "toolkit advise"),
    "release 13.1\nnvcc fatal : Unsupported gpu architecture 'compute_101'": (
        "CUDA 12.8 and later know",
        "toolkit advise",
    ),
    "Cuda compilation tools, release 13.0\nUnsupported gpu architecture 'compute_101'": (
        "CUDA 13.0 and later have no code",
        "nvcc --list-gpu-arch",
    ),
    "create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\nMemory usage: 990 bytes free, 1000 bytes total.": (
        "99% of the GPU's memory were free",
        "unset LD_LIBRARY_PATH",
    ),
    "create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\nMemory usage: 10 bytes free, 1000 bytes total.": (
        "only 1%",
        "nvidia-smi",
    ),
    "  File \"/x/site-packages/keras/src/utils/p.py\", line 1, in f\nmodule 'keras.src.backend' has no attribute 'x'": (
        "two versions of keras are mixed",
        "pip uninstall -y keras",
    ),
    "  File \"/x/site-packages/jax/_src/p.py\", line 1, in f\nmodule 'jax._src.frob' has no attribute 'x'": (
        "two versions of jax are mixed",
        "pip uninstall -y jax",
    ),
    "hint: You're using CPython 3.13 (`cp313`), but `tensorflow` (v2.15.0) only has wheels with the following "
    "Python ABI tags: `cp310`, `cp311`": (
        "wheels for Python 3.10, 3.11, and this is Python 3.13",
        "uv sync --python 3.11",
    ),
    "hint: You're on Windows (`win_amd64`), but `frob` (v1.0) only has wheels for the following platforms: `macosx`": (
        "frob has no wheel for Windows (win_amd64)",
        "uv python list",
    ),
    "hint: You're on macOS (`macosx_15_0_x86_64`), but `frob` (v1.0) only has wheels for the following platform: `a`": (
        "no wheel for macOS",
        "uv python list",
    ),
    "AttributeError: 'Functional' object has no attribute 'fit_generator'": ("Keras 3", "export TF_USE_LEGACY_KERAS=1"),
    "PTX version 8.8 does not support target 'sm_107a'. Minimum required PTX version is 9.4.": (
        "built, 8.8, and that does not know sm_107a",
        "toolkit advise",
    ),
    "PTX version 8.5 does not support target 'sm_120'": (
        "does not know sm_120",
        "toolkit build-wheel --compute-capability 12.0",
    ),
    "dlerror: libcudart.so.11.0: cannot open shared object file": ("CUDA 11", "pip install nvidia-cuda-runtime-cu11"),
    "x.so: undefined symbol: _ZN5nvdla19IConcatenationLayer7setAxisEi": ("of JetPack", ""),
    "env: 'python3': No such file or directory": (
        "there is none of that name",
        "sudo apt-get install python3 python-is-python3",
    ),
    "run.sh: line 5: python3.6: command not found": ("calls python3.6", "uv python install python3.6"),
    "sh: patchelf: command not found": ("last step of the wheel", "sudo apt-get install patchelf"),
    'exec: "nvidia-smi": executable file not found in $PATH': (
        "driver is not installed",
        "docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi",
    ),
    "x.cc:1:10: fatal error: Python.h: No such file or directory": (
        "headers of the Python",
        "sudo apt-get install python3-dev",
    ),
    "fatal error: 'third_party/gpus/cudnn/cudnn.h' file not found": (
        "cudnn.h of CUDA, cuDNN",
        "find / -name cuda_runtime.h -o -name cudnn.h 2>/dev/null",
    ),
    "fatal error: tensorflow/core/framework/types.pb.h: No such file or directory": (
        "of a protobuf file",
        "bazel build //tensorflow:install_headers",
    ),
    "srun: error: Unable to create step for job 4242: Invalid generic resource (gres) specification": (
        "asks Slurm for GPUs",
        "sinfo -o '%P %G %D %t'",
    ),
    "sbatch: error: Batch job submission failed: Requested node configuration is not available": (
        "No node of the partition",
        "sinfo -N -o '%N %P %c %m %G'",
    ),
    "sbatch: error: invalid partition specified:  gpu": ("no partition, account", "sinfo -s"),
    "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.": (
        "inside another job",
        "unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE",
    ),
    "ImportError: cannot import name 'TypeIs' from 'typing_extensions'": (
        "since typing_extensions 4.10",
        "pip install --upgrade 'typing_extensions>=4.10'",
    ),
    "ModuleNotFoundError: No module named 'pkg_resources'": ("setuptools 82", "pip install 'setuptools<82'"),
    "Could not locate zlibwapi.dll. Please make sure it is in your library path": (
        "zlib for Windows",
        "where.exe zlibwapi.dll",
    ),
    "ld: unknown option: --no-undefined": ("option --no-undefined", ""),
    "  - nothing provides bleach 1.5.0 needed by tensorboard-1.8.0-py310": (
        "tensorboard-1.8.0-py310 wants bleach 1.5.0",
        "conda search -c conda-forge tensorflow",
    ),
    "TensorFlow version: 2.21.0\nCould not find cuda drivers on your machine": ("cuSOLVER", "toolkit install"),
    "clang: error: unsupported CUDA gpu architecture: sm_120": ("clang does not know sm_120", "clang --version"),
    "ptxas x.ptx, line 9; error   : Instruction 'mma' not supported on .target 'sm_120'": ("instruction (mma)", ""),
    "Getting requirements to build wheel did not run successfully.\nNo module named 'torch'": (
        "asks for torch without saying so",
        "pip install setuptools wheel packaging torch && pip install --no-build-isolation PACKAGE",
    ),
    "python setup.py egg_info did not run successfully.\nNo module named 'numpy.distutils'": (
        "Python 3.12",
        "uv venv --python 3.11",
    ),
    f"{SITE}/numpy/core/__init__.py\", line 1, in <module>\nAttributeError: module 'numpy' has no attribute '_new'": (
        "two versions of numpy are mixed",
        "pip install --no-cache-dir numpy",
    ),
    f"{SITE}/keras/backend/x.py\", line 8, in f\nAttributeError: module 'tensorflow.python.x' has no attribute 'y'": (
        "keras and tensorflow are of different versions",
        "pip install --upgrade tensorflow keras",
    ),
    f"{SITE}/frob/core.py\", line 3, in f\nTypeError: 'NoneType' object is not callable": ("frob", ""),
    "module 'pandas' has no attribute 'np'": ("pandas 2.0", "pip install 'pandas<2.0'"),
    "AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'": (
        "protobuf 6.30",
        "pip install 'protobuf<6.30'",
    ),
    "TensorFlow 2.19.0\na 1.6 requires protobuf<7.0dev,>=3.20, but you have protobuf 3.19.6 which is incompatible": (
        "protobuf 3.19.6 is installed",
        "pip check",
    ),
    "RuntimeError: CUDA error: device-side assert triggered": ("a label or index", ""),
    "huggingface_hub: HTTPError: 401 Client Error: Unauthorized for url: x": ("401, it wants a login", "hf auth login"),
    "Because a==1.2 depends on numpy>=1.26.0 and you require numpy==1.24.4, we can conclude": (
        "a==1.2 wants numpy>=1.26.0, and the requirements name numpy==1.24.4",
        "",
    ),
    "NCCL WARN Call to shm_open failed : Permission denied\nError while creating shared memory segment": (
        "may not write",
        "sudo chmod 1777 /dev/shm",
    ),
    "ValueError: Unknown layer: Functional": ("another Keras than", ""),
    "ValueError: Unknown layer: FrobLayer": ("one's own", ""),
    "'_UserObject' object has no attribute 'predict'": ("not a model of Keras", ""),
    "TypeError: Input 'filename' of 'ReadFile' Op has type float32 that does not match expected type of string.": (
        "data set is empty",
        "",
    ),
    "TypeError: Input 'y' of 'Mul' Op has type float32 that does not match type float16 of argument 'x'.": (
        "different types",
        "",
    ),
    "FailedPreconditionError: /data/train; Is a directory": ("a folder where it wants a file", ""),
}


@pytest.mark.parametrize(("log", "said"), SPECIFIC.items(), ids=[log[-60:] for log in SPECIFIC])
def test_an_answer_is_computed_from_what_the_line_names(log: str, said: tuple[str, str]) -> None:
    (cause,) = (cause for cause in read(log).serious if not cause.consequence)
    assert said[0].lower() in cause.cause.lower()
    assert said[1] in cause.commands or not said[1]


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
    assert packages.compare(found, spec) == direction


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
    ],
)
def test_a_log_that_ends_in_a_failure_is_never_without_one(end: str, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for text in (f"fine\n{TRACEBACK}{end}\n", f"{ROWS['tensorrt-missing'].examples[0]}\n{TRACEBACK}{end}\n\n"):
        log.write_text(text)
        done = run("diagnose", str(log))
        assert done.returncode == 13
        assert "are not known" in done.stdout


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


def test_every_piece_of_knowledge_can_be_read() -> None:
    known = answers.load_knowledge()
    for row in [*known["libraries"], *known["symbols"]]:
        re.compile(row["match"])
    for row in known["names"]:
        assert ("gone" in row) != ("since" in row), row
        assert packages.compare("0", f"<{row.get('gone') or row['since']}") == ""


_HELD = """
import importlib, importlib.metadata, importlib.util, sys
from packaging.version import Version
from toolkit.diagnosis import answers

OTHER_NAMES = {"tensorflow": "tensorflow-cpu"}
CLASSES = {
    "DataFrame": "pandas",
    "Series": "pandas",
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

for row in answers.load_knowledge()["names"]:
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
