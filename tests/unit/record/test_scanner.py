"""Bills of materials as a stock scanner reads them: CVE Binary Tool, whose database has one advisory here."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.record import maker
from tests.unit.record.test_bill import ask, image

assert image  # a fixture

PYTHON = os.environ.get("TOOLKIT_SCANNER_PYTHON", "")
"""A Python that has cve-bin-tool."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="TOOLKIT_SCANNER_PYTHON names no Python with cve-bin-tool"),
]

ADVISORY = {
    "cve_number": "CVE-2026-2492",
    "severity": "HIGH",
    "description": "HDF5 plugins are loaded from a folder that others may write",
    "score": 7,
    "cvss_version": 3,
    "cvss_vector": "",
    "last_modified": "2026-01-01",
}
RANGE = {
    "version": "*",
    "versionStartIncluding": "",
    "versionStartExcluding": "",
    "versionEndIncluding": "",
    "versionEndExcluding": "2.21.0",
}
NAMES = (("NVD", "google", "tensorflow"), ("OSV", "unknown", "tensorflow-cpu"))
"""Source, vendor and product: one database names TensorFlow by its CPE, the other by its package."""

Scan = Callable[[Path], list[tuple[str, str, str]]]


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    """Return what gives product, version and advisory of each finding of the scanner in a bill."""
    database, home = tmp_path / "database", tmp_path / "home"
    for table in ("cve_severity", "cve_range"):
        (database / table).mkdir(parents=True)
    named = {"cve_number": ADVISORY["cve_number"]}
    severities = [{**ADVISORY, "data_source": source} for source, _, _ in NAMES]
    ranges = [
        {**named, "vendor": vendor, "product": product, **RANGE, "data_source": source}
        for source, vendor, product in NAMES
    ]
    (database / "cve_severity/2026.json").write_text(json.dumps(severities))
    (database / "cve_range/2026.json").write_text(json.dumps(ranges))
    (database / "metadata.json").write_text(json.dumps({"timestamp": 0, "db": ["cve_severity", "cve_range"]}))
    # It imports into a database that is there, even if it is empty.
    (home / ".cache/cve-bin-tool").mkdir(parents=True)
    (home / ".cache/cve-bin-tool/cve.db").touch()

    def start(*words: str | Path) -> "subprocess.CompletedProcess[str]":
        options = ("--offline", "--update", "never", "--disable-version-check")
        command = [PYTHON, "-m", "cve_bin_tool.cli", *options, *words]
        environment = {**os.environ, "HOME": str(home)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert start("--import-json", database, "--ignore-sig").returncode == 0

    def scan(bill: Path) -> list[tuple[str, str, str]]:
        report = tmp_path / "report.json"
        report.unlink(missing_ok=True)
        done = start("--sbom", "cyclonedx", "--sbom-file", bill, "--format", "json", "--output-file", report)
        assert report.exists(), done.stderr
        return [(each["product"], each["version"], each["cve_number"]) for each in json.loads(report.read_text())]

    return scan


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
