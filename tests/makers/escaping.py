import json
import re

from tests.unit.report.reading import Element, parse
from toolkit.report import page

OWN = {
    "html", "head", "meta", "title", "style", "body", "a", "svg", "symbol", "circle", "path", "header", "p", "h1", "dl",
    "div", "dt", "dd", "small", "nav", "ol", "li", "span", "ul", "main", "section", "h2", "h3", "figure", "figcaption",
    "button", "g", "line", "text", "rect", "script", "details", "summary", "table", "caption", "thead", "tr", "th",
    "tbody", "td", "strong", "code", "pre", "footer", "img", "image", "use", "b", "em", "document",
}  # fmt: skip


def require_harmless(text: str) -> Element:
    """Check that a page has no element, script or attribute that is not of its template."""
    root = parse(text)
    assert {each.tag for each in root.walk()} <= OWN
    scripts = root.find("script")
    data = [each for each in scripts if each.attributes.get("type") == "application/json"]
    assert [each.text for each in scripts if each not in data] == [(page.FOLDER / "page.js").read_text()]
    for each in data:
        json.loads(each.text)
    for each in root.walk():
        assert not [name for name in each.attributes if name.startswith("on") or name in {"style", "srcset", "action"}]
        for name in ("href", "src"):
            assert re.match(r"#|data:image/png;base64,[\w+/=]*$|$", each.attributes.get(name, ""))
    assert len(root.find("style")) == 1
    assert [each.attributes.get("http-equiv") for each in root.find("meta")].count("Content-Security-Policy") == 1
    return root
