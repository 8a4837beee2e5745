import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.command import Run
from tests.unit.refresh.sources import ASK, TABLE, TEXT, TODAY, Index, apply, collect
from toolkit import inquiry, project, refresh
from toolkit.errors import UnsupportedError
from toolkit.versions import table


def test_sources_that_say_what_the_table_says_change_nothing(index: Index) -> None:
    report, changes = collect()
    assert not changes
    assert not report.notes
    assert len(report.looked) == 6
    assert len(report.unread) == 1
    assert "nowhere" in report.unread[0]


def test_a_release_candidate_gets_a_row_that_is_refused_with_what_it_lacks(index: Index, tmp_path: Path) -> None:
    index.wheels["tensorflow"]["2.23.0rc1"] = ["3.13", "3.14", "3.15"]
    index.wheels["tensorflow"]["2.23.0rc0"] = ["3.13"]
    index.require("2.23.0rc1", "keras-nightly>=3.14.0.dev", nccl="2.31.2", cuda="12.9", cudnn="9.20.0")
    found = apply(tmp_path, collect()[0])
    row = found.incomplete["2.23.0"]
    assert (row.candidate, row.python, row.nccl) == ("2.23.0rc1", ("3.13", "3.14", "3.15"), "2.31.2")
    assert (row.tested, row.sources, row.and_cuda) == (False, ("index",), {"cuda": "12.9", "cudnn": "9.20.0"})
    assert (found.updated, found.sources["index"].date) == ("2027-01-02", "2027-01-02")
    with pytest.raises(UnsupportedError) as caught:
        found.tensorflow("2.23.0")
    assert all(word in caught.value.why for word in ("2.23.0rc1", "keras-nightly", refresh.HANDWORK, "bazel"))


def test_a_new_release_gets_a_row_and_older_versions_get_none(index: Index, tmp_path: Path) -> None:
    index.wheels["tensorflow"] |= {"2.21.1": ["3.13"], "2.17.1": ["3.12"], "2.20.0rc0": ["3.13"]}
    index.require("2.21.1", nccl="2.27.7", cuda="12.5", cudnn="9.3.0")
    found = apply(tmp_path, collect()[0])
    assert {*found.incomplete} - {*TABLE.incomplete} == {"2.21.1"}
    assert not found.incomplete["2.21.1"].candidate
    assert found.tensorflow_rows.keys() == TABLE.tensorflow_rows.keys()


def test_a_candidate_that_is_released_is_still_refused_for_the_rest(index: Index, tmp_path: Path) -> None:
    (version,) = TABLE.incomplete
    row = TABLE.incomplete[version]
    index.wheels["tensorflow"][version] = [*row.python, "3.15"]
    index.require(version, nccl=row.nccl, **row.and_cuda)
    found = apply(tmp_path, collect()[0]).incomplete[version]
    assert (found.candidate, found.missing, found.python) == ("", row.missing, (*row.python, "3.15"))


def test_what_differs_is_changed(index: Index, tmp_path: Path) -> None:
    index.wheels["tensorflow"]["2.21.0"].append("3.14")
    index.require("2.20.0", nccl="2.26.5", cuda="12.5", cudnn="9.3.0")
    index.wheels["nvidia-nccl-cu12"]["2.26.5"] = ["3.11"]
    pins = index.requires["cuda-toolkit==12.8.1"]
    pins[:] = [pin.replace("12.8.4.1.*", "12.8.4.2.*") for pin in pins]
    report, changes = collect()
    assert changes == {
        ("cuda", "12.8.1", "components", "cublas"): "12.8.4.2",
        ("tensorflow", "2.20.0", "nccl"): "2.26.5",
        ("tensorflow", "2.21.0", "python"): [*TABLE.tensorflow_rows["2.21.0"].python, "3.14"],
        ("sources", "index", "date"): TODAY,
        ("updated",): TODAY,
    }
    assert apply(tmp_path, report).cuda_rows["12.8.1"].components["cublas"] == "12.8.4.2"


def test_the_newest_wheel_of_a_cudnn_without_one_is_taken(index: Index, tmp_path: Path) -> None:
    index.wheels["nvidia-cudnn-cu12"] |= {"8.6.0.9": ["3.11"], "8.6.0.163": ["3.11"], "8.60.0.1": ["3.11"]}
    row = apply(tmp_path, collect()[0]).cudnn_rows["8.6"]
    assert (row.wheel, row.sources[-1]) == ("8.6.0.163", "index")


