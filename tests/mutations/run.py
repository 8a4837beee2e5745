import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FAILED = 1
"""pytest's exit code when tests ran and some failed; other codes mean that it could not run them."""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A defect: a text that occurs once in a file, its replacement, and the test that must then fail."""

    name: str
    file: str
    text: str
    replacement: str
    test: str

    def find_problem(self, root: Path = ROOT) -> str:
        path = root / self.file
        if not path.is_file():
            return f"{self.name}: STALE, there is no {self.file}; `git grep` for its text and correct the entry"
        count = path.read_text(encoding="utf-8").count(self.text)
        if count != 1:
            return f"{self.name}: STALE, {self.file} holds its text {count} times, not once: {self.text!r}"
        place, _, function = self.test.partition("::")
        test, head = root / place, f"def {function.partition('[')[0]}(" if function else ""
        if not test.is_file() or head not in test.read_text(encoding="utf-8"):
            return f"{self.name}: STALE, there is no test {self.test}"
        return ""


def read() -> list[Mutation]:
    text = Path(__file__).with_name("mutations.yaml").read_text(encoding="utf-8")
    return [Mutation(**entry) for entry in yaml.safe_load(text)]


def run(mutations: Sequence[Mutation], copy: Path, *, root: Path = ROOT) -> list[str]:
    _copy(root, copy)
    problems = []
    # All at once first: one process takes a fraction of the time of one for each test.
    sound = _run_tests({mutation.test for mutation in mutations}, copy)[0] == 0
    for mutation in mutations:
        problem = mutation.find_problem(copy) or _try(mutation, copy, sound=sound)
        print(f"  {'PROBLEM' if problem else 'noticed'}  {mutation.name}", flush=True)
        problems += [problem] if problem else []
    return problems


def _copy(root: Path, copy: Path) -> None:
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


def _try(mutation: Mutation, copy: Path, *, sound: bool) -> str:
    """Return what is wrong with an entry. ``sound``: its test is known to pass without the defect."""
    code, said = (0, "") if sound else _run_tests({mutation.test}, copy)
    if code != 0:
        return f"{mutation.name}: {mutation.test} does not pass without the defect (exit code {code})\n{said}"
    path = copy / mutation.file
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace(mutation.text, mutation.replacement), encoding="utf-8")
    try:
        code, said = _run_tests({mutation.test}, copy)
    finally:
        path.write_text(content, encoding="utf-8")
    if code == 0:
        return f"{mutation.name}: SURVIVED, {mutation.test} still passes"
    # A defect of C++ may end the process by a signal, of which the code is negative.
    noticed = code == FAILED or code < 0
    return "" if noticed else f"{mutation.name}: {mutation.test} cannot run (exit code {code})\n{said}"


def _run_tests(tests: Collection[str], copy: Path) -> tuple[int, str]:
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *sorted(tests)]
    # Write no compiled modules: one made in the same second as the defect would hide it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
