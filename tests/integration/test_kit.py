"""The kit in pieces, put together in a container without a network."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.unit.wheel.maker import make_wheel
from tools import kit

pytestmark = pytest.mark.engine

MODULE = """
class config:
    @staticmethod
    def list_physical_devices(kind):
        return []

__version__ = "2.21.0"
"""


def test_an_empty_machine_without_a_network_gets_as_far_as_the_card(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    files: dict[str, bytes | str] = {"tensorflow/__init__.py": MODULE, "tensorflow/large": bytes(range(256)) * 40}
    wheels = [
        make_wheel(tmp_path / "wheels", version="2.21.0", tag="py3-none-any", files=files),
        make_wheel(tmp_path / "wheels", name="toolkit", tag="py3-none-any", files={"train/__init__.py": ""}),
    ]
    kit.cut(wheels, tmp_path / "kit", most=1000)
    argv = ["docker", "run", "--rm", "--network", "none", "--volume", f"{tmp_path / 'kit'}:/kit", stages.STANDIN]
    done = subprocess.run([*argv, "python3", "/kit/join.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 12, done.stdout + done.stderr
    first, _, imported, card = (tmp_path / "kit/kit-report.md").read_text().splitlines()
    assert first == "# worked: 1 of 7"
    assert imported.startswith("- import: worked,")
    assert card.startswith("- card: failed,")
