import pytest
from wheelbuild.__main__ import NOTHING_REMOTE, report_actions


@pytest.mark.parametrize(
    ("processes", "other_cache", "code"),
    [
        ({"remote": 7, "local": 1}, False, 0),
        ({"remote cache hit": 14, "local": 1}, False, 0),  # all is in the cache of the executor, but a marked action
        ({"remote cache hit": 14, "local": 1}, True, NOTHING_REMOTE),
        ({"disk cache hit": 14, "local": 1}, False, NOTHING_REMOTE),
        ({"local": 8}, False, NOTHING_REMOTE),
        ({"internal": 4}, False, 0),
    ],
)
def test_executor_must_have_been_used(processes: dict[str, int], other_cache: bool, code: int) -> None:
    assert report_actions(processes, other_cache=other_cache) == code
