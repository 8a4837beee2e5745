import json
from pathlib import Path

import pytest

from toolkit.base.console import Console
from toolkit.base.errors import UsageError
from toolkit.base.findings import Finding
from toolkit.checks.check import Expectation
from toolkit.engine import Environment, Job, Listener
from toolkit.smoke import runner
from toolkit.smoke.runner import Report


class PassingEngine:
    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        facts = {"evidence": {}, "timeout": 60.0}
        check = Finding(id="tensorflow.import", state="ok", evidence="", seconds=1.0, facts=facts)
        found = Report("2.19.0", "3.11.7", {"asked": "auto", "gpus": 0}, (check,), "pass")
        assert listener is not None
        listener(json.dumps({"report": found.to_json()}))
        return 0


def test_a_pass_with_checks_left_out_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    environment = Environment(kind="image", digest="sha256:0", reference="any", folder=tmp_path, reused=True)
    partial = Expectation(version="2.19.0", skip=("numerics",))
    runner.run(PassingEngine(), environment, partial, Console(verbosity=-1))  # type: ignore[arg-type]
    assert runner.recall(environment, partial) is not None
    assert runner.recall(environment, Expectation(version="2.19.0")) is None
    assert runner.recall(environment, Expectation(version="2.19.0", skip=("xla",))) is None


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        (["xla", "numericz"], "no check is called numericz"),
        (["tensorflow.import"], "tensorflow.import cannot be left out"),
        (["*"], "cannot be left out"),
        (["--list"], "no check is called --list"),
        ([""], "no check is called"),
    ],
)
def test_names_that_cannot_be_left_out_are_wrong_usage(patterns: list[str], reason: str) -> None:
    runner.require_known(["xla", "cpu.onednn", "*.matmul"])
    with pytest.raises(UsageError) as caught:
        runner.require_known(patterns)
    assert caught.value.what.startswith(reason) or reason in caught.value.what
    assert "usage:" not in caught.value.what
