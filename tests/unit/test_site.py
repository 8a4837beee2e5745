import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import site
from tests.site import ROOT


class Build:
    """The sources of the real site in a folder, where a test changes one of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pages, self.html = folder, folder / ".site" / "pages", folder / ".site" / "html"
        shutil.copy(ROOT / "mkdocs.yml", folder)
        site.collect(ROOT, self.pages)

    def append(self, name: str, text: str) -> None:
        page = self.pages / name
        before = page.read_text() if page.exists() else ""
        page.write_text(f"{before}\n{text}\n")

    def run(self) -> subprocess.CompletedProcess[str]:
        # As `make docs` does: with --quiet, for example, MkDocs counts no warnings, and --strict does nothing.
        (options,) = re.findall(r"bin/mkdocs (build .*)", (ROOT / "Makefile").read_text())
        words = [sys.executable, "-m", "mkdocs", *options.split()]
        variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        return subprocess.run(words, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(tmp_path)


def test_the_site_has_every_page_and_picture_and_asks_no_other_host(build: Build) -> None:
    done = build.run()
    assert done.returncode == 0, done.stderr
    pages = [path.relative_to(build.pages) for path in build.pages.rglob("*") if path.suffix == ".md"]
    assert {Path("README.md"), Path("CONTRIBUTING.md"), Path("docs/train.md")} <= set(pages)
    for page in pages:
        place = page.parent if page.name == "README.md" else page.with_suffix("")
        assert (build.html / place / "index.html").is_file(), page
    assert (build.html / "docs/course/1-densenet.ipynb").is_file(), "a notebook, which its page links to"
    assert (build.html / "docs/report.png").read_bytes() == (ROOT / "docs/report.png").read_bytes()
    assert (build.html / "docker/flags.yaml").is_file(), "a file that is no page, and that a page links to"
    assert list(build.html.rglob(".*")) == [], "GitHub Pages leaves hidden files out"
    assert (build.html / "search/search_index.json").is_file()
    commands = (build.html / "docs/commands/index.html").read_text()
    assert "<code>--cpu-target avx|native|x86-64-v2|x86-64-v3|x86-64-v4</code>" in commands
    assert list(site.find_foreign(build.html)) == []


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
    ("name", "text", "said"),
    [
        ("README.md", "[gone](docs/gone.md)", "docs/gone.md"),
        ("docs/train.md", "[gone](use.md#gone)", "#gone"),
        ("docs/train.md", "![gone](gone.png)", "gone.png"),
        ("docs/alone.md", "# In no part of the navigation", "docs/alone.md"),
    ],
)
def test_what_is_dead_or_left_out_ends_the_build(build: Build, name: str, text: str, said: str) -> None:
    build.append(name, text)
    done = build.run()
    assert done.returncode == 1
    assert said in done.stderr


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


def test_what_a_reader_may_follow_is_not_loaded(tmp_path: Path) -> None:
    text = '<a href="https://example.org">a</a> <link rel="canonical" href="https://example.org"> <img src="a.png">'
    (tmp_path / "a.html").write_text(text)
    assert list(site.find_foreign(tmp_path)) == []


def test_a_site_that_asks_another_host_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    assert site.main("check") == 0
    (tmp_path / "index.html").write_text('<script src="https://example.org/a.js"></script>')
    assert site.main("check") == 7
    assert "error: the site loads something from another host: index.html: " in capsys.readouterr().err