@pytest.mark.parametrize(
    ("name", "version", "python"),
    [
        ("tensorflow", "2.20.0", ""),
        ("tensorflow", "2.20.0", "3.13"),
        ("tensorflow", "2.22.0rc0", ""),
        ("tensorflow-cpu", "2.19.1", ""),
        ("tensorflow-cpu", "2.19.1", "3.9"),
        ("nvidia-nccl-cu12", "2.25.1", ""),
        ("nvidia-cudnn-cu12", "9.8.0.87", ""),
        ("cuda-toolkit", "12.8.1", ""),
    ],
)
def test_a_version_that_disappears_is_noted_and_stays(index: Index, name: str, version: str, python: str) -> None:
    if python:
        index.wheels[name][version].remove(python)
    else:
        del index.wheels[name][version]
    report, changes = collect()
    assert not changes
    assert report.notes == [f"the package index has no {name} {version}" + (f" for Python {python}" if python else "")]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tensorflow", "<html>hello</html>"),
        ("tensorflow", "Available versions: latest, newest"),
        ("tensorflow-cpu", ""),
        ("tensorflow==2.20.0", "<html>hello</html>"),
        ("tensorflow==2.20.0", '{"install": []}'),
        ("tensorflow==2.20.0", '{"install": [{"metadata": {"requires_dist": ["a b c"]}}]}'),
        ("cuda-toolkit==12.8.1", "[]"),
        ("nvidia-cudnn-cu12", "Available versions: "),
        ("nvidia-nccl-cu12", "Available versions: 1,2"),
    ],
)
def test_garbage_of_one_package_is_named_and_the_others_are_read(index: Index, name: str, answer: str) -> None:
    index.answers[name] = answer
    report, changes = collect()
    assert not changes
    assert len(report.looked) == 5
    assert report.unread[0].startswith(f"package index, {name.partition('=')[0]}: an answer that is not understood")


def test_the_command_prints_a_patch_that_git_takes(run: Run, index: Index) -> None:
    index.wheels["tensorflow"]["2.21.0"].append("3.14")
    done = run("matrix", "--refresh")
    assert done.returncode == 7
    assert "read: package index, cuda-toolkit\n" in done.stderr
    assert "could not be read: TensorFlow's repository: " in done.stderr
    path = run.folder / table.PATH.relative_to(project.ROOT)
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    subprocess.run(["git", "apply"], cwd=run.folder, input=done.stdout, text=True, check=True)
    assert "3.14" in table.load_table(path).tensorflow_rows["2.21.0"].python
    value = json.loads(run("matrix", "--refresh", "--json").stdout)
    assert value["patch"] == done.stdout
    assert (len(value["read"]), len(value["unread"]), value["error"]["code"]) == (6, 2, 7), (
        "neither repositories nor lists of devices"
    )


def test_the_command_ends_well_where_nothing_changed(run: Run, index: Index) -> None:
    done = run("matrix", "--refresh")
    assert (done.returncode, done.stdout) == (0, "nothing changed\n")


def test_the_command_fails_where_no_source_can_be_read(run: Run, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "run_pip", lambda *_: ASK(sys.executable, "-c", "raise SystemExit('no network')"))
    done = run("matrix", "--refresh")
    assert (done.returncode, done.stdout) == (4, "")
    assert "why: package index, tensorflow: no network" in done.stderr


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    (tmp_path / "simple" / "tensorflow").mkdir(parents=True)
    return tmp_path / "simple" / "tensorflow"


def make_wheel(folder: Path, version: str, tag: str, *requires: str) -> None:
    info = f"tensorflow-{version}.dist-info"
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {each}\n" for each in requires),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for name, text in texts.items()}
    lines = [f"{info}/{name},sha256={digest.decode().rstrip('=')}," for name, digest in digests.items()]
    with zipfile.ZipFile(folder / f"tensorflow-{version}-{tag}.whl", "w") as archive:
        for name, text in {**texts, "RECORD": "\n".join([*lines, f"{info}/RECORD,,\n"])}.items():
            archive.writestr(f"{info}/{name}", text)
    (folder / "index.html").write_text("".join(f'<a href="{path.name}">x</a>\n' for path in folder.glob("*.whl")))


def test_pip_is_understood(served: Path) -> None:
    make_wheel(served, "2.20.0", "cp313-cp313-manylinux_2_17_x86_64", "keras-nightly>=3.12.0.dev", "numpy")
    make_wheel(served, "2.18.0", "py3-none-any")
    make_wheel(served, "2.22.0rc0", "cp314-cp314-manylinux_2_17_x86_64", 'a==1.2.*; extra == "b"')
    found = refresh._list_wheels("tensorflow", ["3.13", "3.14"])
    assert found == {"2.18.0": ["3.13", "3.14"], "2.20.0": ["3.13"], "2.22.0rc0": ["3.14"]}
    wanted = refresh._read_requirements("tensorflow", "2.20.0", "3.13")
    assert wanted == {"keras-nightly": "3.12.0.dev", "numpy": ""}


def test_an_index_without_an_answer_is_named(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (served / "index.html").write_text("garbage")
    with pytest.raises(inquiry.UnreadableError, match="No matching distribution"):
        refresh._list_wheels("tensorflow", ["3.11"])
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(inquiry.UnreadableError, match=r"127\.0\.0\.1|connection broken"):
        refresh._list_versions("tensorflow")


def test_pip_and_git_trust_the_bundle_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        said.append(inquiry.run("sh", "-c", "echo $PIP_CERT $GIT_SSL_CAINFO"))

    said: list[str] = []
    monkeypatch.setattr(refresh, "_compare", read)
    for name in ("PIP_CERT", "GIT_SSL_CAINFO"):
        monkeypatch.delenv(name, raising=False)
    for bundle in ("/ca.pem", ""):
        refresh.collect(TABLE, TODAY, ca_bundle=bundle)
    assert said == ["/ca.pem /ca.pem\n", "\n"]
