import re
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.unit.report.conftest import Place
from tests.unit.report.reading import Element, parse
from toolkit.report import page
from tools import site


@pytest.fixture
def root(place: Place) -> Element:
    return parse(place.write().read_text(encoding="utf-8"))


def test_the_policy_allows_the_own_style_and_script_alone(root: Element) -> None:
    (policy,) = [each.attributes["content"] for each in root.find("meta") if "http-equiv" in each.attributes]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'{page.digest(root.find('style')[0].text)}'",
        "script-src": f"'{page.digest(root.find('script')[-1].text)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_a_page_asks_nobody_for_anything(place: Place, tmp_path: Path, chromium: Browser) -> None:
    path = place.write()
    folder = tmp_path / "one"
    folder.mkdir()
    alone = path.rename(folder / "page.html")
    assert list(site.find_foreign(folder)) == []
    chromium.open(alone)
    assert chromium.requests == [alone.as_uri()]
    assert chromium.complaints == []


def test_a_page_names_no_folder_of_this_machine(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    home = place.root.parents[1]
    monkeypatch.setenv("HOME", str(home))
    place.change(data={"source": f"{home}/photos", "sha256": "0"})
    text = place.write().read_text(encoding="utf-8")
    assert str(home) not in text
    assert "~/photos" in text


def test_a_page_has_no_barrier(place: Place, chromium: Browser, axe: str) -> None:
    assert chromium.find_barriers(place.write(), axe) == []


def test_a_barrier_is_found(tmp_path: Path, chromium: Browser, axe: str) -> None:
    page = tmp_path / "page.html"
    wide = "<div tabindex=0 style='overflow: auto'><pre>" + 200 * "x" + "</pre></div>"
    page.write_text(f"<html lang=en><title>x</title><main><h1>x</h1><img src=x.png>{wide}</main></html>")
    picture, *_, paper = chromium.find_barriers(page, axe)
    assert picture.startswith("image-alt")
    assert paper.startswith("paper cuts <div")


def test_what_is_seen_has_a_name_for_those_who_do_not_see(root: Element) -> None:
    assert root.find("html")[0].attributes["lang"] == "en"
    assert len(root.find("main")) == len(root.find("h1")) == 1
    ids = [each.attributes["id"] for each in root.walk() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    for table in root.find("table"):
        assert table.find("caption")[0].text
        assert all(each.attributes.get("scope") for each in table.find("th"))
    for each in root.walk():
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(each.attributes.get(name, "").split()) <= set(ids)
        if each.attributes.get("role") in {"img", "region"} or each.tag == "nav":
            assert each.attributes["aria-label"]
        if each.tag == "svg" and each.attributes.get("role") != "img" and each.attributes.get("class") != "plot":
            assert "aria-hidden" in each.attributes or each.attributes["class"] == "frame"
    assert all(each.attributes["alt"] for each in root.find("img"))
    for chart in root.find("figure", class_="chart"):
        assert len(chart.find("p", class_="says")[0].text) > 30


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 1440, 3840])
def test_nothing_is_wider_than_the_window(place: Place, chromium: Browser, width: int, dark: bool) -> None:
    chromium.open(place.write(), width, dark=dark)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    assert chromium.run("document.querySelector('main').getBoundingClientRect().width") >= 0.7 * min(width, 1100)
    paper = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(19, 22, 24)") == dark
    assert chromium.complaints == []


def test_a_chart_is_read_by_keyboard(place: Place, chromium: Browser) -> None:
    chromium.open(place.write())
    canvas = "document.querySelector('#error .canvas')"
    assert chromium.run(f"{canvas}.getAttribute('role')") == "slider"
    chromium.run(f"{canvas}.focus()")
    chromium.press("Home")
    first = chromium.run(f"{canvas}.getAttribute('aria-valuetext')")
    assert re.fullmatch(r"step 22: training [\d.]+ %, test [\d.]+ %", first)
    chromium.press("ArrowRight")
    assert chromium.run(f"{canvas}.getAttribute('aria-valuenow')") == "44"
    assert chromium.run("document.querySelector('#error .tip').hidden") is False
    assert "step 44" in chromium.run("document.querySelector('#error .tip').textContent")
    before = chromium.run("document.querySelector('#error .line').getAttribute('d')")
    chromium.press("l")
    assert chromium.run("document.querySelector('#error [data-do=log]').getAttribute('aria-pressed')") == "true"
    assert chromium.run("document.querySelector('#error .line').getAttribute('d')") != before
    chromium.press("l")
    assert chromium.run("document.querySelector('#error .line').getAttribute('d')") == before
    chromium.press("+")
    assert chromium.run("document.querySelector('#error [data-do=reset]').disabled") is False
    chromium.press("0")
    assert chromium.run("document.querySelector('#error .line').getAttribute('d')") == before
    chromium.press("Escape")
    assert chromium.run("document.querySelector('#error .tip').hidden") is True
    assert chromium.complaints == []


def test_a_cell_shows_the_images_behind_it(place: Place, chromium: Browser) -> None:
    chromium.open(place.write())
    cell = chromium.run("document.querySelector('a[data-cell]').dataset.cell")
    chromium.run("document.querySelector('a[data-cell]').click()")
    shown = "[...document.querySelectorAll('.tiles li')].filter((e) => !e.hidden)"
    assert chromium.run(f"{shown}.every((e) => e.dataset.cell === '{cell}') && {shown}.length > 0") is True
    assert "images behind this cell" in chromium.run("document.querySelector('[data-said]').textContent")
    chromium.run("document.querySelector('[data-all]').click()")
    assert chromium.run(f"{shown}.length") == 40
