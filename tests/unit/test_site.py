import json
from pathlib import Path

import pytest

from tools import site


def test_a_notebook_becomes_a_page_to_which_links_lead(tmp_path: Path) -> None:
    cells = [("markdown", "# First\n\nSee [more](c.md) and [next](b.ipynb)."), ("code", "print(1)")]
    notebook = {"cells": [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]}
    source, pages = tmp_path / "source", tmp_path / "pages"
    source.mkdir()
    (source / "README.md").write_text("[First](a.ipynb)")
    for name in ("a.ipynb", "b.ipynb"):
        (source / name).write_text(json.dumps(notebook))
    (source / "c.md").write_text("# More")
    site.collect(source, pages)
    assert (pages / "README.md").read_text() == "[First](a.md)"
    assert (pages / "a.ipynb").read_text() == json.dumps(notebook)
    page = (pages / "a.md").read_text()
    assert page.startswith("# First\n\n[This page as a notebook](a.ipynb)\n")
    assert "See [more](c.md) and [next](b.md)." in page
    assert {path.name for path in pages.iterdir()} == {"README.md", "a.ipynb", "a.md", "b.ipynb", "b.md", "c.md"}
    assert "```python\nprint(1)\n```" in page


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script src="https://example.org/a.js"></script>'),
        ("a.html", '<link rel="stylesheet" href="//example.org/a.css">'),
        ("a.html", '<link rel="preconnect" href="https://example.org">'),
        ("a.html", '<img srcset="a.png, https://example.org/b.png 2x">'),
        ("a.html", "<style>@font-face {src: url(https://example.org/a.woff2)}</style>"),
        ("a.html", '<p style="background: url(https://example.org/a.png)"></p>'),
        ("a.css", "@import 'https://example.org/a.css';"),
        ("a.svg", '<svg><style>@import "//example.org/a.css"</style></svg>'),
    ],
)
def test_what_a_browser_would_ask_another_host_for_is_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (found,) = site.find_foreign(tmp_path)
    assert found.startswith(f"{name}: ")


def test_a_site_that_asks_another_host_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    assert site.main("check") == 0
    (tmp_path / "index.html").write_text('<script src="https://example.org/a.js"></script>')
    assert site.main("check") == 7
    assert "error: the site loads something from another host: index.html: " in capsys.readouterr().err
