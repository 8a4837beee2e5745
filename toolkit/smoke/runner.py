"""Runs the checks inside an environment, and reads, keeps and shows their report."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from xml.etree import ElementTree as ET

from toolkit.base import digest, files, findings, interpreters, programs, signing
from toolkit.base.console import Console
from toolkit.base.errors import CheckError, GpuError, UnsupportedError, UsageError
from toolkit.base.findings import Finding, State
from toolkit.checks.check import Expectation
from toolkit.engine import Commands, Engine, Environment, Job, Listener, Mount, local
from train.system.output import printable
from train.system.progress import Work

FOLDER = Path(__file__).parents[1] / "checks"
NO_PYTHON = 127
"""Exit code of an engine when a container's program does not exist."""

OLDEST_PYTHON: Final = (3, 10)
"""That the checks run on."""

DEADLINE_SECONDS = 1800
"""For all checks together; each has its own, shorter deadline."""

SCHEMA: Final = 1

REPORT: Final = "smoke-"
"""Start of the name of a report, in the folder of its environment."""

_SEES_GPU: Final = "device.visible"
"""The check that TensorFlow sees the GPU that was asked for."""

_STATES: Final[Mapping[str, State]] = {"pass": "ok", "fail": "fail", "skip": "skipped"}
"""State of a finding by the result of a check."""

_WORDS: Final = {state: word for word, state in _STATES.items()}


@dataclass(frozen=True)
class Report:
    tensorflow: str | None  # version found, None when it does not import
    python: str  # version of the interpreter that ran the checks
    device: Mapping[str, Any]  # ``asked`` (auto, cpu, gpu) and ``gpus``, the number that TensorFlow saw
    # in the order in which they ran; the facts of each hold the check's ``evidence`` and ``timeout``
    checks: tuple[Finding, ...]
    verdict: Literal["pass", "fail"]  # ``pass`` unless a check failed
    path: Path = Path()  # the file that keeps it

    @property
    def failures(self) -> tuple[Finding, ...]:
        return tuple(check for check in self.checks if check.state == "fail")

    def count(self, state: State) -> int:
        return sum(check.state == state for check in self.checks)

    @property
    def summary(self) -> str:
        return f"{self.count('ok')} passed, {self.count('fail')} failed, {self.count('skipped')} skipped"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "tensorflow": self.tensorflow,
            "python": self.python,
            "device": dict(self.device),
            "checks": [_describe(check) for check in self.checks],
            "verdict": self.verdict,
        }

    def require_pass(self) -> None:
        """Raise CheckError with all failures and the remedy of the first one, unless the verdict is ``pass``.

        Raises GpuError if a GPU was asked for, and the TensorFlow that was checked works and sees none.
        """
        if self.verdict == "pass":
            return
        blind = next((check for check in self.failures if check.id == _SEES_GPU), None)
        if blind and self.device.get("asked") == "gpu" and not self.device.get("gpus"):
            raise GpuError("a GPU was asked for, and there is none", why=blind.evidence, remedy=blind.remedy)
        remedy = self.failures[0].remedy
        raise CheckError(
            f"smoke: {', '.join(check.id for check in self.failures)} failed",
            why="; ".join(check.evidence for check in self.failures),
            remedy=remedy if "toolkit diagnose" in remedy else f"{remedy}\n{self._find_cause()}".strip(),
        )

    def _find_cause(self) -> str:
        """Return the known failure that the evidence of the failed checks shows, and where it is explained."""
        from toolkit import diagnosis  # only a failure needs it

        seen = [check.facts["evidence"] for check in self.failures]
        lines = [line for each in seen for name in ("traceback", "stderr") for line in each.get(name) or ()]
        text = "\n".join(map(str, [*(check.evidence for check in self.failures), *lines]))
        return diagnosis.name_cause(text, certain=False)


def parse(output: str) -> Report:
    """Return the report in the output of ``checks --json``. Raises CheckError if the report is missing or not valid."""
    seen: list[str] = []
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        if "report" in event:
            return from_json(event["report"])
        if isinstance(event.get("check"), dict):
            seen.append(str(event["check"].get("id")))
    raise CheckError(
        "the checks ended without a report",
        why=f"the last one reported was {seen[-1]}" if seen else "none of them was reported",
        remedy="most often memory ran out or the container was stopped: look at its exit code, give it more memory",
    )


