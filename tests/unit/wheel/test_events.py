import json

from hypothesis import given
from hypothesis import strategies as st

from toolkit.wheel import bazel_output

FAILED = {
    "id": {"actionCompleted": {"label": "//tensorflow/core/kernels:fill", "primaryOutput": "fill.o"}},
    "action": {"exitCode": 1, "type": "CppCompile", "failureDetail": {"message": "error executing clang"}},
}
METRICS = {
    "id": {"buildMetrics": {}},
    "buildMetrics": {
        "actionSummary": {
            "actionsExecuted": "18",
            "runnerCount": [
                {"name": "total", "count": 18},
                {"name": "disk cache hit", "count": 9},
                {"name": "remote cache hit", "count": 2},
                {"name": "processwrapper-sandbox", "count": 7},
            ],
            "actionCacheStatistics": {"hits": 3, "misses": 18},
        },
        "timingMetrics": {"wallTimeInMs": "55645"},
    },
}


def finished(code: int | None) -> dict[str, object]:
    exit_code = {"name": "X"} | ({} if code is None else {"code": code})
    return {"id": {"buildFinished": {}}, "finished": {"exitCode": exit_code}}


def read(*objects: object) -> bazel_output.Outcome:
    return bazel_output.read_events(json.dumps(item) for item in objects)


def test_cached_actions_are_recorded_by_kind_and_said() -> None:
    record = read(finished(None), METRICS).record()
    assert record["cached_by"] == {"disk cache hit": 9, "remote cache hit": 2}
    assert (record["cached"], record["remote"], record["reused"]) == (11, 0, 3)
    assert bazel_output.describe_outcome(record) == (
        "18 actions, 11 of them from a cache (9 disk cache hits, 2 remote cache hits), "
        "3 more unchanged since an earlier build"
    )


def test_a_failed_build_names_its_actions() -> None:
    found = read(FAILED, finished(1))
    assert found.exit_code == 1
    assert found.failures == ("//tensorflow/core/kernels:fill CppCompile: error executing clang",)


def test_a_killed_build_has_no_verdict() -> None:
    lines = [json.dumps(FAILED), json.dumps(finished(0))[:20]]
    assert bazel_output.read_events(lines).exit_code is None
    assert len(bazel_output.read_events(lines).failures) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "buildFinished",
                    "finished",
                    "exitCode",
                    "code",
                    "actionCompleted",
                    "action",
                    "buildMetrics",
                    "actionSummary",
                    "runnerCount",
                    "name",
                    "count",
                    "timingMetrics",
                    "wallTimeInMs",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON), st.lists(st.text()))
def test_no_events_crash_it(objects: list[object], noise: list[str]) -> None:
    found = bazel_output.read_events([*(json.dumps(item) for item in objects), *noise])
    assert found.cached == sum(count for name, count in found.runners.items() if "cache hit" in name)
