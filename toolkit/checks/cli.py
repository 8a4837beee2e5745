"""The checks in order, and the command line; ``--json`` prints ``{"check": …}`` lines, then ``{"report": …}``."""

import argparse
import json
import os
import platform
import re
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NoReturn

from . import compiler, device, installation, libraries, numerics
from .check import TENSORFLOW, Check, Expectation, Outcome
from .supervisor import Supervisor, serve

_IMPORT, *_INSTALLATION = installation.CHECKS
_INSTRUCTIONS, *_PROCESSOR = device.PROCESSOR_CHECKS
_SYSTEM, *_LIBRARIES = libraries.CHECKS

CHECKS: Final[tuple[Check, ...]] = (
    # Before the import: a missing instruction set kills it without a word, and an old C library is not named by it.
    _INSTRUCTIONS,
    _SYSTEM,
    _IMPORT,
    *_INSTALLATION,
    *_LIBRARIES,
    *compiler.CHECKS,
    *_PROCESSOR,
    *device.CHECKS,
    # Last: its last check switches op determinism on for the rest of the process.
    *numerics.CHECKS,
)


def select(patterns: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks that patterns such as ``xla.*`` or ``xla`` match, and what these need. Raises ValueError."""
    if not patterns:
        return CHECKS
    wanted = _find(patterns)
    while missing := {need for check in CHECKS if check.id in wanted for need in check.needs} - wanted:
        wanted |= missing
    return tuple(check for check in CHECKS if check.id in wanted)


def leave_out(patterns: Sequence[str]) -> frozenset[str]:
    """Return the checks to report as skipped. Raises ValueError: a pattern matches none, or one that others need."""
    unwanted = _find(patterns)
    foundations = sorted(unwanted & {need for check in CHECKS for need in check.needs})
    if foundations:
        raise ValueError(f"{', '.join(foundations)} cannot be left out: other checks need it")
    return unwanted


def _find(patterns: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for pattern in patterns:
        matching = {check.id for check in CHECKS if _matches(check.id, pattern)}
        if not matching:
            near = get_close_matches(pattern, [check.id for check in CHECKS], 3, 0.4)
            raise ValueError(f"no check is called {pattern}" + (f"; did you mean {', '.join(near)}?" if near else ""))
        found |= matching
    return frozenset(found)


def _matches(check_id: str, pattern: str) -> bool:
    return fnmatchcase(check_id, pattern) or check_id.startswith(f"{pattern}.")


SCHEMA: Final = 1
EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 7, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks; returns 0 when all passed or were skipped, 7 when one failed, 130 when interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    options = parser.parse_args(arguments)
    expectation = Expectation(
        version=options.version,
        capability=options.capability,
        cuda=options.cuda,
        cudnn=options.cudnn,
        device=options.device,
        instructions=tuple(options.instructions.split(",")) if options.instructions else (),
        skip=tuple(options.skip),
    )
    if options.serve:
        serve(CHECKS, expectation)
        return EXIT_OK
    try:
        checks, left_out = select(options.only), leave_out(expectation.skip)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        for check in checks:
            print(f"{check.id:<22} {check.title}")
        return EXIT_OK
    signal.signal(signal.SIGTERM, _interrupt)
    # A GPU that is to be left alone is hidden from the driver, or importing TensorFlow would already touch it.
    environment = {"CUDA_VISIBLE_DEVICES": "-1"} if expectation.device == "cpu" else {}
    command = [sys.executable, str(Path(__file__).parent), "--serve", *arguments]
    supervisor = Supervisor(command, environment=environment, patience=options.patience)
    findings: list[Outcome] = []
    try:
        for finding in supervisor.run(checks, left_out=left_out):
            findings.append(finding)
            told = {"check": finding.as_dict(), "number": len(findings), "of": len(checks)}
            print(json.dumps(told) if options.json else _line(finding), flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away; what is still buffered must not raise again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERRUPTED
    report = summarize(findings, expectation)
    print(json.dumps({"report": report}) if options.json else _summary(findings), flush=True)
    return EXIT_OK if report["verdict"] == "pass" else EXIT_FAILED


def summarize(findings: Sequence[Outcome], expectation: Expectation) -> dict[str, Any]:
    seen = next((finding.evidence for finding in findings if finding.id == TENSORFLOW), {})
    return {
        "schema": SCHEMA,
        "tensorflow": seen.get("version"),
        "python": platform.python_version(),
        "device": {"asked": expectation.device, "gpus": len(seen.get("gpus", []))},
        "checks": [finding.as_dict() for finding in findings],
        "verdict": "fail" if any(finding.result == "fail" for finding in findings) else "pass",
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="checks", description="Check the TensorFlow of this interpreter.")
    for name, shape, example in (
        ("version", r"\d+\.\d+\.\d+\S*", "2.19.0"),
        ("capability", r"\d+\.\d", "7.5"),
        ("cuda", r"\d+\.\d+(\.\d+)?", "12.6.1"),
        ("cudnn", r"\d+\.\d+(\.\d+)?", "9.5.0"),
        ("instructions", r"\w+(,\w+)*", "avx2,fma"),
    ):
        parser.add_argument(
            f"--expect-{name}",
            dest=name,
            default="",
            metavar=example,
            type=_shaped(shape, example),
            help="what to find",
        )
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto", help="gpu: fail without one")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="ID", help="ids, nouns or patterns")
    parser.add_argument("--skip", action="append", default=[], metavar="ID", help="leave out, and say so in the report")
    parser.add_argument("--patience", type=float, default=1.0, metavar="FACTOR", help="on every deadline")
    parser.add_argument("--json", action="store_true", help="JSON Lines on standard output")
    parser.add_argument("--list", action="store_true", help="name the checks and end")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser


def _shaped(pattern: str, example: str) -> Any:
    def parse(text: str) -> str:
        # Empty is no expectation, so that scripts may pass an unset variable.
        if text and not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"{text!r} should look like {example}")
        return text

    return parse


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _line(finding: Outcome) -> str:
    text = f"{finding.result}  {finding.id:<22} {finding.title}  {finding.seconds:.2f} s"
    if finding.result != "pass":
        text += f"\n      {finding.evidence.get('why', '')}"
    return text + (f"\n      try: {finding.remedy}" if finding.remedy else "")


def _summary(findings: Sequence[Outcome]) -> str:
    count = {result: sum(finding.result == result for finding in findings) for result in ("pass", "fail", "skip")}
    return f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped"
