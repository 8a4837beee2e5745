import base64
import datetime as dt
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Run
from toolkit import project, refresh
from toolkit.errors import UnsupportedError
from toolkit.versions import patch, table

COMMIT = table.load_table().tensorflow_rows["2.21.0"].commit
TEXT = table.PATH.read_text().replace(f"    commit: {COMMIT}\n", "")
TABLE = table.build_table(table.read_yaml(TEXT))
"""The table without the commit of 2.21.0, which the made repositories cannot have."""
ROWS = {**TABLE.tensorflow_rows, **TABLE.incomplete}
TODAY = dt.date(2027, 1, 2)
ASK = refresh._ask


class Index:
    """Answers as pip does for an index that says what the table says. Git is the real one."""

    def __init__(self) -> None:
        wheels = {row.candidate or version: list(row.python) for version, row in ROWS.items()}
        nvidia = {
            "nvidia-cudnn-cu12": [row.wheel for row in TABLE.cudnn_rows.values() if row.wheel],
            "nvidia-nccl-cu12": [row.nccl for row in ROWS.values()],
            "cuda-toolkit": list(TABLE.cuda_rows),
        }
        self.wheels = {"tensorflow": wheels, "tensorflow-cpu": {key: list(value) for key, value in wheels.items()}}
        self.wheels |= {name: {version: ["3.11"] for version in versions} for name, versions in nvidia.items()}
        self.requires: dict[str, list[str]] = {}
        for version, row in ROWS.items():
            self.require(row.candidate or version, nccl=row.nccl, **row.and_cuda)
        for version, cuda in TABLE.cuda_rows.items():
            pins = {**cuda.components, **cuda.headers}
            self.requires[f"cuda-toolkit=={version}"] = [
                f"nvidia-{name}-cu12=={number.partition('.post')[0]}.*; extra == 'all'" for name, number in pins.items()
            ]
        self.answers: dict[str, str] = {}

    def require(self, version: str, *others: str, nccl: str, cuda: str, cudnn: str) -> None:
        self.requires[f"tensorflow=={version}"] = [
            "numpy",
            *others,
            f'nvidia-cuda-nvcc-cu12<13.0,>={cuda}.82; extra == "and-cuda"',
            f'nvidia-cudnn-cu12<10.0,>={cudnn}.75; extra == "and-cuda"',
            f'nvidia-nccl-cu12<3.0,>={nccl}; extra == "and-cuda"',
        ]

    def __call__(self, *command: str) -> str:
        if command[0] == "git":
            return ASK(*command)
        name = command[-1]
        if name in self.answers:
            return self.answers[name]
        if "install" in command:
            return json.dumps({"install": [{"metadata": {"requires_dist": self.requires[name]}}]})
        python = command[command.index("--python-version") + 1] if "--python-version" in command else ""
        found = [version for version, pythons in self.wheels[name].items() if not python or python in pythons]
        if not found:
            raise refresh.UnreadableError(f"ERROR: No matching distribution found for {name}")
        return f"{name} ({found[0]})\nAvailable versions: {', '.join(found)}\n"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    """An index, and a machine from which git reaches nothing."""
    given = Index()
    monkeypatch.setattr(refresh, "_ask", given)
    _redirect(monkeypatch, {"https://": "file:///nowhere/"})
    return given


