import json
import re
from typing import Any

import pytest

from tests.command import Run
from tests.makers.sets import choose
from toolkit.checks.gpu_rules import find_coverage
from toolkit.doctor import cards
from toolkit.doctor.advice import advise
from toolkit.doctor.machine import Device, Machine
from toolkit.versions.set import Set
from toolkit.versions.sets import find_locked
from toolkit.versions.settings import resolve
from toolkit.versions.table import load_table

TABLE = load_table()


def read_flags(command: str) -> dict[str, Any]:
    flags = dict(re.findall(r"--(\S+) (\S+)", command))
    flags.pop("into", None)
    capability = flags.pop("compute-capability", None)
    return {**flags, **({"capabilities": [capability]} if capability else {})}


@pytest.mark.parametrize(
    "capability",
    sorted({chip.capability for chip in cards.load_chips().values()} - {"5.3", "6.2", "7.2", "8.7", "11.0", "12.1"}),
)
def test_the_advice_for_every_card_can_be_followed_and_runs_on_it(capability: str) -> None:
    device = Device(name="it", capability=capability)
    found = advise(TABLE, device, Machine(), resolve({}, environment={}).asked)
    if found.build:
        spec = choose(TABLE, **read_flags(found.build))
        covered = find_coverage(spec.capabilities, capability)
        assert covered is not None
        assert covered.is_native
    else:
        assert float(capability) < 5
        assert "no set of the table" in found.remedy
    if found.run:
        assert found.published == "native"
        flags = read_flags(found.run)
        assert find_locked(TABLE, Set.of(flags))
        assert choose(TABLE, **flags, capabilities=[capability])


def test_the_command_answers_without_a_gpu_and_for_one_that_is_named(run: Run) -> None:
    done = run("advise", "--gpu", "RTX 5090", "--driver", "570.124.06", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["gpus"]
    assert (found["capability"], found["published"], found["run"]) == ("12.0", "ptx", "")
    assert found["driver_says"].startswith("the driver runs CUDA 12.8.1")
    assert found["build"].endswith("--cuda 12.8.1 --cudnn 9.10.2 --compute-capability compute_120")
    assert run.started == []
    done = run("advise", PATH="/nowhere")
    assert (done.returncode, "no NVIDIA GPU" in done.stdout) == (0, True)
    for arguments, code, message in (
        (["--gpu", "RTX 9090"], 2, "did you mean RTX"),
        (["--gpu", "T4", "--driver", "new"], 2, "not a version of the driver"),
    ):
        done = run("advise", *arguments, PATH="/nowhere")
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr
