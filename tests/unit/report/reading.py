"""Reads pages as a parser of HTML sees them: elements with their attributes and the text in them."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "link", "br", "hr", "input"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    def walk(self) -> "list[Element]":
        below = [one for each in self.children if isinstance(each, Element) for one in each.walk()]
        return [self, *below]

    def find(self, tag: str, **attributes: str) -> "list[Element]":
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            each for each in self.walk() if each.tag == tag and wanted.items() <= each.attributes.items()
        ]  # fmt: skip


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("document")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(text: str) -> Element:
    """Return the root of a page. Every element must be closed where it was opened."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert [each.tag for each in reader.open] == ["document"]
    return reader.open[0]
