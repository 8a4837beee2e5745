import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.smoke.checks.check import Check, Evidence, Expectation, Fail, Skip


def probe(error: BaseException | None) -> Check:
    def look(expectation: Expectation) -> Evidence:
        if error is not None:
            raise error
        return {"asked": expectation.version}

    return Check("noun.detail", "it holds", look)


def test_evidence_of_a_pass_is_kept() -> None:
    finding = probe(None).run(Expectation(version="2.19.0"))
    assert (finding.result, finding.evidence) == ("pass", {"asked": "2.19.0"})


@pytest.mark.parametrize(
    ("error", "result", "why"),
    [
        (Fail("bad", remedy="mend it", seen=3), "fail", "bad"),
        (Skip("nothing here"), "skip", "nothing here"),
        (ValueError("first\nsecond"), "fail", "ValueError: first"),
        (SystemExit(3), "fail", "SystemExit: 3"),
    ],
)
def test_what_is_raised_is_a_finding(error: BaseException, result: str, why: str) -> None:
    finding = probe(error).run(Expectation())
    assert (finding.result, finding.evidence["why"]) == (result, why)


def test_an_unforeseen_error_keeps_its_traceback() -> None:
    assert "raise error" in "".join(probe(ZeroDivisionError()).run(Expectation()).evidence["traceback"])


def test_an_interrupt_is_no_finding() -> None:
    with pytest.raises(KeyboardInterrupt):
        probe(KeyboardInterrupt()).run(Expectation())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.integers() | st.text(), inner),
)


@given(values)
def test_any_evidence_is_strict_json(value: object) -> None:
    finding = probe(None).found("pass", {"value": value})
    assert json.loads(json.dumps(finding.as_dict(), allow_nan=False))["id"] == "noun.detail"
