"""CVE Binary Tool, a stock scanner of bills of materials, with a database of one advisory."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PYTHON = os.environ.get("TOOLKIT_SCANNER_PYTHON", "")
"""A Python that has cve-bin-tool."""

needed = pytest.mark.skipif(not PYTHON, reason="TOOLKIT_SCANNER_PYTHON names no Python with cve-bin-tool")

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


def prepare(folder: Path) -> Scan:
    """Return what gives product, version and advisory of each finding in a bill. The database is made in the folder."""
    database, home = folder / "database", folder / "home"
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
        report = folder / "report.json"
        report.unlink(missing_ok=True)
        done = start("--sbom", "cyclonedx", "--sbom-file", bill, "--format", "json", "--output-file", report)
        assert report.exists(), done.stderr
        return [(each["product"], each["version"], each["cve_number"]) for each in json.loads(report.read_text())]

    return scan
