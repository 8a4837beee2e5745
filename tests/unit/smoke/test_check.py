import json

from hypothesis import given
from hypothesis import strategies as st

from toolkit.checks.check import Check, Evidence, Expectation


def probe(error: BaseException | None) -> Check:
    def look(expectation: Expectation) -> Evidence:
        if error is not None:
            raise error
        return {"asked": expectation.version}

    return Check("noun.detail", "it holds", look)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.integers() | st.text(), inner),
)


@given(values)
def test_any_evidence_is_strict_json(value: object) -> None:
    finding = probe(None).found("pass", {"value": value})
    assert json.loads(json.dumps(finding.as_dict(), allow_nan=False))["id"] == "noun.detail"
