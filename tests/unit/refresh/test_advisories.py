"""Security advisories that the package index lists. Pip and the server of the index are real."""

from pathlib import Path
from typing import Any

import pytest

from tests.command import Run
from tests.server import QuietHandler, reply, serve
from tests.unit.refresh.sources import TABLE, Index, apply, collect
from toolkit import advisories, inquiry

KNOWN = "CVE-2025-55559"


def make(name: str = "CVE-2027-1", **fields: Any) -> dict[str, Any]:
    usual = {"id": "PYSEC-2027-9", "aliases": [name, "GHSA-aaaa-bbbb-cccc"], "details": "It\n reads  beyond.\n"}
    return {**usual, "summary": None, "fixed_in": ["2.18.4", "2.22.0rc1", "2.21.3"], "withdrawn": None, **fields}


def test_a_new_advisory_gets_a_row_that_the_table_takes(index: Index, tmp_path: Path) -> None:
    index.vulnerabilities = {"2.20.0": [make()], "2.21.0": [make()]}
    found = apply(tmp_path, collect()[0])
    item = found.advisories["CVE-2027-1"]
    assert (item.affected, item.fixed, item.what) == (("2.20.0", "2.21.0"), "2.21.3", "It reads beyond.")
    assert item.sources == ("index-advisories",)
    assert found.sources["index-advisories"].date == "2027-01-02"
    assert found.list_advisories("2.21.0") == (item,)


def test_a_known_advisory_gets_the_versions_that_it_affects_too(index: Index, tmp_path: Path) -> None:
    index.vulnerabilities = {"2.18.0": [make(KNOWN)], "2.19.0": [make(KNOWN)]}
    report, changes = collect()
    assert changes["advisories", KNOWN, "affected"] == ["2.18.0", "2.19.0"]
    item = apply(tmp_path, report).advisories[KNOWN]
    assert item.sources == (*TABLE.advisories[KNOWN].sources, "index-advisories")
    assert item.what == TABLE.advisories[KNOWN].what


def test_what_the_table_has_already_and_what_was_withdrawn_changes_nothing(index: Index) -> None:
    index.vulnerabilities = {"2.18.0": [make(KNOWN)], "2.21.0": [make(withdrawn="2027-01-01T00:00:00Z")]}
    assert not collect()[1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(404), "Not Found"),
        (reply(200, b"<html>"), "not understood"),
        (reply(200, b'{"info": {"version": "2.18.0"}, "urls": []}'), "no `vulnerabilities`"),
        (reply(200, b'{"info": {"version": "2.18.0"}, "vulnerabilities": [{"id": "x"}]}'), "not understood"),
        (reply(200, b'{"info": {"version": "2.18.0"}, "vulnerabilities": 5}'), "not understood"),
    ],
)
def test_an_index_that_does_not_list_them_is_named_and_the_rest_counts(index: Index, answer: Any, said: str) -> None:
    with serve(GET=answer) as address:
        index.service = f"http://{address}"
        report, changes = collect()
    assert not changes
    assert len(report.looked) == 5
    (line,) = [each for each in report.unread if "security advisories" in each]
    assert said in line


def test_an_id_that_is_none_is_refused(index: Index) -> None:
    index.vulnerabilities = {"2.21.0": [make("CVE-1\n  evil: {")]}
    report, changes = collect()
    assert not changes
    assert "not understood" in report.unread[-1]


def test_pip_says_where_the_index_is_and_its_service_is_asked(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    asked: list[str] = []

    def get(request: QuietHandler) -> None:
        asked.append(request.path)
        if request.path.startswith("/root/simple/"):
            request.answer(200, b'<a href="tensorflow-2.21.0-py3-none-any.whl">x</a>', "text/html")
        elif request.path.startswith("/root/pypi/tensorflow/"):
            request.answer(200, b'{"info": {"version": "2.21.0"}, "vulnerabilities": []}')
        else:
            request.answer(404)

    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    with serve(GET=get) as address:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://{address}/root/simple")
        place = advisories.find_service("tensorflow")
        assert place == f"http://{address}/root"
        assert advisories.read_release(f"{place}/pypi/tensorflow/2.21.0/json") == []
    assert asked[-1] == "/root/pypi/tensorflow/2.21.0/json"
    monkeypatch.setenv("PIP_INDEX_URL", Path(__file__).parent.as_uri())
    with pytest.raises(inquiry.UnreadableError):
        advisories.find_service("tensorflow")
