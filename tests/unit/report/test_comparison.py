import json
import shutil
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.unit.record import maker
from tests.unit.report.conftest import Place
from tests.unit.report.reading import Element, parse
from tests.unit.report.test_escaping import PAYLOADS, require_harmless
from toolkit import digest, manifest
from toolkit.artifacts import Environment
from toolkit.errors import IntegrityError
from toolkit.manifest import Manifest
from train.config.configuration import digest_fields
from train.use.compare import list_different, tabulate


def repeat(place: Place, seed: int, rate: float, **result: float) -> Path:
    """Return a copy of the run with another seed, learning rate and results, as if it had been trained so."""
    folder = Path(shutil.copytree(place.run, place.root / "others" / f"digits-{seed}-{rate}"))
    changed = {"seed": seed, "learning_rate": rate}
    value = json.loads((folder / "manifest.json").read_text())
    config = value["config"] | changed
    value |= {"config": config, "config_sha256": digest_fields(config), "result": value["result"] | result}
    (folder / "manifest.json").write_text(json.dumps(value))
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder


@pytest.fixture
def others(place: Place) -> list[Path]:
    return [repeat(place, seed, rate, test_loss=rate) for rate in (0.05, 0.1) for seed in (1, 2)]


def read(place: Place, *targets: Path) -> Element:
    return parse(place.write(*targets).read_text(encoding="utf-8"))


def test_a_value_with_a_comma_in_it_names_no_option() -> None:
    configs = [{"class_names": ["cat", name], "learning_rate": 0.1} for name in ("dog", "red fox")]
    assert list_different(configs) == ["class_names"]


def test_runs_are_side_by_side(place: Place, others: list[Path]) -> None:
    root = read(place, place.run, *others)
    assert root.find("h1")[0].text == "5 runs side by side"
    assert root.find("p", class_="lead")[0].text == "They differ in learning rate, seed."
    (section,) = root.find("section", id="results")
    heads = [each.text for each in section.find("th", scope="row")]
    assert heads[1] == f"2. learning rate 0.05, seed 1{others[0].name}"
    best = [each.text for each in section.find("strong")]
    assert f"{json.loads((others[0] / 'manifest.json').read_text())['result']['test_loss']:.4f}" in best
    (chart,) = root.find("figure", id="test-loss")
    assert len(chart.find("ul", class_="legend")[0].find("li")) == 5
    (options,) = root.find("section", id="configuration")
    assert [row.find("th")[0].text for row in options.find("tr")[1:]] == ["learning rate", "seed"]
    (chains,) = root.find("section", id="chain")
    same = {row.find("th")[0].text: row.find("td")[0].text for row in chains.find("tr")[1:]}
    assert same == {"weights": "same", "run": "differ", "environment": "same", "smoke": "same", "wheel": "same",
                    "lock": "same"}  # fmt: skip


def test_a_broken_link_of_one_run_is_shown(place: Place, others: list[Path]) -> None:
    (section,) = read(place, place.run, *others).find("section", id="chain")
    run = next(row for row in section.find("tr") if row.find("th")[0].text == "run")
    marks = [each.find("span")[0].attributes["class"].split()[1] for each in run.find("td")[1:]]
    assert marks == ["ok", "fail", "fail", "fail", "fail"], "their metrics are not those of their manifests"


def test_equal_runs_are_called_so(place: Place) -> None:
    copy = Path(shutil.copytree(place.run, place.root / "others" / "copy"))
    root = read(place, place.run, copy)
    assert root.find("p", class_="lead")[0].text == "They have the same configuration."
    assert "Every option has the same value" in root.find("section", id="configuration")[0].text


def test_many_runs_are_rows_of_their_options_and_have_curves_of_their_own(place: Place) -> None:
    root = read(place, *(repeat(place, seed, 0.1) for seed in range(10, 19)))
    keys = root.find("figure", id="test-loss")[0].find("ul", class_="legend")[0].find("svg")
    assert len({key.attributes["class"] for key in keys}) == len(keys) == 9
    (table,) = root.find("section", id="configuration")[0].find("table")
    rows = [[cell.text for cell in row.find("td")] for row in table.find("tr")[1:]]
    assert rows == [[str(seed)] for seed in range(10, 19)]


