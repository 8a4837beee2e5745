import base64
import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.makers.compiler import Compiler
from tests.unit.smoke.published import PUBLISHED
from toolkit.checks.libraries import find_wheels


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.build: dict[str, Any] = dict(PUBLISHED)
        self.module = SimpleNamespace(
            __name__="tensorflow",
            __file__=str(self.write("tensorflow/__init__.py", '__version__ = "2.19.0"\n')),
            __version__="2.19.0",
            sysconfig=SimpleNamespace(get_build_info=lambda: self.build),
            test=SimpleNamespace(is_built_with_cuda=lambda: self.build["is_cuda_build"]),
        )

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def install(
        self,
        name: str = "tensorflow",
        version: str = "2.19.0",
        tag: str = "py3-none-any",
        requires: tuple[str, ...] = (),
    ) -> Path:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        self.write(f"{info}/METADATA", "\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires), ""]))
        self.write(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        content = (self.root / "tensorflow/__init__.py").read_bytes()
        promise = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record = f"tensorflow/__init__.py,sha256={promise},{len(content)}\n{info}/RECORD,,\n"
        return self.write(f"{info}/RECORD", record).parent


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path / "site-packages")
    monkeypatch.syspath_prepend(str(made.root))
    monkeypatch.setitem(sys.modules, "tensorflow", made.module)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return made


def fill(site: Site, content: bytes) -> Site:
    """Put a library into the place of each one that NVIDIA's wheels have for the CUDA of the build."""
    for wheel in find_wheels(site.build).values():
        for soname in wheel.libraries:
            site.write(f"nvidia/{wheel.folder}/lib/{soname}", content)
    return site


@pytest.fixture
def cuda_site(site: Site, gcc: Compiler) -> Site:
    return fill(site, gcc.answering())


@pytest.fixture
def cuda_13_site(site: Site, gcc: Compiler) -> Site:
    site.build |= {"cuda_version": "13.1.0"}
    return fill(site, gcc.answering(cuda=13010, cudnn=91200))
