"""The report of the checks, as the host reads it: parsed and validated, as JUnit XML, and as a table."""

import io
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args
from xml.etree import ElementTree as ET

from toolkit import files
from toolkit.errors import CheckError

SCHEMA: Final = 1

Result = Literal["pass", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """What became of one check.

    Attributes:
        id: its name, ``noun.detail``.
        title: what holds when it passes.
        result: ``pass``, ``fail`` or ``skip``.
        evidence: what was seen; ``why`` says in a sentence why it failed or was skipped.
        remedy: what to do about a failure.
        seconds: how long it took.
        timeout: how long it might have taken, in seconds.
    """

    id: str
    title: str
    result: Result
    evidence: Mapping[str, Any]
    remedy: str
    seconds: float
    timeout: float

    @property
    def why(self) -> str:
        """The reason of a failure or skip, empty for a pass."""
        return str(self.evidence.get("why", ""))


@dataclass(frozen=True)
class Report:
    """All checks of one run.

    Attributes:
        tensorflow: version found, None when it does not import.
        python: version of the interpreter that ran the checks.
        device: ``asked`` (auto, cpu, gpu) and ``gpus``, the number that TensorFlow saw.
        checks: in the order in which they ran.
        verdict: ``pass`` unless a check failed.
    """

    tensorflow: str | None
    python: str
    device: Mapping[str, Any]
    checks: tuple[Check, ...]
    verdict: Literal["pass", "fail"]

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.result == "fail")

    def count(self, result: Result) -> int:
        """How many checks ended so."""
        return sum(check.result == result for check in self.checks)

    @property
    def summary(self) -> str:
        """One line: ``14 passed, 0 failed, 11 skipped``."""
        return f"{self.count('pass')} passed, {self.count('fail')} failed, {self.count('skip')} skipped"

    def to_json(self) -> dict[str, Any]:
        """The JSON object that :func:`from_json` reads."""
        value = asdict(self)
        return {"schema": SCHEMA, **value, "checks": list(value["checks"])}

    def require_pass(self) -> None:
        """Raise unless the verdict is ``pass``.

        Raises:
            CheckError: naming what failed, why, and the remedy of the first failure.
        """
        if self.verdict == "pass":
            return
        first = self.failures[0]
        raise CheckError(
            f"smoke: {', '.join(check.id for check in self.failures)} failed",
            why="; ".join(check.why for check in self.failures),
            remedy=first.remedy,
        )


def parse(output: str) -> Report:
    """Read the standard output of ``inside --json``. Lines that are not ours are passed over.

    Raises:
        CheckError: it ends before the report does, or the report is not valid.
    """
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
        why=f"the last one heard of was {seen[-1]}" if seen else "not one of them was heard of",
        remedy="most often memory ran out or the container was stopped: look at its exit code, give it more memory",
    )


def from_json(value: object) -> Report:
    """A report from its JSON object.

    Raises:
        CheckError: a field is missing or is not what it should be; the message names it.
    """
    if not isinstance(value, Mapping):
        raise _invalid("it is not an object")
    if value.get("schema") != SCHEMA:
        raise _invalid(f"schema {value.get('schema')!r} is not {SCHEMA}")
    listed = _field(value, "checks", list)
    if not listed:
        raise _invalid("it lists no checks")
    checks = tuple(_check(item) for item in listed)
    verdict = _field(value, "verdict", str)
    if verdict != ("fail" if any(check.result == "fail" for check in checks) else "pass"):
        raise _invalid(f"the verdict {verdict!r} contradicts the checks")
    return Report(
        tensorflow=_field(value, "tensorflow", str, type(None)),
        python=_field(value, "python", str),
        device=_field(value, "device", dict),
        checks=checks,
        verdict=verdict,
    )


def write_junit(report: Report, path: Path) -> None:
    """Write the report as JUnit XML, atomically, in the form that CI servers agree on (pytest's ``xunit2``).

    Raises:
        PreflightError: the file cannot be written.
    """
    suite = ET.Element(
        "testsuite",
        name="toolkit smoke",
        tests=str(len(report.checks)),
        failures=str(report.count("fail")),
        errors="0",
        skipped=str(report.count("skip")),
        time=f"{sum(check.seconds for check in report.checks):.3f}",
    )
    for check in report.checks:
        noun = check.id.partition(".")[0]
        case = ET.SubElement(suite, "testcase", classname=f"smoke.{noun}", name=check.id)
        case.set("time", f"{check.seconds:.3f}")
        if check.result == "fail":
            failure = ET.SubElement(case, "failure", message=_printable(check.why))
            failure.text = _printable(check.remedy)
        elif check.result == "skip":
            ET.SubElement(case, "skipped", message=_printable(check.why))
        evidence = ET.SubElement(case, "system-out")
        evidence.text = _printable(json.dumps(check.evidence, indent=2, sort_keys=True))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    files.write_atomically(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def render(report: Report, *, width: int = 100, color: bool = False) -> str:
    """The report as a table for a person: one row a check, its reason and remedy below where there is one."""
    # Rich takes a tenth of a second to import: only those who look at a table pay.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"pass": "green", "fail": "bold red", "skip": "dim"}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name, justify in (("", "left"), ("check", "left"), ("proves", "left"), ("seconds", "right")):
        table.add_column(name, justify=justify, no_wrap=name in {"", "check", "seconds"})  # type: ignore[arg-type]
    for check in report.checks:
        proves = Text(_printable(check.title))
        if check.why:
            proves.append(f"\n{_printable(check.why)}", style=styles[check.result])
        if check.result == "fail" and check.remedy:
            proves.append(f"\ntry: {_printable(check.remedy)}")
        table.add_row(Text(check.result, styles[check.result]), Text(check.id), proves, f"{check.seconds:.2f}")
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=color, no_color=not color, highlight=False)
    console.print(table)
    versions = _printable(f"TensorFlow {report.tensorflow or '?'}, Python {report.python}")
    console.print(Text(f"\n{versions}: {report.summary}"), soft_wrap=True)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _check(value: object) -> Check:
    if not isinstance(value, Mapping):
        raise _invalid("a check is not an object")
    check_id, result = _field(value, "id", str), _field(value, "result", str)
    if not re.fullmatch(r"\w+(\.\w+)+", check_id, re.ASCII):
        raise _invalid(f"an id is {check_id!r}")
    if result not in get_args(Result):
        raise _invalid(f"a result is {result!r}")
    return Check(
        id=check_id,
        title=_field(value, "title", str),
        result=result,
        evidence=_field(value, "evidence", dict),
        remedy=_field(value, "remedy", str),
        seconds=float(_field(value, "seconds", int, float)),
        timeout=float(_field(value, "timeout", int, float)),
    )


def _field(value: Mapping[str, Any], name: str, *kinds: type) -> Any:
    found = value.get(name)
    if name not in value or not isinstance(found, kinds) or isinstance(found, bool):
        raise _invalid(f"{name} is {found!r}")
    return found


def _invalid(why: str) -> CheckError:
    return CheckError(
        "the report of the checks is not valid", why=why, remedy="the checks and this toolkit are of different versions"
    )


def _printable(text: str) -> str:
    """XML 1.0 has no place for most control characters and lone surrogates; a library's last words may have them."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", text)
