from hypothesis import given
from hypothesis import strategies as st

from toolkit.wheel.bazel_output import read_work

LINES = """\
Analyzing: target //tensorflow/tools/pip_package:wheel (62 packages loaded, 276 targets configured)
[8 / 18] Compiling tensorflow/core/kernels/reduce.cc; 14s disk-cache, processwrapper-sandbox ... (3 actions, 2 running)
    [1,234 / 14,094] [Prepa] Compiling xla/service/hlo_instruction.cc; 6s ... (3 actions, 1 running)
    kernels: 3 of 294 tensorflow/core/kernels/avgpooling_op_gpu.cu.cc: 52 kernels in 21 s
INFO: Found 1 target...
""".splitlines()


def test_lines_of_a_build() -> None:
    assert [read_work(line) for line in LINES] == [
        None,
        ("Compiling tensorflow/core/kernels/reduce.cc", 8, 18, "actions", True, False),
        ("[Prepa] Compiling xla/service/hlo_instruction.cc", 1234, 14094, "actions", True, False),
        ("tensorflow/core/kernels/avgpooling_op_gpu.cu.cc", 3, 294, "kernels", False, False),
        None,
    ]


@given(st.text() | st.from_regex(r"\A\[[0-9,]{1,9} / [0-9,]{1,9}\] .{0,20}\Z"))
def test_no_line_crashes_it(line: str) -> None:
    work = read_work(line)
    assert work is None or work.total >= 0
