import json
import shutil
from pathlib import Path

import pytest

from tests.unit.report.conftest import Place
from tests.unit.report.reading import Element, parse
from train.config.configuration import digest_fields


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


def test_many_runs_are_rows_of_their_options_and_have_curves_of_their_own(place: Place) -> None:
    root = read(place, *(repeat(place, seed, 0.1) for seed in range(10, 19)))
    keys = root.find("figure", id="test-loss")[0].find("ul", class_="legend")[0].find("svg")
    assert len({key.attributes["class"] for key in keys}) == len(keys) == 9
    (table,) = root.find("section", id="configuration")[0].find("table")
    rows = [[cell.text for cell in row.find("td")] for row in table.find("tr")[1:]]
    assert rows == [[str(seed)] for seed in range(10, 19)]
