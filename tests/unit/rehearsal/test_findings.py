"""How a rehearsal's record is judged. The records here are invented; those of tests/rehearsal are real."""

from typing import Any

import pytest

from rehearsal import report
from rehearsal.request import Request, choose_device
from train.cli import parse

LIMITS = {"launches": 100, "to_device": 1, "to_host": 1, "waits": 1, "on_host": 0, "crossings": 0, "growth": 1000}
PLACED = {"node": "step/Equal", "operation": "Equal", "dtypes": {"T": "int32"}, "reason": "Equal has no GPU kernel"}


def make_record(*, in_use: int = 0, **counts: dict[str, int]) -> dict[str, Any]:
    usual = {"launch": {"device 0": 100}, "copy": {"to device 196864": 1, "to host 12": 1}, "wait": {"stream": 1}}
    steps = [
        {"counts": {**usual, **counts}, "memory": {"current": 5000 + index * in_use, "peak": 9000}}
        for index in range(3)
    ]
    return {"steps": steps, "on_host": [], "crossings": [], "counts": {"fat binary": {"cubin sm_70": 281}}, "log": []}


def judge(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> report.Report:
    monkeypatch.setattr(report, "choose_limits", lambda config: LIMITS)
    return report.make(Request(config=parse(["digits"]), device=choose_device("t4", **options)), record)


def test_a_job_within_its_limits_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge(make_record(), monkeypatch)
    assert found.findings == []
    assert found.as_dict()["passed"]
    assert found.as_text().endswith("passed")


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (make_record(launch={"device 0": 101}), "launches"),
        (make_record(**{"graph launch": {"device 0": 1}}), "launches"),
        (make_record(copy={"to device 4": 2}), "to device"),
        (make_record(copy={"to host 4": 1, "to host 1": 1}), "to host"),
        (make_record(wait={"stream": 1, "event": 1}), "waits"),
        (make_record(in_use=1001), "growth"),
        (make_record() | {"on_host": [PLACED]}, "on host"),
        (make_record() | {"crossings": [PLACED]}, "crossings"),
        (make_record() | {"error": {"kind": "InternalError", "message": "x", "node": "", "operation": ""}}, "error"),
        (make_record() | {"counts": {"fat binary": {"none": 281}}}, "no device code"),
        ({"error": {"kind": "NoDevice", "message": "x", "node": "", "operation": ""}}, "no device"),
    ],
)
def test_each_excess_is_a_finding_of_its_own(
    record: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judge(record, monkeypatch)
    assert [finding.kind for finding in found.findings] == [kind]
    assert f"FINDING {kind}" in found.as_text()
    assert not found.as_dict()["passed"]


def test_a_device_that_does_nothing_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [finding.kind for finding in judge(make_record(), monkeypatch, count=2).findings] == ["idle device"]


def test_tensorflows_error_is_told_without_the_python_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    message = 'Graph execution error:\n\nDetected at node a/b defined at:\n  File "x.py", line 1\n\nNo such kernel.\n'
    error = {"kind": "UnimplementedError", "message": message, "node": "a/b", "operation": "Op"}
    (finding,) = judge(make_record() | {"error": error}, monkeypatch).findings
    assert finding.text == "the job stops: UnimplementedError: Op at a/b: No such kernel."


@pytest.mark.parametrize("memory", ["plain", "recompute", "shared"])
def test_the_limits_of_a_configuration_join_those_of_all(memory: str) -> None:
    limits = report.choose_limits(parse(["cifar10", "--memory", memory]))
    assert limits["launches"] > 0
    assert limits["on_host"] == 0
    assert "launches" not in report.choose_limits(parse(["cifar10", "--memory", memory, "--batch-size", "32"]))


def test_the_text_says_that_it_is_emulated_and_what_code_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record() | {"counts": {"fat binary": {"PTX compute_90": 280, "none": 1}}}
    record["batches"] = {"limit": 1 << 30, "tried": {64: 9000}, "largest": 512}
    text = judge(record, monkeypatch).as_text()
    assert "emulated, not run on a GPU" in text
    assert "1 fat binaries have no code" in text
    assert "driver must compile" in text
    assert "largest batch 512, an upper bound" in text


@pytest.mark.parametrize(
    ("held", "loaded", "words"),
    [
        ({"cubin sm_120": 330}, {"fat binary: cubin sm_120": 13, "PTX sm_120": 1}, []),
        ({"cubin sm_120": 329, "PTX compute_90": 1}, {"fat binary: cubin sm_120": 13}, ["1 fat binaries"]),
        ({"cubin sm_120": 330}, {"fat binary: PTX compute_90": 2}, ["2 modules", "2 PTX compute_90"]),
        ({"cubin sm_120": 330}, {"fat binary: PTX for other GPUs alone, sm_90a": 1}, ["sm_90a"]),
        ({"cubin sm_120": 330}, {"cubin sm_120": 1}, ["no elementwise kernel was loaded"]),
    ],
)
def test_ptx_is_a_finding_where_machine_code_was_promised(
    held: dict[str, int], loaded: dict[str, int], words: list[str]
) -> None:
    record = make_record() | {"counts": {"fat binary": held, "module": loaded}, "elementwise": 5}
    device = choose_device("rtx5090")
    promised = Request(config=parse(["digits"]), device=device, machine_code=True)
    found = [each for each in report.make(promised, record).findings if each.kind == "PTX"]
    assert bool(found) == bool(words)
    assert all(word in found[0].text for word in words)
    other = report.make(Request(config=parse(["digits"]), device=device), record)
    assert "PTX" not in [each.kind for each in other.findings]
    assert other.as_dict()["modules"] == loaded
    assert all(name in other.as_text() for name in loaded)


FOUND = {"graph": "training", "kind": "dtype", "operation": "Equal", "dtype": "int32", "reason": "no GPU kernel"}


def test_what_the_static_audit_found_is_a_finding_and_equal_ones_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = {"graph": "training", "nodes": 3, "findings": [{**FOUND, "node": "a"}, {**FOUND, "node": "b"}]}
    found = judge(make_record() | {"audit": {"graphs": [graph]}}, monkeypatch)
    assert found.findings == [("audit: dtype", "training: Equal (int32) at a and 1 more: no GPU kernel")]
    assert found.as_dict()["audit"]["graphs"] == [graph]
    assert "static audit: 1 graphs with 3 nodes" in found.as_text()


def test_an_audit_that_could_not_be_made_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge(make_record() | {"audit": {"error": "no such file"}}, monkeypatch)
    assert [finding.kind for finding in found.findings] == ["audit"]
