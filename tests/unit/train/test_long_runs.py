import json
from pathlib import Path

import pytest

from train.cli import main
from train.command_line import parse


@pytest.mark.weekly
@pytest.mark.usefixtures("no_drawing")
def test_digits_are_learnt(tmp_path: Path) -> None:
    found = []
    for seed in range(3):
        arguments = ["digits", "--seed", str(seed), "--threads", "2", "--progress", "quiet", "--out", str(tmp_path)]
        assert main(arguments) == 0
        manifest = json.loads((parse(arguments).run_dir / "manifest.json").read_text(encoding="utf-8"))
        assert manifest["result"]["epochs"] == 20
        found.append(manifest["result"]["test_accuracy"])
    assert sum(found) / 3 >= 0.985
