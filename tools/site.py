"""Prepares and checks the documentation site: ``make docs`` runs ``collect``, MkDocs, then ``check``."""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from tools import notebooks

ROOT = Path(__file__).parents[1]
PAGES, SHOWN, SITE = (ROOT / ".site" / name for name in ("pages", "course", "html"))
STARTS = ("README.md", "CHANGELOG.md", "docs/site.css")
SOURCES = {".md", ".ipynb"}
"""What becomes a page."""

# In code in a table, code hosts want a backslash before a bar, and show it not; MkDocs wants none.
_ROW = re.compile(r"^\|.*`.*\|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_NOTEBOOK = re.compile(r"(\]\([^)#:\s]+)\.ipynb\)")
_LOADED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
_LOADS = {"href": {"link"}, "src": {"audio", "embed", "iframe", "img", "script", "source", "video"}, "data": {"object"}}
_COLAB = """ · [Open in Colab](https://colab.research.google.com/github/{repository}/blob/main/docs/course/{name})

In Colab, run this first, in a cell of its own:

```python
%pip install --quiet git+https://github.com/{repository}
```
"""
_UNLOADED = {"canonical", "next", "prev", "alternate"}


def list_sources(root: Path, starts: Iterable[str] = STARTS) -> set[Path]:
    """Return the pages that links lead to from the first ones, and the files that these pages link to."""
    found: set[Path] = set()
    left = [root / name for name in starts]
    while left:
        path = left.pop()
        if path in found or not path.is_file():
            continue  # MkDocs reports a dead link, with the page that has it
        found.add(path)
        if path.suffix in SOURCES:
            left += [(path.parent / link).resolve() for link in _LINK.findall(_read(path))]
    return {path.relative_to(root) for path in found}


def _read(path: Path) -> str:
    """Return a page, or a notebook as one, as Markdown."""
    return notebooks.render(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")


def show_course(folder: Path) -> None:
    """Run the notebooks of the course into a folder, unless it has what these show by this very code.

    Raises:
        CellError: A cell failed. The folder is then not taken for whole.

    """
    code = Path(notebooks.__file__), ROOT / "docker/requirements/dev.txt", *sorted((ROOT / "train").rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*code, *notebooks.COURSE_NOTEBOOKS))).hexdigest()
    if (marker := folder / "digest").is_file() and marker.read_text() == digest:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in notebooks.COURSE_NOTEBOOKS:
        print(f"running {path.name}", flush=True)
        notebooks.show(path, folder)
    marker.write_text(digest)


def collect(root: Path, folder: Path, shown: Path, repository: str = "") -> None:
    """Fill a folder with the sources of the site, by the names that they have in the repository.

    A notebook is there as it is, and as a page, to which links to the notebook lead. The page of one that has run
    into the folder ``shown`` has what its cells show, and leads to Colab where the repository on GitHub is known.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in list_sources(root):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, place)
        if name.suffix == ".md":
            place.write_text(_finish(_read(root / name)), encoding="utf-8")
        elif name.suffix == ".ipynb":
            place.with_suffix(".md").write_text(_make_page(root / name, shown, repository), encoding="utf-8")
            for picture in shown.glob(f"{name.stem}-*.png"):
                shutil.copyfile(picture, place.parent / picture.name)


def _finish(text: str) -> str:
    text = _NOTEBOOK.sub(r"\1.md)", text)
    return _ROW.sub(lambda row: row[0].replace(r"\|", "|"), text)


def _make_page(path: Path, shown: Path, repository: str) -> str:
    links = f"[This page as a notebook]({path.name})"
    page = shown / path.with_suffix(".md").name
    if page.exists() and repository:
        links += _COLAB.format(repository=repository, name=path.name)
    title, _, rest = _finish(page.read_text(encoding="utf-8") if page.exists() else _read(path)).partition("\n")
    return f"{title}\n\n{links}\n{rest}"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        unloaded = tag == "link" and set(values.get("rel", "").split()) <= _UNLOADED
        self.loaded += [
            values[name] for name, tags in _LOADS.items() if name in values and tag in tags and not unloaded
        ]
        self.loaded += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
        self.loaded += _LOADED.findall(values.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.loaded += _LOADED.findall(data) if self.cdata_elem == "style" else []


def find_foreign(site: Path) -> Iterator[str]:
    """Yield the addresses of other hosts that a browser would ask when it shows a page of the site."""
    for path in sorted(site.rglob("*")):
        loaded: list[str] = []
        if path.suffix in {".html", ".svg"}:
            reader = _Reader()
            reader.feed(path.read_text(encoding="utf-8"))
            loaded = reader.loaded
        elif path.suffix == ".css":
            loaded = _LOADED.findall(path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(site)}: {name}" for name in loaded if re.match(r"(https?:)?//", name))


def main(action: str) -> int:
    """Prepare the sources, or check what was built. Returns the exit code."""
    if action == "collect":
        try:
            show_course(SHOWN)
        except notebooks.CellError as error:
            print(f"error: a cell of the course fails: {error}", file=sys.stderr)
            return 7
        collect(ROOT, PAGES, SHOWN, os.environ.get("GITHUB_REPOSITORY", ""))
        return 0
    foreign = list(find_foreign(SITE))
    for line in foreign:
        print(f"error: the site loads something from another host: {line}", file=sys.stderr)
    return 7 if foreign else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
