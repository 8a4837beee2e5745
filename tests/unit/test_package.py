import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolkit.base.project import ROOT

WHEEL = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir")
SHIPPED = ("toolkit", "train", "docker", "bazel_patches", ".dockerignore")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package and install it into a folder of its own, by pip without an index."""
    folder = tmp_path_factory.mktemp("installed")
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*argv, "--no-build-isolation", "--no-compile", "--target", str(folder), str(ROOT)], check=True)
    return folder


def run(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder; -P and the first `site` keep the clone off the path."""
    code = (
        f"import site, sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}]; site.addsitedir({str(site)!r});"
    )
    code += "from toolkit.__main__ import main; main()"
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLKIT_", "PYTHONPATH"))}
    variables |= {"DOCKER_HOST": "tcp://127.0.0.1:1", "NO_COLOR": "1"}
    argv = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(argv, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def list_files(root: Path) -> dict[str, tuple[bytes, bool]]:
    """Return content and executable bit of each shipped file, by its name."""
    paths = [
        path for name in SHIPPED for path in ([root / name] if (root / name).is_file() else root.glob(f"{name}/**/*"))
    ]
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".so", ".pth"}
    }


def test_the_package_has_every_file_of_the_clone(installed: Path) -> None:
    found, expected = list_files(installed / "tensorflow_toolkit"), list_files(ROOT)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


def test_an_installed_toolkit_plans_what_a_clone_plans(installed: Path, tmp_path: Path) -> None:
    answers: list[Any] = []
    for site, words in ((installed, ("build-wheel",)), (ROOT, ("build-wheel",))):
        done = run(site, tmp_path, *words, "--dry-run", "--json")
        assert done.returncode == 0, done.stderr
        place = site / "tensorflow_toolkit" if site == installed else site
        written = json.dumps(str(place)).strip('"')
        assert written in done.stdout, "the command is of this place"
        answers.append(json.loads(done.stdout.replace(written, "ROOT")))
    assert answers[0] == answers[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.weekly
@pytest.mark.timeout(1200)
def test_a_package_in_a_clean_environment_does_the_main_job(tmp_path: Path) -> None:
    """The environment has the locked packages alone; the folder is empty, and there is no engine."""
    python, home = tmp_path / "venv" / "bin" / "python", tmp_path / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([python, *pip, "--require-hashes", "-r", ROOT / "docker/requirements/toolkit.txt"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "wheel", *pip[3:], *WHEEL, tmp_path, ROOT], check=True)
    (package,) = tmp_path.glob("*.whl")
    subprocess.run([python, *pip, "--no-deps", "--no-index", package], check=True)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLKIT_", "PYTHON"))}
    done = subprocess.run(
        [python.with_name("toolkit"), "up", "digits", "--json"],
        cwd=home,
        env=variables | {"DOCKER_HOST": "tcp://127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run_dir,) = (home / "runs").glob("digits-*")
    checked = subprocess.run(
        [python.with_name("toolkit"), "verify", run_dir],
        cwd=home,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert str(ROOT) not in (run_dir / "manifest.json").read_text()
