import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.errors import CheckError, GpuError
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
        (without("tensorflow"), "tensorflow is None"),
        ({**REPORT.to_json(), "checks": []}, "lists no checks"),
        ({**REPORT.to_json(), "verdict": "pass"}, "contradicts the checks"),
        (with_check(id="<id>"), "an id is '<id>'"),
        (with_check(seconds="long"), "seconds is 'long'"),
        (with_check(evidence=[]), "evidence is []"),
    ],
)
def test_what_is_not_a_report_is_refused_with_the_reason(value: object, why: str) -> None:
    with pytest.raises(CheckError) as caught:
        runner.from_json(value)
    assert why in caught.value.why
    assert caught.value.exit_code == 7


def test_checks_that_see_no_gpu_have_the_exit_code_of_a_job_that_finds_none() -> None:
    blind = make_check(id="device.visible", evidence={"why": "TensorFlow sees no GPU"})
    report = assemble([blind], "2.19.0")
    with pytest.raises(GpuError, match="a GPU was asked for"):
        replace(report, device={"asked": "gpu", "gpus": 0}).require_pass()
    for device in ({"asked": "auto", "gpus": 0}, {"asked": "gpu", "gpus": 1}):
        with pytest.raises(CheckError, match=r"device\.visible failed"):
            replace(report, device=device).require_pass()
    assemble([make_check(id="device.visible", result="pass")], "2.19.0").require_pass()


def test_junit_holds_reason_remedy_and_evidence(tmp_path: Path) -> None:
    runner.write_junit(REPORT, tmp_path / "deep" / "smoke.xml")
    cases = read_xml(tmp_path / "deep" / "smoke.xml").findall("testsuite/testcase")
    assert [case.attrib["name"] for case in cases] == [check.id for check in CHECKS]
    failure = cases[1].find("failure")
    assert failure is not None
    assert (failure.attrib["message"], failure.text) == ("not there", "install it")
    assert json.loads(cases[0].findtext("system-out") or "") == {"version": "2.19.0"}


def test_a_librarys_last_words_cannot_paint_the_terminal() -> None:
    check = make_check(id="x.y", evidence={"why": "\x1b]0;title\x07 [bold]gone[/bold]"})
    shown = runner.render(assemble([check], None))
    assert "\x1b" not in shown
    assert "[bold]gone[/bold]" in shown


@given(reports, st.lists(texts, max_size=3))
def test_a_report_is_found_among_other_lines(value: Report, noise: list[str]) -> None:
    lines = [*noise, json.dumps({"check": {"id": "x"}}), json.dumps({"report": value.to_json()}), "later noise"]
    assert runner.parse("\n".join(lines)) == value


def test_an_output_that_breaks_off_names_the_last_check() -> None:
    with pytest.raises(CheckError) as caught:
        runner.parse('{"check": {"id": "version.files"}}\n{"check": {"id": "numer')
    assert "version.files" in caught.value.why