def test_an_environment_is_read_once_for_all_runs(
    place: Place, others: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    check = Environment.check
    monkeypatch.setattr(Environment, "check", lambda environment: asked.append(environment) or check(environment))
    place.describe(*others)
    assert len(asked) == 1


def make_sweep(place: Place, folders: list[Path]) -> Path:
    """Write the record of a sweep over runs, as `toolkit sweep` does."""
    folder = place.root / "others" / "sweep-rates-0123abcd"
    folder.mkdir()
    members, groups = [], dict[str, dict[str, object]]()
    for number, each in enumerate(folders):
        value = json.loads((each / "manifest.json").read_text())
        options = {"learning-rate": value["config"]["learning_rate"], "seed": value["config"]["seed"]}
        facts = {"number": number, "options": options, "arguments": [], "run": f"runs/{each.name}"}
        facts |= {"config_sha256": "", "status": "complete", "weights_sha256": value["weights_sha256"]}
        members.append(facts)
        groups.setdefault(f"learning-rate {options['learning-rate']}", {})[each.name] = value["result"]
    missing = {"number": 4, "options": {"learning-rate": 0.1, "seed": 3}, "arguments": [], "run": "runs/gone"}
    members.append(missing | {"status": "failed", "exit_code": 4, "reason": "the disk is full"})
    (folder / "table.csv").write_text("point\n")
    sums = {"table.csv": digest.digest_file(folder / "table.csv"), "comparison.png": "sha256:" + "0" * 64}
    facts = {"points": tabulate(groups), "members": members, "files": sums}  # type: ignore[arg-type]
    manifest.write(folder, Manifest(kind="sweep", digest="sha256:" + "1" * 64, facts=facts))
    return folder


def test_a_sweep_has_its_points_and_runs(place: Place, others: list[Path]) -> None:
    folder = make_sweep(place, others)
    root = read(place, folder)
    assert root.find("h1")[0].text == folder.name
    assert root.find("p", class_="lead")[0].text == "5 runs at 2 points; 4 are complete."
    (points,) = root.find("section", id="points")
    assert [each.text for each in points.find("th", scope="row")] == ["learning-rate 0.05", "learning-rate 0.1"]
    assert all(len(each.find("circle")) == 2 for each in points.find("svg", class_="strewn"))
    (members,) = root.find("section", id="members")
    assert "the disk is full" in members.text
    assert len(members.find("tr")) == 6
    commands = [f"toolkit verify runs/{each.name}" for each in others[:3]]
    assert root.find("footer")[0].find("pre")[0].text.splitlines() == [
        *commands,
        "# and 1 more, named in the table of runs",
    ]
    (files,) = root.find("section", id="files")
    assert ["as recorded" in files.text, "not here" in files.text] == [True, True]
    (chart,) = root.find("figure", id="test-loss")
    assert all(each.attributes["d"] for each in chart.find("path", class_="area")), "a band of one deviation"
    assert "one standard deviation" in chart.text
    (chains,) = root.find("section", id="chain")
    names = [each.text.split()[0] for each in chains.find("h3")]
    assert names == ["environment", "smoke", "wheel", "lock"]


def test_other_weights_than_the_sweep_recorded_fail(place: Place, others: list[Path]) -> None:
    folder = make_sweep(place, others)
    maker.change_json(folder / "manifest.json", lambda v: v["facts"]["members"][0].update(weights_sha256="0" * 64))
    assert "other weights than the sweep recorded" in read(place, folder).text


@pytest.mark.parametrize("part", ["points", "members"])
def test_a_damaged_record_of_a_sweep_is_refused(place: Place, others: list[Path], part: str) -> None:
    folder = make_sweep(place, others)
    maker.change_json(folder / "manifest.json", lambda value: value["facts"].update({part: [7]}))
    with pytest.raises(IntegrityError, match="record of the sweep"):
        place.describe(folder)


def test_a_sweep_with_hostile_names_runs_no_script(place: Place, others: list[Path], chromium: Browser) -> None:
    folder = make_sweep(place, others)

    def change(value: dict[str, dict[str, list[dict[str, object]]]]) -> None:
        for member, payload in zip(value["facts"]["members"], PAYLOADS, strict=False):
            member |= {"reason": payload}
            member["options"] = {payload: payload}
        for point, payload in zip(value["facts"]["points"], PAYLOADS, strict=False):
            point["point"] = point["best"] = payload

    maker.change_json(folder / "manifest.json", change)
    path = place.write(folder)
    require_harmless(path.read_text(encoding="utf-8"))
    chromium.open(path, 390)
    assert chromium.complaints == []
    assert chromium.run("document.documentElement.scrollWidth") <= 390
