import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLKIT = Path(sys.executable).with_name("toolkit")

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")


def run(script: str, home: Path) -> str:
    variables = {**os.environ, "HOME": str(home), "PATH": f"{TOOLKIT.parent}:{os.environ['PATH']}"}
    argv = ["bash", "--norc", "-euc", script]
    return subprocess.run(argv, env=variables, capture_output=True, text=True, check=True, timeout=60).stdout


CASES = {
    "toolkit tr": ["train"],
    "toolkit build-wheel --cpu": ["--cpu-target"],
    "toolkit build-wheel --cpu-target x": ["x86-64-v2", "x86-64-v3", "x86-64-v4"],
    "toolkit train cif": ["cifar10", "cifar100"],
    "toolkit train digits --lear": ["--learning-rate"],
    "toolkit train digits --flip --optimizer s": ["sgd"],
    "toolkit train ./my-pho": [],
}
"""What is typed, and how it may go on. Where there is nothing, bash offers files."""


def test_bash_completes_commands_options_values_and_data_sets(tmp_path: Path) -> None:
    script = "toolkit --install-completion >/dev/null\nset +u; source ~/.bashrc\n"
    for line in CASES:
        words = line.split(" ")
        typed = " ".join(f"'{word}'" for word in words)
        script += f"COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}; _toolkit_completion toolkit\n"
        script += "echo ${COMPREPLY[*]}\n"
    found = run(script + "complete -p toolkit", tmp_path).splitlines()
    assert dict(zip(CASES, map(str.split, found[:-1]), strict=True)) == CASES
    assert "-o default" in found[-1]
