"""TensorFlow itself in a new environment, from the index that pip is configured for."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.command import Run

PROGRAM = """
import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 2), "float32"), np.ones(8, "float32"), verbose=0)
print(tf.__version__, model.count_params())
"""


@pytest.mark.weekly
@pytest.mark.timeout(900)
def test_a_program_of_the_user_runs_in_a_new_environment(tmp_path: Path) -> None:
    run = Run(tmp_path)
    done = run("install", "--into", "mine", "--card", "none", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["smoke"]["verdict"] == "pass"
    (tmp_path / "program.py").write_text(PROGRAM)
    said = subprocess.run(
        [value["program"], "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert said == [value["tensorflow"], "3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "program.py"]
