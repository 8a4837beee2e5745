import json

import pytest

from tests.unit.report.conftest import Place
from tests.unit.report.reading import Element, parse
from toolkit.report.run_files import RunFolder


def read(place: Place, **options: object) -> Element:
    return parse(place.write(**options).read_text(encoding="utf-8"))


def test_a_page_has_the_numbers_of_its_run(place: Place) -> None:
    root, value = read(place), json.loads((place.run / "manifest.json").read_text())
    result = value["result"]
    (numbers,) = root.find("dl", class_="numbers")
    shown = [each.text for each in numbers.find("dd")]
    assert shown[0] == f"{result['test_accuracy']:.2%}of 360 images"
    assert shown[1] == f"{result['test_loss']:.4f}"
    assert shown[2] == f"{result['calibration_error']:.2%}"
    assert root.find("h1")[0].text == place.run.name
    assert [each.text for each in root.find("h2")] == [
        "Curves", "Confusions", "Images", "Calibration", "Time and memory", "Where it came from", "Configuration",
        "Data and machine",
    ]  # fmt: skip


def test_the_matrix_is_that_of_the_run_and_leads_to_its_images(place: Place) -> None:
    root = read(place)
    (matrix,) = root.find("table", class_="matrix")
    counts = [[int(cell.text) for cell in row.find("td")] for row in matrix.find("tr")[1:]]
    found = RunFolder(place.run).confusion
    assert found is not None
    assert counts == found[1]
    recorded = json.loads((place.run / "manifest.json").read_text())["mistakes"]
    links = {each.attributes["data-cell"] for each in matrix.find("a")}
    assert links == {f"{m['true']}-{m['predicted']}" for m in recorded if m["true"] != m["predicted"]}
    ids = {each.attributes.get("id") for each in root.walk()}
    assert all(each.attributes["href"].removeprefix("#") in ids for each in root.find("a"))
    tiles = root.find("ul", class_="tiles")[0].find("li")
    assert [tile.find("small")[0].text for tile in tiles] == [f"test image {m['example']}" for m in recorded]
    boxes = [tuple(map(int, tile.find("svg")[0].attributes["viewbox"].split())) for tile in tiles]
    assert boxes == [(x + 1, y + 1, width - 2, height - 2) for x, y, width, height in (m["box"] for m in recorded)]


def test_a_run_that_is_not_finished_has_a_page(place: Place) -> None:
    (place.run / "manifest.json").unlink()
    root = read(place)
    assert root.find("p", class_="kind")[0].text == "Training run, not finished"
    assert "its newest checkpoint is of step 44" in root.find("p", class_="lead")[0].text
    assert root.find("figure", id="loss")
    (place.run / "metrics.csv").unlink()
    (place.run / "metrics.jsonl").write_text('{"kind": "step", "step": 1\n[1]\n{"kind": "step", "loss": "NaN"}\n')
    assert "No epoch is recorded yet." in read(place).find("section", id="curves")[0].text


def test_damaged_parts_are_left_out(place: Place) -> None:
    (place.run / "confusion.csv").write_text("true,a\na,many\n")
    (place.run / "mistakes.png").write_bytes(b"no picture")
    (place.run / "samples.png").unlink()
    root = read(place)
    assert not root.find("section", id="confusions")
    text = root.find("section", id="images")[0].text
    assert "mistakes.png is no PNG file." in text
    assert "samples.png is not here." in text


@pytest.mark.parametrize(
    "entry",
    [
        {"example": 1, "true": 99, "predicted": 0, "probability": 0.5, "box": [0, 0, 9, 9]},
        {"example": 1, "true": 0, "predicted": -1, "probability": 0.5, "box": [0, 0, 9, 9]},
        {"example": 1, "true": 0, "predicted": 1, "probability": 0.5, "box": [-1, 0, 9, 9]},
        {"example": 1, "true": 0, "predicted": 1, "probability": 0.5, "box": [0, 0, 9, 99_999]},
        {"example": 1, "true": 0, "predicted": 1, "probability": "0.5", "box": [0, 0, 9, 9]},
        "<script>",
    ],
)
def test_an_image_that_is_not_in_the_sheet_is_left_out(place: Place, entry: object) -> None:
    place.change(mistakes=[entry])
    assert not read(place).find("ul", class_="tiles")
