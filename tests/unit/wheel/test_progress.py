from hypothesis import given
from hypothesis import strategies as st

from toolkit.wheel.log import Progress, describe_duration

LINES = """\
Analyzing: target //tensorflow/tools/pip_package:wheel (62 packages loaded, 276 targets configured)
[8 / 18] Compiling tensorflow/core/kernels/reduce.cc; 14s disk-cache, processwrapper-sandbox ... (3 actions, 2 running)
[11 / 18] [Prepa] Compiling tensorflow/core/kernels/reduce.cc; 6s ... (3 actions, 1 running)
INFO: Found 1 target...
""".splitlines()


def test_lines_of_a_build() -> None:
    progress = Progress()
    assert progress.summary == ""
    assert [progress.feed(line, now=float(at)) for at, line in enumerate(LINES)] == [False, True, True, False]
    assert (progress.done, progress.total) == (11, 18)
    assert progress.action == "[Prepa] Compiling tensorflow/core/kernels/reduce.cc"
    assert progress.summary.startswith("[11/18] 61 %  about 2 s left  ")
    assert progress.event == {
        "event": "progress",
        "done": 11,
        "total": 18,
        "action": progress.action,
        "seconds_left": 2.3,
    }


def test_counts_of_a_large_build() -> None:
    progress = Progress()
    assert progress.feed("    [1,234 / 14,094] Compiling xla/service/hlo_instruction.cc; 21s linux-sandbox", now=0)
    assert progress.remaining is None
    assert progress.summary == "[1,234/14,094] 8 %  Compiling xla/service/hlo_instruction.cc"


def test_no_estimate_is_given_too_early() -> None:
    progress = Progress()
    progress.feed("[0 / 5] x", now=0)
    progress.feed("[4 / 20,000] x", now=60)
    assert progress.remaining is None
    progress.feed("[2,000 / 20,000] x", now=600)
    assert progress.remaining == 5400
    assert "1 h 30 min" in progress.summary


def test_durations() -> None:
    assert [describe_duration(seconds) for seconds in (4.2, 600, 3900)] == ["4 s", "10 min", "1 h 05 min"]


@given(st.lists(st.text() | st.from_regex(r"\A\[[0-9,]{1,9} / [0-9,]{1,9}\] .{0,20}\Z")))
def test_no_lines_crash_it(lines: list[str]) -> None:
    progress = Progress()
    for at, line in enumerate(lines):
        progress.feed(line, now=float(at))
        assert isinstance(progress.summary, str)
        assert progress.event["event"] == "progress"
