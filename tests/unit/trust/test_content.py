"""What was added to an environment is found, also what is no file; and what others may write to."""

from pathlib import Path

import pytest

from toolkit.engine import content


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (packages / "package").mkdir(parents=True)
    (packages / "package" / "__init__.py").write_text("")
    (packages / "empty").mkdir()
    (tmp_path / "venv" / "lib64").symlink_to("lib")
    return tmp_path


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda packages: (packages / "nvidia").mkdir(), "site-packages/nvidia is not in its record"),
        (lambda packages: (packages / "package" / "inner").mkdir(), "package/inner is not in its record"),
        (lambda packages: packages.chmod(0o777), "others may write to venv/lib/python3.11/site-packages"),
        (lambda packages: (packages / "package" / "__init__.py").chmod(0o666), "others may write to"),
        (lambda packages: (packages / "empty").rmdir(), ""),
        (lambda packages: None, ""),
    ],
    ids=["folder", "folder in a package", "open folder", "open file", "empty folder gone", "nothing"],
)
def test_folders_and_modes_count(environment: Path, change: object, found: str) -> None:
    promised, fingerprint = content.write(environment)
    change(environment / "venv" / "lib" / "python3.11" / "site-packages")  # type: ignore[operator]
    wrong, _ = content.find_change(environment, promised)
    assert found in wrong
    assert bool(found) == bool(wrong)
    assert not found or content.scan(environment).fingerprint() != fingerprint


def test_what_all_may_write_to_is_closed_when_an_environment_is_made(environment: Path) -> None:
    lock = environment / "venv" / ".lock"
    lock.touch()
    lock.chmod(0o666)
    promised, _ = content.write(environment)
    assert lock.stat().st_mode & 0o777 == 0o644
    assert content.find_change(environment, promised)[0] == ""