def _redirect(monkeypatch: pytest.MonkeyPatch, places: dict[str, str]) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(places)))
    for number, (address, place) in enumerate(places.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", f"url.{place}.insteadOf")
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", address)


def _collect() -> tuple[refresh.Report, dict[tuple[str, ...], Any]]:
    report = refresh.collect(TABLE, TODAY)
    return report, {change.path: change.value for change in report.changes}


def _patch(folder: Path, report: refresh.Report) -> table.Table:
    path = folder / "table.yaml"
    path.write_text(patch.apply(TEXT, report.changes))
    return table.load_table(path)


def test_sources_that_say_what_the_table_says_change_nothing(index: Index) -> None:
    report, changes = _collect()
    assert not changes
    assert not report.notes
    assert len(report.looked) == 5
    assert len(report.unread) == 1
    assert "nowhere" in report.unread[0]


def test_a_release_candidate_gets_a_row_that_is_refused_with_what_it_lacks(index: Index, tmp_path: Path) -> None:
    index.wheels["tensorflow"]["2.23.0rc1"] = ["3.13", "3.14", "3.15"]
    index.wheels["tensorflow"]["2.23.0rc0"] = ["3.13"]
    index.require("2.23.0rc1", "keras-nightly>=3.14.0.dev", nccl="2.31.2", cuda="12.9", cudnn="9.20.0")
    found = _patch(tmp_path, _collect()[0])
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
    found = _patch(tmp_path, _collect()[0])
    assert {*found.incomplete} - {*TABLE.incomplete} == {"2.21.1"}
    assert not found.incomplete["2.21.1"].candidate
    assert found.tensorflow_rows.keys() == TABLE.tensorflow_rows.keys()


def test_a_candidate_that_is_released_is_still_refused_for_the_rest(index: Index, tmp_path: Path) -> None:
    (version,) = TABLE.incomplete
    row = TABLE.incomplete[version]
    index.wheels["tensorflow"][version] = [*row.python, "3.15"]
    index.require(version, nccl=row.nccl, **row.and_cuda)
    found = _patch(tmp_path, _collect()[0]).incomplete[version]
    assert (found.candidate, found.missing, found.python) == ("", row.missing, (*row.python, "3.15"))


def test_what_differs_is_changed(index: Index, tmp_path: Path) -> None:
    index.wheels["tensorflow"]["2.21.0"].append("3.14")
    index.require("2.20.0", nccl="2.26.5", cuda="12.5", cudnn="9.3.0")
    index.wheels["nvidia-nccl-cu12"]["2.26.5"] = ["3.11"]
    pins = index.requires["cuda-toolkit==12.8.1"]
    pins[:] = [pin.replace("12.8.4.1.*", "12.8.4.2.*") for pin in pins]
    report, changes = _collect()
    assert changes == {
        ("cuda", "12.8.1", "components", "cublas"): "12.8.4.2",
        ("tensorflow", "2.20.0", "nccl"): "2.26.5",
        ("tensorflow", "2.21.0", "python"): [*TABLE.tensorflow_rows["2.21.0"].python, "3.14"],
        ("sources", "index", "date"): TODAY,
        ("updated",): TODAY,
    }
    assert _patch(tmp_path, report).cuda_rows["12.8.1"].components["cublas"] == "12.8.4.2"


def test_the_newest_wheel_of_a_cudnn_without_one_is_taken(index: Index, tmp_path: Path) -> None:
    index.wheels["nvidia-cudnn-cu12"] |= {"8.6.0.9": ["3.11"], "8.6.0.163": ["3.11"], "8.60.0.1": ["3.11"]}
    row = _patch(tmp_path, _collect()[0]).cudnn_rows["8.6"]
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
    report, changes = _collect()
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
    report, changes = _collect()
    assert not changes
    assert len(report.looked) == 4
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
    assert (len(value["read"]), len(value["unread"]), value["error"]["code"]) == (5, 1, 7)


def test_the_command_ends_well_where_nothing_changed(run: Run, index: Index) -> None:
    done = run("matrix", "--refresh")
    assert (done.returncode, done.stdout) == (0, "nothing changed\n")


def test_the_command_fails_where_no_source_can_be_read(run: Run, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "_ask_pip", lambda *_: ASK(sys.executable, "-c", "raise SystemExit('no network')"))
    done = run("matrix", "--refresh")
    assert (done.returncode, done.stdout) == (4, "")
    assert "why: package index, tensorflow: no network" in done.stderr


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only index of pip: a folder."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    (tmp_path / "simple" / "tensorflow").mkdir(parents=True)
    return tmp_path / "simple" / "tensorflow"


def _make_wheel(folder: Path, version: str, tag: str, *requires: str) -> None:
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
    _make_wheel(served, "2.20.0", "cp313-cp313-manylinux_2_17_x86_64", "keras-nightly>=3.12.0.dev", "numpy")
    _make_wheel(served, "2.18.0", "py3-none-any")
    _make_wheel(served, "2.22.0rc0", "cp314-cp314-manylinux_2_17_x86_64", 'a==1.2.*; extra == "b"')
    found = refresh._list_wheels("tensorflow", ["3.13", "3.14"])
    assert found == {"2.18.0": ["3.13", "3.14"], "2.20.0": ["3.13"], "2.22.0rc0": ["3.14"]}
    wanted = refresh._read_requirements("tensorflow", "2.20.0", "3.13")
    assert wanted == {"keras-nightly": "3.12.0.dev", "numpy": ""}


def test_an_index_without_an_answer_is_named(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (served / "index.html").write_text("garbage")
    with pytest.raises(refresh.UnreadableError, match="No matching distribution"):
        refresh._list_wheels("tensorflow", ["3.11"])
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(refresh.UnreadableError, match=r"127\.0\.0\.1|connection broken"):
        refresh._list_versions("tensorflow")


CUDA = {release: row.redist for release, row in TABLE.cuda_rows.items() if release in ROWS["2.21.0"].cuda}
CUDNN = {release: row.redist for release, row in TABLE.cudnn_rows.items() if release in ROWS["2.21.0"].cudnn}
LABEL = 'load(\n    "@{}//third_party/gpus/cuda/hermetic:cuda_json_init_repository.bzl",\n    "x",\n)\n'


class Upstream:
    """A repository of TensorFlow whose 2.21.0 says what the table says, with the tables in the tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cuda, self.cudnn = dict(CUDA), dict(CUDNN)
        self.files = {
            ".bazelversion": "7.4.1\n# a note",
            "WORKSPACE": LABEL.format("local_xla"),
            "tensorflow/workspace0.bzl": "",
            "tensorflow/workspace3.bzl": 'tf_vendored(name = "local_xla", relpath = "third_party/xla")\n',
        }
        self.place = "third_party/xla/third_party/gpus/cuda/hermetic/cuda_redist_versions.bzl"

    def write(self) -> str:
        return _commit(self.folder, {**self.files, self.place: _write_tables(self.cuda, self.cudnn)}, "v2.21.0")


def _write_tables(cuda: dict[str, str], cudnn: dict[str, str]) -> str:
    entries = [{name: [f"redistrib_{name}.json", value] for name, value in each.items()} for each in (cuda, cudnn)]
    lines = [json.dumps(each, indent=4) for each in entries]
    return f"CUDA_REDIST_JSON_DICT = {lines[0]}\n\nCUDNN_REDIST_JSON_DICT = {lines[1]}\n"


def _commit(folder: Path, files: dict[str, str], tag: str) -> str:
    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *author, "-C", str(folder), *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git("init", "--quiet")
    for name in ("allowFilter", "allowAnySHA1InWant"):
        git("config", f"uploadpack.{name}", "true")
    git("add", ".")
    git("commit", "--quiet", "--message", "all")
    git("tag", "--annotate", "--message", tag, tag)
    return git("rev-parse", "HEAD")


@pytest.fixture
def upstream(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Upstream]:
    _redirect(monkeypatch, {refresh.REPOSITORY: (tmp_path / "tf").as_uri(), "https://": "file:///nowhere/"})
    return Upstream(tmp_path / "tf")


TAG = "TensorFlow's repository, v2.21.0"


def test_a_tag_that_says_what_the_table_says_adds_its_commit_alone(upstream: Upstream, tmp_path: Path) -> None:
    commit = upstream.write()
    report, changes = _collect()
    assert TAG in report.looked
    assert "TensorFlow's repository, v2.22.0-rc0: there is no such tag" in report.unread
    assert changes.keys() == {
        ("tensorflow", "2.21.0", "commit"),
        ("tensorflow", "2.21.0", "sources"),
        ("sources", "tags"),
        ("sources", "index", "date"),
        ("updated",),
    }
    assert _patch(tmp_path, report).tensorflow_rows["2.21.0"].commit == commit


def test_the_tables_are_read_from_the_commit_that_the_workspace_pins(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _write_tables(CUDA, {**CUDNN, "9.12.0": "a" * 63 + "1"})
    commit = _commit(tmp_path / "rules", {"third_party/gpus/cuda/hermetic/cuda_redist_versions.bzl": text}, "v1")
    address = "https://example.org/rules_x"
    monkeypatch.setenv("GIT_CONFIG_VALUE_1", f"{address}.git")
    monkeypatch.setenv("GIT_CONFIG_KEY_1", f"url.{(tmp_path / 'rules').as_uri()}.insteadOf")
    upstream.files["WORKSPACE"] = LABEL.format("rules_x")
    upstream.files["tensorflow/workspace0.bzl"] = f'urls = ["{address}/archive/{commit}.tar.gz"]\n'
    upstream.write()
    found = _patch(tmp_path, _collect()[0])
    assert found.tensorflow_rows["2.21.0"].cudnn[-1] == "9.12.0"
    assert found.cudnn_rows["9.12.0"].redist == "a" * 63 + "1"
    assert found.tensorflow_rows["2.21.0"].sources[-1] == "tags"


def test_what_the_table_cannot_hold_is_noted(upstream: Upstream, tmp_path: Path) -> None:
    upstream.files[".bazelversion"] = "99.1.0"
    upstream.cuda |= {"99.0.0": "b" * 64, "12.8.1": "c" * 64}
    upstream.write()
    report, _ = _collect()
    assert report.notes == [
        "2.21.0: Bazel 99.1.0 has no row",
        f"2.21.0: CUDA 12.8.1, redist {'c' * 64}, has another hash in the table",
        f"2.21.0: CUDA 99.0.0, redist {'b' * 64}, has no row",
    ]
    found = _patch(tmp_path, report).tensorflow_rows["2.21.0"]
    assert (found.bazel, found.cuda) == ("7.4.1", ROWS["2.21.0"].cuda)


def test_a_tag_that_moved_is_noted(upstream: Upstream) -> None:
    commit = upstream.write()
    subprocess.run(["git", "-C", upstream.folder, "tag", "v2.20.0", "v2.21.0^{}"], check=True)
    notes = _collect()[0].notes
    assert notes == [f"2.20.0: its tag is at {commit}, but its row has {ROWS['2.20.0'].commit}"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("WORKSPACE", "", "in a way that is not known here"),
        ("tensorflow/workspace3.bzl", "", "in a way that is not known here"),
        ("tensorflow/workspace3.bzl", 'tf_vendored(name = "local_xla", relpath = "gone")', "gone"),
        (".bazelversion", None, ".bazelversion"),
        ("", "CUDA_REDIST_JSON_DICT = PREFIX + 1", "not understood"),
        ("", 'CUDA_REDIST_JSON_DICT = {\n "1.0": ["x", "abc"],\n}\n', "not understood"),
        ("", 'CUDA_REDIST_JSON_DICT = {\n "newest": ["x", "' + "a" * 64 + '"],\n}\n', "not understood"),
    ],
)
def test_a_tag_that_is_not_understood_is_named(upstream: Upstream, name: str, text: str | None, reason: str) -> None:
    name = name or upstream.place
    upstream.files[upstream.place] = _write_tables(CUDA, CUDNN)
    upstream.files[name] = text or ""
    if text is None:
        del upstream.files[name]
    _commit(upstream.folder, upstream.files, "v2.21.0")
    report, changes = _collect()
    assert not changes
    (line,) = [line for line in report.unread if line.startswith(TAG)]
    assert reason in line


def test_a_repository_without_a_release_is_named(upstream: Upstream) -> None:
    _commit(upstream.folder, {"README": ""}, "v1.0")
    report, changes = _collect()
    assert not changes
    assert report.unread == ["TensorFlow's repository: it has no tag of a release"]
