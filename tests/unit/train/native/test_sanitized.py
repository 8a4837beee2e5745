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
