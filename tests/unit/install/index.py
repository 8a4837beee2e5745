"""A folder of tiny wheels that stands in for a package index, and a locked set of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.unit.wheel.maker import make_wheel
from toolkit import digest
from toolkit.install.pip import Pip, find
from toolkit.interpreters import Interpreter

ANY = "py3-none-any"


class Index:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.locked = ""
        folder.mkdir()

    def add(
        self,
        name: str,
        version: str,
        *requires: str,
        files: Mapping[str, str] | None = None,
        scripts: Sequence[str] = (),
        lock: bool = True,
    ) -> Path:
        """Make a wheel of a package with one module, and add it to the locked set."""
        module = name.replace("-", "_")
        content = {f"{module}/__init__.py": f"version = {version!r}\n", **(files or {})}
        if scripts:
            lines = "".join(f"{script} = {module}:main\n" for script in scripts)
            content[f"{module}/__init__.py"] += "def main():\n    print(version)\n"
            content[f"{module}-{version}.dist-info/entry_points.txt"] = f"[console_scripts]\n{lines}"
        wheel = make_wheel(
            self.folder,
            name=name,
            version=version,
            tag=ANY,
            files=content,
            requires=[f"Requires-Dist: {text}" for text in requires],
        )
        if lock:
            self.locked += f"{name}=={version} \\\n    --hash={digest.digest_file(wheel)}\n"
        return wheel

    def make_pip(self, python: Interpreter) -> Pip:
        return find(python.path, packages=self.folder)
