import json
import random
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.makers.escaping import require_harmless
from tests.tiers import weekly
from tests.unit.records import maker
from tests.unit.report.conftest import Place
from tests.unit.report.reading import Element, parse
from toolkit import report
from toolkit.base.errors import IntegrityError, ToolkitError, UsageError
from toolkit.report import page, run
from toolkit.report.chain import PageContext
from toolkit.report.page_model import Chart
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


def test_what_differs_from_the_defaults_is_apart(place: Place) -> None:
    (section,) = read(place).find("section", id="configuration")
    changed, kept = section.find("table")
    options = [row.find("th")[0].text for row in changed.find("tr")[1:]]
    assert {"epochs", "layers", "seed", "kernels"} <= set(options)
    assert "optimizer" not in options
    assert "optimizer" in [row.find("th")[0].text for row in kept.find("tr")[1:]]


def test_what_was_evaluated_and_explained_is_on_the_page(place: Place) -> None:
    root = read(place, beside=[place.evaluated, place.explained])
    titles = [each.text for each in root.find("h2")]
    assert "Evaluation on digits" in titles
    assert "What the network looked at" in titles
    (explained,) = root.find("section", id="explained-2")
    assert [each.attributes["src"][:22] for each in explained.find("img")] == ["data:image/png;base64,"]
    with pytest.raises(IntegrityError, match="has nothing to show"):
        place.describe(beside=[place.root])
    (place.evaluated / "evaluation.json").write_text("[]")
    with pytest.raises(IntegrityError, match=r"is no result of .toolkit evaluate."):
        place.describe(beside=[place.evaluated])


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


def test_pictures_that_do_not_fit_are_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (place.run / "mistakes.png").stat().st_size
    monkeypatch.setattr(run, "ROOM", size * 3 // 2)
    monkeypatch.setattr(run.Budget.__init__, "__defaults__", (size * 3 // 2,))
    assert "samples.png is left out" in read(place).find("section", id="images")[0].text
    assert not read(place, pictures=False).find("section", id="images")


def test_a_page_that_is_too_large_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST", 1000)
    with pytest.raises(UsageError, match="more than 1,000"):
        place.write()


def test_only_runs_are_compared_and_only_one_run_has_other_folders(place: Place) -> None:
    environment = next(place.state.glob("environment-*"))
    with pytest.raises(UsageError, match="only runs are shown side by side"):
        place.describe(place.run, environment)
    with pytest.raises(UsageError, match="--with is for the page of one run"):
        place.describe(environment, beside=[place.evaluated])


def test_a_page_has_the_name_of_its_thing(place: Place) -> None:
    assert report.name_page([str(place.run / "manifest.json")]) == place.run.name
    assert report.name_page(["dist/a", "dist/b"]) == "comparison"
    assert report.name_page(["registry/train:1"]) == "train-1"


def test_runs_of_your_own_images_are_compared_with_the_usual_options(place: Place) -> None:
    names = {"dataset": "/gone/photos", "data_sha256": "0" * 64, "class_names": ["a", "b"], "image_shape": [8, 8, 1]}
    maker.change_json(place.run / "manifest.json", lambda value: value["config"].update(names))
    shutil.copy(place.run / "manifest.json", place.run / "config.yaml")
    assert "learning rate" in read(place).find("section", id="configuration")[0].text


def test_curves_and_the_words_and_numbers_beside_them_are_those_of_the_epochs(place: Place) -> None:
    folder = RunFolder(place.run)
    loss, error = (each for each in run.draw_curves(folder) if isinstance(each, Chart))
    first, last = folder.epochs
    curves = [list(each.ys) for each in (*loss.series[1:], *error.series)]
    assert curves[:2] == [[first.train_loss, last.train_loss], [first.test_loss, last.test_loss]]
    assert curves[2:] == [[1 - e.train_accuracy for e in (first, last)], [1 - e.test_accuracy for e in (first, last)]]
    assert f"went from {first.test_loss:.4g} after epoch 1 to {last.test_loss:.4g} after epoch 2" in loss.text
    assert error.values
    assert tuple(error.values.rows[-1][3:7]) == (
        f"{last.train_loss:.4f}",
        f"{last.train_accuracy:.2%}",
        f"{last.test_loss:.4f}",
        f"{last.test_accuracy:.2%}",
    )


VALUES = [None, True, -1, 1e308, "<script>", [], {}, [[]], {"a": 1}]


def list_places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each part of a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, each in items:
        yield from list_places(each, (*path, key))


@pytest.mark.parametrize("count", [30, weekly(400)])
def test_a_damaged_record_gives_a_page_or_a_message(place: Place, count: int) -> None:
    path = place.run / "manifest.json"
    whole = path.read_text()
    places = list(list_places(json.loads(whole)))
    assert len(places) > 150
    chooser = random.Random(7)  # noqa: S311 - the same in each run
    seen = set()
    for _ in range(count):
        value = part = json.loads(whole)
        *outer, last = chooser.choice(places)
        for key in outer:
            part = part[key]
        part[last] = chooser.choice(VALUES)
        path.write_text(json.dumps(value))
        try:
            trust = PageContext(state=place.state, compared="run")
            require_harmless(report.compose([str(place.run)], trust, pictures=False)[1])
            seen.add("page")
        except ToolkitError:
            seen.add("message")
    assert "page" in seen


def test_a_record_that_lacks_its_numbers_is_named(place: Place) -> None:
    place.change(result={"epochs": 2, "steps": 44})
    with pytest.raises(IntegrityError, match=r"a record of .* is damaged"):
        place.write()


def test_what_is_no_number_is_left_out_of_curves(place: Place) -> None:
    path = place.run / "metrics.csv"
    head, first, second = path.read_text().splitlines()
    cells = second.split(",")
    path.write_text("\n".join([head, first, ",".join([*cells[:5], "nan", *cells[6:]])]) + "\n")
    with (place.run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "step": 99, "loss": Infinity}\n')
    run = RunFolder(place.run)
    assert [each.epoch for each in run.epochs] == [1]
    assert [each["step"] for each in run.steps][-1] == 40
    require_harmless(place.write().read_text(encoding="utf-8"))
