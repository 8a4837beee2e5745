"""A folder of tiny wheels that stands in for a package index, and a locked set of them. uv itself is real."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.unit.wheel.maker import make_wheel
from toolkit.base import digest
from toolkit.base.interpreters import Interpreter
from toolkit.engine.uv import Uv
from toolkit.install import resolution
from toolkit.install.changes import compare
from toolkit.install.installation import Installation
from toolkit.install.installed import Installed, list_installed
from toolkit.install.resolution import Package
from toolkit.install.target import Target

ANY = "py3-none-any"


class Index:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.locked = ""
        folder.mkdir()

    @property
    def uv(self) -> Uv:
        return Uv(packages=self.folder)

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

    def fill(self, target: Target, *packages: str) -> None:
        """Install packages into an environment, as its owner did before."""
        self.uv.run("pip", "install", "--python", target.python.path, "--no-deps", *packages)

    def resolve(
        self, python: Interpreter, installed: Mapping[str, Installed], *roots: str, wheel: Path | None = None
    ) -> tuple[Package, ...]:
        own = resolution.describe_wheel(wheel, digest.digest_file(wheel)) if wheel else None
        question = resolution.Question(
            python=python,
            roots=roots if wheel or roots else ("tensorflow==2.21.0",),
            locked=resolution.read_locked(self.locked, python),
            installed=installed,
            wheel=own,
        )
        return resolution.resolve(self.uv, question)

    def plan(self, target: Target, *roots: str, wheel: Path | None = None) -> Installation:
        there = {} if target.new else list_installed(target.python)
        packages = self.resolve(target.python, there, *roots, wheel=wheel)
        changes = compare(packages, there)
        return Installation(target=target, packages=packages, changes=changes, uv=self.uv)
