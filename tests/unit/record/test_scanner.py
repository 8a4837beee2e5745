"""Bills of materials as a stock scanner reads them."""

from pathlib import Path
from typing import Any

import pytest

from tests import scanner
from tests.scanner import Scan
from tests.unit.record import maker
from tests.unit.record.test_bill import ask, image

assert image  # a fixture

pytestmark = [pytest.mark.slow, scanner.needed]


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    return scanner.prepare(tmp_path)


def save(target: Path, place: Path) -> Path:
    assert ask(target, "--out", str(place)).exit_code == 0
    return place


def test_an_image_with_an_advisory_is_found(image: Path, scan: Scan, tmp_path: Path) -> None:
    bill = save(image, tmp_path / "bill.json")
    assert scan(bill) == [("tensorflow", "2.19.0", "CVE-2026-2492")]

    def update(value: dict[str, Any]) -> None:
        (part,) = [each for each in value["components"] if each["name"] == "tensorflow"]
        part.update({name: part[name].replace("2.19.0", "2.21.0") for name in ("version", "purl", "cpe")})

    maker.change_json(bill, update)
    assert scan(bill) == []


def test_an_environment_with_an_advisory_is_found(state: Path, scan: Scan, tmp_path: Path) -> None:
    folder = next(path for path in state.glob("environment-*") if path.is_dir())
    assert scan(save(folder, tmp_path / "bill.json")) == [("tensorflow-cpu", "2.19.0", "CVE-2026-2492")]
