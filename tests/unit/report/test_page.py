import re
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.unit.report.conftest import Place
from tests.unit.report.reading import Element, parse
from toolkit.report import page
from tools import site

STYLE = page.BASE.read_text() + (page.FOLDER / "page.css").read_text()


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


def test_a_page_has_no_barrier(place: Place, chromium: Browser, axe: str) -> None:
    assert chromium.find_barriers(place.write(), axe) == []


def test_a_barrier_is_found(tmp_path: Path, chromium: Browser, axe: str) -> None:
    page = tmp_path / "page.html"
    page.write_text("<html lang=en><title>x</title><main><h1>x</h1><img src=x.png></main></html>")
    assert any(found.startswith("image-alt") for found in chromium.find_barriers(page, axe))


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


def read_colors(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", STYLE, re.DOTALL)[:2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", light))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", dark)) if scheme == "dark" else {})


def measure(color: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.2)."""
    digits = color[1:] if len(color) == 7 else "".join(2 * each for each in color[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def compare(one: str, two: str) -> float:
    low, high = sorted(map(measure, (one, two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_curves_stand_out(scheme: str) -> None:
    colors = read_colors(scheme)
    for name in ("ink", "soft", "accent", "fail"):
        for ground in ("paper", "raised"):
            assert compare(colors[name], colors[ground]) >= 4.5, (name, ground)
    assert compare(colors["on"], colors["accent"]) >= 4.5
    for number in range(10):
        assert compare(colors[f"c{number}"], colors["paper"]) >= 3, number


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 1440, 3840])
def test_nothing_is_wider_than_the_window(place: Place, chromium: Browser, width: int, dark: bool) -> None:
    chromium.open(place.write(beside=[place.evaluated]), width, dark=dark)
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


def test_a_stretch_is_chosen_by_the_mouse(place: Place, chromium: Browser) -> None:
    chromium.open(place.write())
    chromium.run("document.querySelector('#loss').scrollIntoView()")
    box = chromium.run("(() => {const b = document.querySelector('#loss .frame').getBoundingClientRect();"
                       " return [b.left, b.top, b.width, b.height]})()")  # fmt: skip
    left, top, width, height = box
    before = chromium.run("document.querySelector('#loss .tx').textContent")
    chromium.drag((left + width / 2, top + height / 2), (left + width * 0.9, top + height / 2))
    assert chromium.run("document.querySelector('#loss [data-do=reset]').disabled") is False
    assert chromium.run("document.querySelector('#loss .tx').textContent") != before
    chromium.run("document.querySelector('#loss [data-do=reset]').click()")
    assert chromium.run("document.querySelector('#loss .tx').textContent") == before


def test_the_script_draws_what_the_page_has(place: Place, chromium: Browser) -> None:
    """Without a change of scale or range, ticks and paths are those that `chart.py` has computed."""
    path = place.write()
    root = parse(path.read_text(encoding="utf-8"))
    chromium.open(path)
    for id_ in ("loss", "error", "speed", "reliability"):
        chromium.run(f"document.querySelector('#{id_} [data-do=in]').click()")
        chromium.run(f"document.querySelector('#{id_} [data-do=reset]').click()")
        (figure,) = root.find("figure", id=id_)
        for kind in ("tx", "ty"):
            drawn = chromium.run(f"[...document.querySelectorAll('#{id_} .{kind}')].map((e) => e.textContent)")
            assert drawn == [each.text for each in figure.find("text", class_=kind)], (id_, kind)
        lines = chromium.run(f"[...document.querySelectorAll('#{id_} .line')].map((e) => e.getAttribute('d'))")
        for drawn, here in zip(lines, figure.find("path", class_="line"), strict=True):
            numbers = [[float(n) for n in re.findall(r"-?[\d.]+", text)] for text in (drawn, here.attributes["d"])]
            assert numbers[0] == pytest.approx(numbers[1], abs=0.3), id_


def test_a_cell_shows_the_images_behind_it(place: Place, chromium: Browser) -> None:
    chromium.open(place.write())
    cell = chromium.run("document.querySelector('a[data-cell]').dataset.cell")
    chromium.run("document.querySelector('a[data-cell]').click()")
    shown = "[...document.querySelectorAll('.tiles li')].filter((e) => !e.hidden)"
    assert chromium.run(f"{shown}.every((e) => e.dataset.cell === '{cell}') && {shown}.length > 0") is True
    assert "images behind this cell" in chromium.run("document.querySelector('[data-said]').textContent")
    chromium.run("document.querySelector('[data-all]').click()")
    assert chromium.run(f"{shown}.length") == 40


def test_a_name_in_the_legend_hides_its_curve(place: Place, chromium: Browser) -> None:
    chromium.open(place.write())
    names = "[...document.querySelectorAll('#loss .legend button')]"
    lines = "[...document.querySelectorAll('#loss .line')].map((e) => e.getAttribute('d') !== '')"
    assert chromium.run(f"{names}.map((e) => e.textContent)") == [
        "training, single steps",
        "training, by epoch",
        "test",
    ]
    chromium.run(f"{names}[0].click()")
    assert chromium.run(lines) == [False, True, True]
    assert chromium.run(f"{names}[0].getAttribute('aria-pressed')") == "false"
    chromium.run(f"{names}[1].click(); {names}[2].click()")
    assert chromium.run(lines) == [False, False, True], "one curve stays"
    chromium.run(f"{names}[0].click()")
    assert chromium.run(lines) == [True, False, True]
    assert chromium.complaints == []
