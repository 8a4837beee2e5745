"""Prepares and checks the documentation site: ``make docs`` runs ``collect``, MkDocs, then ``check``."""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from tools import notebooks

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / ".site" / "pages", ROOT / ".site" / "html"
STARTS = ("README.md", "CHANGELOG.md", "docs/site.css")
SOURCES = {".md", ".ipynb"}
"""What becomes a page."""

# In code in a table, code hosts want a backslash before a bar, and show it not; MkDocs wants none.
_ROW = re.compile(r"^\|.*`.*\|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_NOTEBOOK = re.compile(r"(\]\([^)#:\s]+)\.ipynb\)")
_LOADED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
_LOADS = {"href": {"link"}, "src": {"audio", "embed", "iframe", "img", "script", "source", "video"}, "data": {"object"}}
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


def collect(root: Path, folder: Path) -> None:
    """Fill a folder with the sources of the site, by the names that they have in the repository.

    A notebook is there as it is, and as a page, to which links to the notebook lead.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in list_sources(root):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, place)
        if name.suffix in SOURCES:
            place.with_suffix(".md").write_text(_make_page(root / name), encoding="utf-8")


def _make_page(path: Path) -> str:
    text = _NOTEBOOK.sub(r"\1.md)", _read(path))
    text = _ROW.sub(lambda row: row[0].replace(r"\|", "|"), text)
    if path.suffix == ".md":
        return text
    title, _, rest = text.partition("\n")
    return f"{title}\n\n[This page as a notebook]({path.name})\n{rest}"


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
        collect(ROOT, PAGES)
        return 0
    foreign = list(find_foreign(SITE))
    for line in foreign:
        print(f"error: the site loads something from another host: {line}", file=sys.stderr)
    return 7 if foreign else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
