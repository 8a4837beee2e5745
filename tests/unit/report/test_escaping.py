import csv
import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.browser import Browser
from tests.makers.escaping import require_harmless
from tests.unit.records import maker
from tests.unit.report.conftest import Place
from tests.unit.report.reading import parse
from toolkit.base.findings import check
from toolkit.report import page
from toolkit.report.page_model import (
    Cell,
    Chain,
    Chart,
    Document,
    Link,
    Matrix,
    Number,
    Page,
    Section,
    Series,
    Table,
    Text,
)

PAYLOADS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus=alert(1) '",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<body onload=alert(1)>",
    "<!--><script>alert(1)</script>-->",
    "<!-- <script> --><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "<meta http-equiv=refresh content='0;url=https://example.org'>",
    "<link rel=stylesheet href=https://example.org/a.css>",
    "<base href=https://example.org/>",
    "<style>@import 'https://example.org/a.css'</style>",
    "{{ 7 * 7 }}{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u2028alert(1)\u2029",
    "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "<details open ontoggle=alert(1)>",
    "<form action=https://example.org><input type=submit></form>",
    "<math><mi//xlink:href='data:x,<script>alert(1)</script>'>",
    "\ud800<script>alert(1)</script>",
    "\x1b]0;title\x07\x1b[2J<script>alert(1)</script>",
]


def make(text: str) -> Page:
    """Return a page that has a text in every place that a record can fill."""
    table = Table(
        caption=text, columns=[text, text], rows=[[text, Cell(text=text, note=text, tone="fail")]], folded=text
    )
    chart = Chart(
        id="chart", title=text, x=text, y=text, text=text, unit=text, values=table,
        series=[Series(name=text, xs=[1, 2], ys=[1, 2], color=0), Series(name=text, xs=[1], ys=[3], color=1)],
    )  # fmt: skip
    link = Link(
        name=text, title=text, state="fail", digest=text, meaning=text, findings=[check(text, False, text)],
        signature=text, documents=[Document(name=text, text=text)],
    )  # fmt: skip
    chain = Chain(links=[link], trusted=True)
    matrix = Matrix(caption=text, names=[text, text], counts=[[1, 2], [3, 4]], links={(0, 1): "chart"})
    parts = [table, chart, Text(text=text), matrix, chain]
    section = Section(id="all", title=text, lead=text, parts=parts)
    numbers = [Number(label=text, text=text, note=text)]
    return Page(kind=text, title=text, lead=text, numbers=numbers, sections=[section], chain=chain, commands=[text])


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_becomes_markup(payload: str) -> None:
    root = require_harmless(page.render(make(payload)))
    if not re.search("[\\x00-\\x1f\\ud800\u2028]", payload):
        assert root.find("h1")[0].text == payload
        assert root.find("pre")[0].text.strip("\n") == payload


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.text(max_size=60) | st.lists(st.sampled_from([*PAYLOADS, *"<>&\"'`=/"]), max_size=6).map("".join))
def test_any_text_is_only_text(text: str) -> None:
    require_harmless(page.render(make(text)))


@example("</script>&")
@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_embedded_json_has_no_markup_and_is_the_same_value(value: object) -> None:
    text = page.embed(value)
    assert not set(text) & set("<>&")
    assert json.loads(text) == value


def name_classes(place: Place, names: list[str]) -> None:
    """Give the classes of a run, its files and its records other names."""
    path = place.run / "confusion.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["true", *names])
        table.writerows([name, *row[1:]] for name, row in zip(names, rows[1:], strict=True))
    data = {"source": names[0], "sha256": names[1], "notes": names[2:5], "warnings": names[5:], "examples": {}}
    software = {names[0]: names[1], "python": names[2]}
    place.change(data=data, software=software)
    maker.change_json(place.run / "manifest.json", lambda value: value["environment"].update(class_names=names))
    maker.change_json(place.run / "manifest.json", lambda value: value["parent"].update(reference=names[3]))


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_hostile_names_of_classes_and_files_run_no_script(place: Place, first: int, chromium: Browser) -> None:
    names = [each.encode("utf-8", "replace").decode() for each in PAYLOADS[first : first + 10]]
    name_classes(place, names)
    run = place.run.rename(place.run.with_name("digits-<img src=x onerror=alert(1)>"))
    path = place.write(run)
    require_harmless(path.read_text(encoding="utf-8"))
    chromium.open(path)
    assert chromium.requests == [path.resolve().as_uri()]
    assert chromium.complaints == []
    assert (
        chromium.run("document.querySelectorAll('script').length")
        == 2 + len(parse(path.read_text(encoding="utf-8")).find("figure", class_="chart")) - 1
    )


def test_markup_in_a_page_could_not_run(place: Place, chromium: Browser) -> None:
    path = place.write()
    text = path.read_text(encoding="utf-8")
    hostile = (
        "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'><img src='https://example.org/a.png'>"
        "<link rel=stylesheet href='https://example.org/a.css'><p style='color: red' id=hostile>x</p>"
    )
    path.write_text(text.replace("<main", f"{hostile}<main"), encoding="utf-8")
    chromium.open(path)
    assert chromium.run("window.ran") is None
    assert chromium.run("getComputedStyle(document.getElementById('hostile')).color") != "rgb(255, 0, 0)"
    assert any("Content Security Policy" in each for each in chromium.complaints)
