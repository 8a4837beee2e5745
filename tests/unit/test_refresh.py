"""What .ci/refresh writes into the tables, by sources that stand in for the package index and for repositories."""

import importlib.machinery
import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from toolkit.versions.table import build_table, load_table, read_yaml

ROOT = Path(__file__).parents[2]
_LOADER = importlib.machinery.SourceFileLoader("refresh", str(ROOT / ".ci" / "refresh"))
refresh: Any = importlib.util.module_from_spec(importlib.util.spec_from_loader("refresh", _LOADER))  # type: ignore[arg-type]
_LOADER.exec_module(refresh)
TEXT = refresh.TABLE.read_text()


@pytest.fixture
def table() -> Any:
    return refresh.make_yaml().load(TEXT)


def dump(table: Any) -> str:
    out = io.StringIO()
    refresh.make_yaml().dump(table, out)
    return out.getvalue()


def answer(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
    """Answer for the package index: ``releases`` of tensorflow, ``requires`` and ``vulnerabilities`` of any of them."""
    info = {"requires_dist": answers.get("requires", [])}
    whole = {
        "releases": answers.get("releases", {}),
        "info": info,
        "vulnerabilities": answers.get("vulnerabilities", []),
    }
    monkeypatch.setattr(refresh, "ask", lambda _: whole)
    monkeypatch.setattr(refresh, "notes", [])


def make_files(version: str, *pythons: str) -> list[dict[str, str]]:
    tags = [python.replace(".", "") for python in pythons]
    return [{"filename": f"tensorflow-{version}-cp{tag}-cp{tag}-manylinux_2_27_x86_64.whl"} for tag in tags]


def list_known(table: Any) -> dict[str, list[dict[str, str]]]:
    rows = {row.get("candidate", version): row["python"] for version, row in table["tensorflow"].items()}
    return {version: make_files(version, *pythons) for version, pythons in rows.items()}


@pytest.mark.parametrize("suffix", ["-cu12", ""])
def test_a_release_candidate_gets_a_row_that_is_refused(
    table: Any, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    later = f"2.{Version(max(table['tensorflow'], key=Version)).minor + 1}.0"
    new = {f"{later}rc1": make_files(f"{later}rc1", "3.13", "3.14"), "2.1.0": make_files("2.1.0", "3.8")}
    requires = ["keras-nightly>=3.14.0.dev", "nvidia-nccl-cu12==2.31.2", f"nvidia-cuda-nvcc{suffix}==12.9.41",
                "nvidia-cudnn-cu12==9.20.0.48"]  # fmt: skip
    answer(monkeypatch, releases={**list_known(table), **new}, requires=requires)
    assert refresh.read_wheels(table)
    found = build_table(read_yaml(dump(table)))
    row = found.incomplete[later]
    assert (row.candidate, row.python, row.nccl) == (f"{later}rc1", ("3.13", "3.14"), "2.31.2")
    assert (row.tested, row.sources, row.and_cuda) == (False, ("index",), {"cuda": "12.9", "cudnn": "9.20.0"})
    assert any("keras-nightly" in reason for reason in row.missing)
    assert found.tensorflow_rows.keys() == load_table().tensorflow_rows.keys()


def test_an_advisory_is_added_with_the_version_that_corrects_it(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    item = {"id": "PYSEC-1", "aliases": ["CVE-2030-1"], "fixed_in": ["2.99.0"], "summary": "something\nbad"}
    answer(monkeypatch, vulnerabilities=[item])
    assert refresh.read_advisories(table)
    assert not refresh.read_advisories(table)
    table["sources"]["index-advisories"] = {"what": "x", "date": refresh.TODAY}
    found = build_table(read_yaml(dump(table))).advisories["CVE-2030-1"]
    assert (found.fixed, found.what, found.sources) == ("2.99.0", "something bad", ("index-advisories",))
    assert set(found.affected) == set(table["tensorflow"])
