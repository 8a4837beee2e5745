"""Statements about advisories, held against the schema of CycloneDX and read by its library, beside their bills."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.model.impact_analysis import ImpactAnalysisState
from cyclonedx.model.vulnerability import VulnerabilitySeverity
from typer.testing import CliRunner, Result

from tests.unit.record import maker
from tests.unit.record.test_bill import VALIDATOR, ask, image
from tests.unit.wheel.test_publication import finish_build, publish
from toolkit.cli import app
from toolkit.record import software, vex
from toolkit.versions import load_table

assert image  # a fixture


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    publish(finish_build(tmp_path / "staging"), tmp_path / "dist")
    return tmp_path / "dist"


def read(done: Result) -> Bom:
    """Return what the library's own reader makes of it, after the schema has taken it."""
    assert done.exit_code == 0, done.output
    assert VALIDATOR.validate_str(done.stdout) is None
    bom: Bom = Bom.from_json(json.loads(done.stdout))  # type: ignore[attr-defined]
    return bom


def find(bill: Any, link: str) -> dict[str, Any]:
    """Return the component of a bill that a link names."""
    place, _, ref = link.removeprefix("urn:cdx:").partition("#")
    assert bill["serialNumber"] == f"urn:uuid:{place.partition('/')[0]}"
    assert place.endswith("/1")
    parts = [bill["metadata"]["component"], *bill["components"]]
    (found,) = [each for each in parts if each["bom-ref"] == unquote(ref)]
    return dict(found)


def check(done: Result, bill: Any) -> None:
    bom = read(done)
    (found,) = bom.vulnerabilities
    assert found.id == "CVE-2026-2492"
    assert found.analysis
    assert found.analysis.state == ImpactAnalysisState.EXPLOITABLE
    assert [each.value for each in found.analysis.responses] == ["update"]
    assert "HDF5_PLUGIN_PRELOAD" in (found.analysis.detail or "")
    assert found.recommendation == "Update to TensorFlow 2.21.0."
    assert [each.severity for each in found.ratings] == [VulnerabilitySeverity.HIGH]
    (target,) = found.affects
    (versions,) = target.versions
    assert (versions.version, versions.status.value) == ("2.19.0", "affected")  # type: ignore[union-attr]
    part = find(bill, target.ref)
    assert part["name"] in {"tensorflow", "tensorflow-cpu"}
    assert part["version"] == "2.19.0"


def test_a_wheel_has_the_advisories_of_its_tensorflow(wheel: Path) -> None:
    check(ask(wheel, "--vex"), json.loads((wheel / "sbom.cdx.json").read_text()))


def test_an_environment_has_the_advisories_of_its_tensorflow(state: Path) -> None:
    folder = next(path for path in state.glob("environment-*") if path.is_dir())
    check(ask(folder, "--vex"), json.loads(ask(folder).stdout))


def test_an_image_has_the_advisories_of_its_tensorflow(image: Path) -> None:
    label = "io.github.tensorflow-toolkit.tensorflow"
    maker.change_json(image / "manifest.json", lambda value: value["facts"]["labels"].update({label: "2.19.0"}))
    check(ask(image, "--vex"), json.loads(ask(image).stdout))


def test_the_same_record_gives_the_same_statements(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "vex.json"
    done = ask(wheel, "--vex", "--out", str(place))
    assert done.output.strip() == f"{place}: 1 advisories"
    assert place.read_text() == ask(wheel, "--vex").stdout


def test_nothing_is_claimed_that_the_table_does_not_say(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_table()
    other = replace(table.advisories["CVE-2026-2492"], severity="", fixed="", ours="")
    for module in (vex, software):
        monkeypatch.setattr(module, "load_table", lambda: replace(table, advisories={"CVE-2026-2492": other}))
    (found,) = read(ask(wheel, "--vex")).vulnerabilities
    assert found.analysis
    assert (found.analysis.state, found.recommendation) == (ImpactAnalysisState.EXPLOITABLE, None)
    assert (list(found.analysis.responses), found.analysis.detail) == ([], None)
    assert [each.severity for each in found.ratings] == [VulnerabilitySeverity.UNKNOWN]
    monkeypatch.setattr(software, "load_table", lambda: replace(table, advisories={}))
    assert list(read(ask(wheel, "--vex")).vulnerabilities) == []


def test_a_version_that_the_table_does_not_know_has_no_statement(wheel: Path) -> None:
    def edit(value: dict[str, Any]) -> None:
        value["facts"]["lock"]["spec"]["tensorflow"] = "2.16.1"

    maker.change_json(wheel / "manifest.json", edit)
    done = ask(wheel, "--vex")
    assert done.exit_code == 8
    assert "does not know TensorFlow 2.16.1" in done.output
    maker.change_json(wheel / "manifest.json", lambda value: value["facts"]["lock"]["spec"].update(tensorflow="2.19.0"))
    (wheel / "sbom.cdx.json").write_text("{}")
    assert "has no readable sbom.cdx.json" in ask(wheel, "--vex").output


def test_a_run_has_none(run: Path) -> None:
    done = CliRunner().invoke(app, ["sbom", str(run), "--vex"])
    assert done.exit_code == 2
    assert "--vex is for wheel, environment, image" in done.output
