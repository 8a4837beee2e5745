import os
import subprocess
import sys
from pathlib import Path

import pytest

from train.native import library

ROOT = Path(__file__).parents[4]
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    compiler = library.find_compiler()
    found = [library._run([compiler, f"-print-file-name={name}.so"]).strip() for name in ("libasan", "libubsan")]
    if not all(Path(path).is_absolute() for path in found):
        pytest.skip(f"{compiler} has no sanitizers")
    flags = ("-O1" if flag == "-O3" else flag for flag in library.FLAGS)
    monkeypatch.setattr(library, "FLAGS", (*flags, "-g", "-fno-omit-frame-pointer", *SANITIZERS))
    monkeypatch.setattr(library, "LINK_FLAGS", ("-shared", "-pthread", *SANITIZERS))
    path = library.compile_library(compiler, folder)
    own = {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0", library.VARIABLE: str(path)}
    return os.environ | own | {"TOOLKIT_REQUIRE_NATIVE": "1"}


@pytest.mark.weekly
def test_operations_with_sanitizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = build(tmp_path, monkeypatch)
    tests = [f"tests/unit/train/native/test_{name}.py" for name in ("operations", "blocks", "refusals", "bfloat16")]
    words = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


OVERRUN = """
import sys
from pathlib import Path
import numpy as np
from train.native import library, operations
library.find = lambda: library.Library(Path(sys.argv[1]), "", "", "")  # without its check, which would fail
x = np.ones((1, 3, 4, 4), np.float32)
operations.load().toolkit_scale_rectify(x=x, gamma=np.ones(3, np.float32), beta=np.ones(3, np.float32))
"""


@pytest.mark.weekly
def test_a_read_beyond_the_end_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for path in library.SOURCE.iterdir():
        text = path.read_text(encoding="utf-8")
        if path.name == "layers.cpp":
            assert "beta[map % shape.channels]};" in text
            text = text.replace("beta[map % shape.channels]};", "beta[map + shape.channels]};")
        (source / path.name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(library, "SOURCE", source)
    environment = build(tmp_path, monkeypatch)
    words = ["-c", OVERRUN, environment[library.VARIABLE]]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