def from_json(value: object) -> Report:
    """Return the report of a JSON object. Raises CheckError if a field is missing or wrong; the message names it."""
    if not isinstance(value, Mapping):
        raise _invalid("it is not an object")
    if value.get("schema") != SCHEMA:
        raise _invalid(f"schema {value.get('schema')!r} is not {SCHEMA}")
    listed = _field(value, "checks", list)
    if not listed:
        raise _invalid("it lists no checks")
    checks = tuple(_check(item) for item in listed)
    verdict = _field(value, "verdict", str)
    if verdict != ("fail" if any(check.state == "fail" for check in checks) else "pass"):
        raise _invalid(f"the verdict {verdict!r} contradicts the checks")
    return Report(
        tensorflow=_field(value, "tensorflow", str, type(None)),
        python=_field(value, "python", str),
        device=_field(value, "device", dict),
        checks=checks,
        verdict=verdict,
    )


def write_junit(report: Report, path: Path) -> None:
    """Write the report as JUnit XML in pytest's ``xunit2`` form. Raises PreflightError if the file is read-only."""
    suite = ET.Element(
        "testsuite",
        name="toolkit smoke",
        tests=str(len(report.checks)),
        failures=str(report.count("fail")),
        errors="0",
        skipped=str(report.count("skipped")),
        time=f"{sum(check.seconds or 0 for check in report.checks):.3f}",
    )
    for check in report.checks:
        noun = check.id.partition(".")[0]
        case = ET.SubElement(suite, "testcase", classname=f"smoke.{noun}", name=check.id)
        case.set("time", f"{check.seconds or 0:.3f}")
        if check.state == "fail":
            failure = ET.SubElement(case, "failure", message=printable(check.evidence))
            failure.text = printable(check.remedy)
        elif check.state == "skipped":
            ET.SubElement(case, "skipped", message=printable(check.evidence))
        evidence = ET.SubElement(case, "system-out")
        evidence.text = printable(json.dumps(check.facts["evidence"], indent=2, sort_keys=True))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    files.write_atomically(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def render(report: Report, *, width: int = 0, color: bool = False) -> str:
    versions = printable(f"TensorFlow {report.tensorflow or '?'}, Python {report.python}")
    return f"{findings.render(report.checks, width=width, color=color)}\n{versions}: {report.summary}\n"


def _check(value: object) -> Finding:
    if not isinstance(value, Mapping):
        raise _invalid("a check is not an object")
    check_id, result = _field(value, "id", str), _field(value, "result", str)
    if not re.fullmatch(r"\w+(\.\w+)+", check_id, re.ASCII):
        raise _invalid(f"an id is {check_id!r}")
    if result not in _STATES:
        raise _invalid(f"a result is {result!r}")
    evidence = _field(value, "evidence", dict)
    return Finding(
        id=check_id,
        state=_STATES[result],
        title=_field(value, "title", str),
        evidence=str(evidence.get("why", "")),
        remedy=_field(value, "remedy", str),
        seconds=float(_field(value, "seconds", int, float)),
        facts={"evidence": evidence, "timeout": float(_field(value, "timeout", int, float))},
    )


def _describe(check: Finding) -> dict[str, Any]:
    return {
        "id": check.id,
        "title": check.title,
        "result": _WORDS[check.state],
        "evidence": check.facts["evidence"],
        "remedy": check.remedy,
        "seconds": check.seconds,
        "timeout": check.facts["timeout"],
    }


def _field(value: Mapping[str, Any], name: str, *kinds: type) -> Any:
    item = value.get(name)
    if name not in value or not isinstance(item, kinds) or isinstance(item, bool):
        raise _invalid(f"{name} is {item!r}")
    return item


def _invalid(why: str) -> CheckError:
    return CheckError(
        "the report of the checks is not valid", why=why, remedy="the checks and this toolkit are of different versions"
    )


def require_known(patterns: Sequence[str]) -> None:
    asked = programs.python(FOLDER, "--list", *_leave_out(patterns)).run()
    if asked.returncode:
        raise UsageError(
            asked.stderr.strip().rpartition("error: ")[2],
            remedy="a name as in the report, such as cpu.onednn, or the word before its dot",
        )


def plan(expectation: Expectation) -> Job:
    checks = Mount(source=FOLDER, target="/opt/toolkit/checks")
    argv: list[str | Mount] = [checks, "--json", "--device", expectation.device]
    for option, value in (
        ("--expect-version", expectation.version),
        ("--expect-cuda", expectation.cuda),
        ("--expect-cudnn", expectation.cudnn),
        ("--expect-capability", expectation.capability),
        ("--expect-instructions", ",".join(expectation.instructions)),
    ):
        argv += [option, value] if value else []
    argv += _leave_out(expectation.skip)
    return Job(
        title="smoke",
        argv=tuple(argv),
        mounts=(checks,),
        gpu=expectation.device == "gpu",
        deadline=DEADLINE_SECONDS,
    )


def run(engine: Engine, environment: Environment, expectation: Expectation, console: Console) -> Report:
    """Run the checks and keep their report, also of one that failed. Raises CheckError if they did not finish."""
    outcome = _run_checks(
        partial(engine.run, environment),
        plan(expectation),
        console,
        no_python=CheckError(
            f"there is no python in {environment.reference}",
            why="the checks are a Python program, and run by the Python whose TensorFlow they check",
            remedy="give an image that holds TensorFlow",
        ),
    )
    report = replace(outcome, path=_path(environment, expectation))
    signing.discard(_path(environment, expectation))
    files.write_json(_path(environment, expectation), report.to_json())
    return report


def run_in(folder: Path, expectation: Expectation, console: Console) -> Report:
    """Run the checks in any environment, given by its folder. Nothing is written there, and no report is kept.

    Raises UsageError if there is no Python in it, UnsupportedError if that is too old for the checks, PreflightError if
    it does not run, and CheckError if the checks did not finish. A failed check is only reported.
    """
    python = interpreters.ask(interpreters.find(folder))
    if tuple(int(part) for part in python.version.split(".")[:2]) < OLDEST_PYTHON:
        oldest = ".".join(str(part) for part in OLDEST_PYTHON)
        raise UnsupportedError(
            f"the checks need Python {oldest} or later, and {folder} has {python.version}",
            remedy="check an environment of a newer Python",
        )
    job = plan(expectation)
    (command,) = commands_in(python.path, job)
    return _run_checks(
        lambda job, listener: local.follow(command, job, listener),
        job,
        console,
        no_python=CheckError(f"{python.path} is gone", remedy="run the checks again"),
    )


def commands_in(python: Path, job: Job) -> Commands:
    """Return the command of the checks in an environment, given by its Python. Python leaves no bytecode there."""
    unset = [word for name in interpreters.FOREIGN for word in ("-u", name)]
    arguments = [str(part.source) if isinstance(part, Mount) else part for part in job.argv]
    return (("env", *unset, "PYTHONDONTWRITEBYTECODE=1", str(python), *arguments),)


def _run_checks(start: Callable[[Job, Listener], int], job: Job, console: Console, *, no_python: CheckError) -> Report:
    """Run the checks by ``start``, show how far they are, and return their report."""
    lines: list[str] = []

    def collect(line: str) -> None:
        lines.append(line)
        if work := _read_progress(line):
            status.show(work)

    with console.follow("smoke") as status:
        code = start(job, collect)
    if code == NO_PYTHON:
        raise no_python
    return parse("\n".join(lines))


def recall(environment: Environment, expectation: Expectation) -> Report | None:
    """Return the saved report for the same checks, environment and expectation, if its verdict is ``pass``."""
    path = _path(environment, expectation)
    value = files.read_json(path)
    report = replace(from_json(value), path=path) if value is not None else None
    return report if report and report.verdict == "pass" else None


def _leave_out(patterns: Sequence[str]) -> list[str]:
    # One word each, so that no pattern is read as an option.
    return [f"--skip={pattern}" for pattern in patterns]


def _path(environment: Environment, expectation: Expectation) -> Path:
    # With the checks that are left out, so that a report without them is never reused for a run with them.
    key = digest.digest_value([environment.digest, digest.digest_paths(FOLDER, [FOLDER]), asdict(expectation)])
    return environment.folder / f"{REPORT}{digest.shorten(key)}.json"


def _read_progress(line: str) -> Work | None:
    try:
        told = json.loads(line)
        text = f"{told['check']['result']} {told['check']['id']}"
        # One check loads TensorFlow and another adds two numbers: their count says nothing about time.
        return Work(text, told["number"], told["of"], "checks", unknown=True)
    except (ValueError, LookupError, TypeError):
        return None
