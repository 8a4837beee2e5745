import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.errors import CheckError, GpuError, PreflightError
from toolkit.base.findings import Finding
from toolkit.smoke import runner
from toolkit.smoke.runner import Report


def make_check(**fields: Any) -> Finding:
    value = {"title": "t", "result": "fail", "evidence": {}, "remedy": "", "seconds": 0, "timeout": 1, **fields}
    return runner._check(value)


CHECKS = (
    make_check(
        id="tensorflow.import",
        title="TensorFlow imports",
        result="pass",
        evidence={"version": "2.19.0"},
        seconds=4.2,
        timeout=180,
    ),
    make_check(
        id="compiler.ptxas",
        title="ptxas is found",
        evidence={"why": "not there", "searched": ["/a"]},
        remedy="install it",
        seconds=0.1,
    ),
    make_check(id="device.driver", title="the driver answers", result="skip", evidence={"why": "no GPU here"}),
)
REPORT = Report("2.19.0", "3.11.7", {"asked": "auto", "gpus": 0}, CHECKS, "fail")


def test_a_failed_check_names_the_failure_that_its_evidence_shows() -> None:
    first_line = "ImportError: numpy.core.multiarray failed to import"
    traceback = [f"{first_line}\n\nA module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.1.2"]
    check = make_check(id="tensorflow.import", evidence={"why": first_line, "traceback": traceback}, remedy="look")
    with pytest.raises(CheckError) as caught:
        Report(None, "3.11.7", {}, (check,), "fail").require_pass()
    assert caught.value.remedy.endswith("see `toolkit diagnose --id numpy-too-new`")


texts = st.text(st.characters(codec="utf-8"))
checks = st.builds(
    make_check,
    id=st.from_regex(r"[a-z0-9_]{1,9}\.[a-z0-9_]{1,9}", fullmatch=True),
    title=texts,
    result=st.sampled_from(["pass", "fail", "skip"]),
    evidence=st.dictionaries(texts, texts | st.integers() | st.lists(texts)),
    remedy=texts,
    seconds=st.floats(0, 1e6),
    timeout=st.floats(0, 1e6),
)


def assemble(found: list[Finding], tensorflow: str | None) -> Report:
    verdict: Any = "fail" if any(check.state == "fail" for check in found) else "pass"
    return Report(tensorflow, "3.11.7", {"asked": "auto", "gpus": 0}, tuple(found), verdict)


reports = st.builds(assemble, st.lists(checks, min_size=1, max_size=4), st.none() | texts)


def read_xml(file: Path) -> ET.Element:
    return ET.parse(file).getroot()  # noqa: S314 - written a moment ago


@given(reports, st.lists(texts, max_size=3))
def test_a_report_is_found_among_other_lines(value: Report, noise: list[str]) -> None:
    lines = [*noise, json.dumps({"check": {"id": "x"}}), json.dumps({"report": value.to_json()}), "later noise"]
    assert runner.parse("\n".join(lines)) == value


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in REPORT.to_json().items() if key != name}


def with_check(**changes: Any) -> dict[str, Any]:
    value = REPORT.to_json()
    return {**value, "checks": [{**value["checks"][0], **changes}, *value["checks"][1:]]}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "not an object"),
        ({}, "schema None is not 1"),
        ({**REPORT.to_json(), "schema": 2}, "schema 2 is not 1"),
        (without("python"), "python is None"),
        (without("tensorflow"), "tensorflow is None"),
        ({**REPORT.to_json(), "checks": []}, "lists no checks"),
        ({**REPORT.to_json(), "checks": ["x"]}, "a check is not an object"),
        ({**REPORT.to_json(), "verdict": "pass"}, "contradicts the checks"),
        ({**REPORT.to_json(), "verdict": "maybe"}, "contradicts the checks"),
        (with_check(id="<id>"), "an id is '<id>'"),
        (with_check(result="maybe"), "a result is 'maybe'"),
        (with_check(seconds="long"), "seconds is 'long'"),
        (with_check(seconds=True), "seconds is True"),
        (with_check(evidence=[]), "evidence is []"),
    ],
)
def test_what_is_not_a_report_is_refused_with_the_reason(value: object, why: str) -> None:
    with pytest.raises(CheckError) as caught:
        runner.from_json(value)
    assert why in caught.value.why
    assert caught.value.exit_code == 7


def test_an_output_that_breaks_off_names_the_last_check() -> None:
    with pytest.raises(CheckError) as caught:
        runner.parse('{"check": {"id": "version.files"}}\n{"check": {"id": "numer')
    assert "version.files" in caught.value.why


@pytest.mark.parametrize("output", ["", "Killed\n", "[1]\n", '"report"\n'])
def test_an_output_without_a_word_of_ours_says_so(output: str) -> None:
    with pytest.raises(CheckError) as caught:
        runner.parse(output)
    assert "none of them" in caught.value.why


def test_a_failed_report_raises_with_its_reasons() -> None:
    with pytest.raises(CheckError) as caught:
        REPORT.require_pass()
    assert str(caught.value) == "smoke: compiler.ptxas failed\n  why: not there\n  try: install it"
    assemble([CHECKS[0], CHECKS[2]], "2.19.0").require_pass()


def test_checks_that_see_no_gpu_have_the_exit_code_of_a_job_that_finds_none() -> None:
    blind = make_check(id="device.visible", evidence={"why": "TensorFlow sees no GPU"})
    with pytest.raises(GpuError, match="a GPU was asked for"):
        assemble([blind], "2.19.0").require_gpu()
    assemble([make_check(id="device.visible", result="pass")], "2.19.0").require_gpu()


def test_junit_holds_reason_remedy_and_evidence(tmp_path: Path) -> None:
    runner.write_junit(REPORT, tmp_path / "deep" / "smoke.xml")
    cases = read_xml(tmp_path / "deep" / "smoke.xml").findall("testsuite/testcase")
    assert [case.attrib["name"] for case in cases] == [check.id for check in CHECKS]
    failure = cases[1].find("failure")
    assert failure is not None
    assert (failure.attrib["message"], failure.text) == ("not there", "install it")
    assert json.loads(cases[0].findtext("system-out") or "") == {"version": "2.19.0"}


def test_control_characters_do_not_break_the_xml(tmp_path: Path) -> None:
    crashed = make_check(id="x.y", evidence={"why": "a\x00\x1b[31mb\ud800"})
    runner.write_junit(assemble([crashed], None), tmp_path / "x.xml")
    failure = read_xml(tmp_path / "x.xml").find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == "a\ufffd\ufffd[31mb\ufffd"


def test_a_junit_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(PreflightError):
        runner.write_junit(REPORT, tmp_path / "file" / "smoke.xml")
    assert (tmp_path / "file").read_text() == "old"


def test_the_table_has_the_reason_and_the_remedy_of_each_check() -> None:
    shown = runner.render(REPORT)
    for check in CHECKS:
        assert all(text in shown for text in (check.id, check.title, check.evidence, check.remedy))


def test_a_librarys_last_words_cannot_paint_the_terminal() -> None:
    check = make_check(id="x.y", evidence={"why": "\x1b]0;title\x07 [bold]gone[/bold]"})
    shown = runner.render(assemble([check], None))
    assert "\x1b" not in shown
    assert "[bold]gone[/bold]" in shown
