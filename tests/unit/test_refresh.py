"""What .ci/refresh writes into the tables, by sources that stand in for the package index and for repositories."""

import importlib.machinery
import importlib.util
import io
import json
import subprocess
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


def test_the_table_has_the_layout_in_which_it_is_written(table: Any) -> None:
    assert dump(table) == TEXT


def test_sources_that_say_what_the_table_says_change_nothing(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, releases=list_known(table))
    assert not refresh.read_wheels(table)
    assert dump(table) == TEXT


def test_a_release_candidate_gets_a_row_that_is_refused(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    later = f"2.{Version(max(table['tensorflow'], key=Version)).minor + 1}.0"
    new = {f"{later}rc1": make_files(f"{later}rc1", "3.13", "3.14"), "2.1.0": make_files("2.1.0", "3.8")}
    requires = ["keras-nightly>=3.14.0.dev", "nvidia-nccl-cu12==2.31.2", "nvidia-cuda-nvcc-cu12==12.9.41",
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


def test_a_source_that_does_not_answer_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "notes", [])
    with refresh.reading("a source"):
        refresh.run("false")
    with refresh.reading("another"):
        pass
    assert [note.partition(":")[0] for note in refresh.notes] == ["could not be read", "read"]


def test_the_tables_of_a_tag_are_read(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = max(
        table["tensorflow"], key=lambda known: (not table["tensorflow"][known].get("missing"), Version(known))
    )
    row = table["tensorflow"][version]
    redist = {name: table[name][row[name][-1]]["redist"] for name in ("cuda", "cudnn")}
    tables = "".join(
        f'{name.upper()}_REDIST_JSON_DICT = {{\n    "{row[name][-1]}": ("https://x", "{redist[name]}"),\n}}\n'
        for name in ("cuda", "cudnn")
    ).replace("\n}\nCUDNN", f'\n    "99.0.0": ("https://x", "{"b" * 64}"),\n}}\nCUDNN')
    files = {
        ".bazelversion": row["bazel"],
        "WORKSPACE": 'load("@rules//gpus:cuda_json_init_repository.bzl", "x")\n',
        "tensorflow/workspace3.bzl": 'tf_vendored(name = "rules", relpath = "third_party/rules")\n',
        "tensorflow/workspace0.bzl": "",
        "third_party/rules/gpus/cuda_redist_versions.bzl": tables,
    }
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"], ["tag", f"v{version}"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(refresh, "REPOSITORY", tmp_path.as_uri())
    monkeypatch.setattr(refresh, "notes", [])
    row.pop("commit", None)
    assert refresh.read_tags(table)
    assert (row["cuda"], row["cudnn"]) == ([row["cuda"][-1]], [row["cudnn"][-1]])
    assert len(row["commit"]) == 40
    assert row["sources"][-1] == "tags"
    assert f"note: {version}: CUDA 99.0.0, redist {'b' * 64}, has no row in the table" in refresh.notes


IDS = """\
10de  NVIDIA Corporation
\t1111  TU104BM [GeForce RTX 2099 Mobile / Max-Q]
\t\t1028 0001  Some board
\t2222  AD102GL [L99]
\t3333  AD102 High Definition Audio Controller
10df  Another
\t1111  AD102 [Another]
"""
DRIVER = """\
    { 0x1111, 0x0000, 0x0000, "NVIDIA GeForce RTX 2099 with Max-Q Design" },
    { 0x2222, 0x0001, 0x10de, "NVIDIA L99" },
    { 0x2222, 0x0002, 0x10DE, "NVIDIA L99-48Q" },
    { 0x2222, 0x0003, 0x10DE, "NVIDIA L99-1-12CME" },
    { 0x2222, 0x0004, 0x10DE, "NVIDIA GeForce RTX 2060" },
"""


def test_a_device_gets_the_names_of_all_lists() -> None:
    legacy = json.dumps({"chips": [{"devid": "0x1111", "name": "GeForce RTX 2099"}]})
    names = "GeForce RTX 2099 Mobile / Max-Q|NVIDIA GeForce RTX 2099 with Max-Q Design|GeForce RTX 2099"
    rows = refresh.list_devices(ids=IDS, driver=DRIVER, legacy=legacy)
    assert rows == [f"1111\tTU104B\t{names}", "2222\tAD102\tL99|NVIDIA L99\tNVIDIA L99"]


def test_the_digest_of_a_base_image_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = f"sha256:{'c' * 64}"
    (tmp_path / "bases.txt").write_text("# bases\npython:3.11-slim-trixie -\n")
    monkeypatch.setattr(refresh, "BASES", tmp_path / "bases.txt")
    monkeypatch.setattr(refresh, "notes", [])
    monkeypatch.setattr(refresh, "run", lambda *_: f"{found}\n")
    refresh.read_bases()
    assert (tmp_path / "bases.txt").read_text() == f"# bases\npython:3.11-slim-trixie {found}\n"
