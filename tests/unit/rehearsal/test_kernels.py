"""Tests that need the CUDA wheel, which is not in the locked set, use the Python that TOOLKIT_CUDA_PYTHON names."""

import mmap
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from rehearsal import audit, kernels
from rehearsal.kernels import Kernel, KernelTable, decode, encode, merge
from train.errors import PreflightError

ROOT = Path(__file__).parents[3]
PYTHON = os.environ.get("TOOLKIT_CUDA_PYTHON", "")


def make(device: str = "GPU", **options: object) -> Kernel:
    types = options.pop("types", "float32")
    return Kernel(device=device, constraints=(("T", tuple(str(types).split())),), **options)  # type: ignore[arg-type]


def test_the_devices_own_kernel_comes_before_the_default() -> None:
    table = KernelTable("x", {"Add": [make("DEFAULT", host=("x",)), make("GPU")]})
    found = table.find("Add", {"T": ("float32",)})
    assert found
    assert found.device == "GPU"


def test_the_default_serves_dtypes_that_the_device_has_not() -> None:
    table = KernelTable("x", {"Add": [make("DEFAULT", types="int32", host=("x",)), make("GPU")]})
    found = table.find("Add", {"T": ("int32",)})
    assert found
    assert found.host == ("x",)
    assert table.find("Add", {"T": ("string",)}) is None
    assert table.find("Sub", {"T": ("int32",)}) is None


def test_the_label_must_be_the_one_asked_for() -> None:
    table = KernelTable("x", {"Conv2D": [make(label="cudnn")]})
    assert table.find("Conv2D", {"T": ("float32",)}) is None
    assert table.find("Conv2D", {"T": ("float32",)}, "cudnn")


def test_the_higher_priority_wins() -> None:
    table = KernelTable("x", {"Op": [make(host=("low",)), make(host=("high",), priority=1)]})
    found = table.find("Op", {"T": ("float32",)})
    assert found
    assert found.host == ("high",)


def test_all_dtypes_of_a_list_must_be_allowed() -> None:
    table = KernelTable("x", {"Op": [make(types="float32 int64")]})
    assert table.find("Op", {"T": ("float32", "int64", "float32")})
    assert table.find("Op", {"T": ("float32", "int32")}) is None


def test_kernels_are_joined_only_where_all_else_is_equal() -> None:
    def pair(first: str, second: str) -> Kernel:
        return Kernel(device="GPU", constraints=(("S", (first,)), ("T", (second,))))

    square = [pair(first, second) for first in ("a", "b") for second in ("c", "d")]
    assert merge(square) == [Kernel(device="GPU", constraints=(("S", ("a", "b")), ("T", ("c", "d"))))]
    corner = merge(square[:3])
    table = KernelTable("x", {"Op": corner})
    allowed = {(s, t) for s in "ab" for t in "cd" if table.find("Op", {"S": (s,), "T": (t,)})}
    assert allowed == {("a", "c"), ("a", "d"), ("b", "c")}


def test_the_file_gives_back_what_was_written() -> None:
    table = kernels.read_table()
    assert decode(encode(table)) == table
    assert table.version == "2.19.0"
    assert len(table.kernels) > 700
    assert kernels.FILE.stat().st_size < 100_000


def test_the_rules_are_about_operations_that_have_gpu_kernels() -> None:
    table = kernels.read_table()
    for rule in yaml.safe_load(audit.RULES.read_text(encoding="utf-8")):
        assert rule["effect"] in {"refuses", "host", "table"}
        assert (rule["effect"] == "refuses") == ("message" in rule)
        assert rule.get("any_device") or all(operation in table.kernels for operation in rule["operations"])


def test_a_build_without_cuda_has_no_kernels_to_list() -> None:
    with pytest.raises(PreflightError, match="no GPU kernels"):
        kernels.read_registry()


@pytest.mark.rehearse
def test_the_file_is_what_the_cuda_wheel_says() -> None:
    done = subprocess.run(
        [PYTHON, "-m", "rehearsal.kernels"],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == kernels.FILE.read_text(encoding="utf-8"), "make the file anew, as its first lines say"


_EACH = """
from tensorflow.python.framework import kernels
from rehearsal.kernels import DEVICES, read_table, read_values
table, wrong = read_table(), []
for each in kernels.get_all_registered_kernels().kernel:
    if each.device_type in DEVICES:
        given = {part.name: read_values(part.allowed_values) for part in each.constraint}
        found = table.find(each.op, given, each.label)
        exact = found and found.device == each.device_type and found.priority == each.priority
        if not found or (exact and set(found.host) != set(each.host_memory_arg)):
            wrong.append((each.op, given))
print(wrong)
"""


@pytest.mark.rehearse
def test_every_registered_kernel_is_found_in_the_file() -> None:
    done = subprocess.run(
        [PYTHON, "-c", _EACH],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.rehearse
def test_the_messages_are_those_of_the_wheel() -> None:
    code = "import importlib.util as u; print(u.find_spec('tensorflow').submodule_search_locations[0])"
    folder = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    messages = {
        rule["message"]: False for rule in yaml.safe_load(audit.RULES.read_text(encoding="utf-8")) if "message" in rule
    }
    for library in Path(folder).glob("libtensorflow*.so.2"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for message in messages:
                messages[message] |= content.find(message.encode()) >= 0
    assert all(messages.values()), [message for message, there in messages.items() if not there]
