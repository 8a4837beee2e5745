"""The generated parts of the README: ``python -m tests.readme`` writes them, and a test compares them."""

import re
from pathlib import Path

from toolkit import versions
from toolkit.errors import list_exit_codes
from toolkit.versions.matrix import list_cells, render, render_grid

README = Path(__file__).parent.parent / "README.md"


def generate(text: str) -> str:
    table = render(versions.load_table()).partition("\n\n")[0]
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in sorted(list_exit_codes().items()))
    codes += "\n| 128 + n | a job was ended by signal n; 137 most often means that memory ran out |"
    text = _replace(text, "matrix", f"```\n{table}\n```")
    cells = list(list_cells(versions.load_table()))
    text = _replace(text, "grid", f"```\n{render_grid(cells, refusals=False)}\n```")
    return _replace(text, "exit-codes", f"| code | meaning |\n|---|---|\n{codes}")


def _replace(text: str, name: str, content: str) -> str:
    pattern = rf"<!-- {name} -->\n.*?<!-- /{name} -->"
    return re.sub(pattern, lambda _: f"<!-- {name} -->\n{content}\n<!-- /{name} -->", text, flags=re.DOTALL)


if __name__ == "__main__":
    README.write_text(generate(README.read_text()))
