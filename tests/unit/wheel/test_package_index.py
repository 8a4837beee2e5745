import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.command import Run
from tests.server import running
from tests.unit.graft import maker
from toolkit.base import digest, files, findings
from toolkit.base.errors import IntegrityError, PreflightError, ToolkitError, UsageError
from toolkit.engine.uv import locate
from toolkit.wheel import inspection, package_index, repack, variant, wheel_folder

TAG = "cp311-cp311-manylinux_2_17_x86_64"


def make(folder: Path, version: str = "2.21.0", *cubins: int, tag: str = TAG) -> Path:
    """Make a wheel with machine code for some GPUs, in a folder of its own as ``dist/NAME`` is."""
    place = folder / f"{version}-{tag}"
    place.mkdir(parents=True)
    library = maker.make_library([maker.make_container("one", cubins=cubins or (80, 89))])
    maker.make_tensorflow(place, library, version=version, tag=tag, requires=["Requires-Python: >=3.10"])
    wheel_folder.write_sums(place)
    return place


def label(source: Path, folder: Path, label: str = variant.AUTO) -> Path:
    """Make the variant of a wheel in a folder, and return the folder."""
    made = variant.make(variant.find_wheel(source).path, folder, label).parent
    wheel_folder.write_sums(made)
    return made


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str | None]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found[str(dict(attrs)["href"])] = dict(attrs)


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """A published wheel, and variants of two grafts of it."""
    dist = tmp_path / "dist"
    grafts = [make(dist, "2.21.0+sm120", 80, 89, 120), make(dist, "2.21.0+sm90.only", 90)]
    return [next(make(dist).glob("*.whl")), *(label(graft, tmp_path / "variants" / graft.name) for graft in grafts)]


def test_a_variant_has_the_files_of_its_wheel_and_says_what_it_runs_on(tmp_path: Path) -> None:
    source = make(tmp_path, "2.21.0+sm120", 80, 120)
    made = variant.make(variant.find_wheel(source).path, tmp_path / "variant")
    assert made.name == f"tensorflow-2.21.0-{TAG}-sm120.whl"
    found = variant.read(made).variant
    assert found is not None
    assert found.label == "sm120"
    assert found.properties == {"nvidia": {"sm_arch": ["120_real", "80_real"], "cuda_version_lower_bound": ["12.8"]}}
    with zipfile.ZipFile(variant.find_wheel(source).path) as old, zipfile.ZipFile(made) as new:
        contents = [
            {name.partition("/")[2]: opened.read(name) for name in opened.namelist() if "METADATA" not in name}
            for opened in (old, new)
        ]
    assert {name for name in contents[1] if contents[0].get(name) != contents[1][name]} == {"RECORD", "variant.json"}
    assert variant.read(made).identity.version == "2.21.0", "every file has its hash in RECORD"


PROJECT = """
[project]
name = "mine"
version = "0.1"
requires-python = ">=3.11,<3.13"
dependencies = ["tensorflow==2.21.0"]
[[tool.uv.index]]
url = "{}"
default = true
"""


@pytest.mark.parametrize("preview", ["", "--preview-features wheel-variants"], ids=["stock", "preview"])
def test_stock_installers_and_a_lock_take_the_repaired_wheel(tmp_path: Path, preview: str) -> None:
    """A lock of uv names the plain wheels of all Pythons, and no variant, with its preview too."""
    tags = [TAG, TAG.replace("311", "312")]
    wheels = []
    for tag in tags:
        wheels.append(make(tmp_path / "dist", "2.21.0+repaired", tag=tag))
        wheels.append(make(tmp_path / "dist", "2.21.0+sm120", 120, tag=tag))
    package_index.make(tmp_path / "site", wheels, label="auto")
    project = tmp_path / "project"
    project.mkdir()
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with running(ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path / "site")))) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        (project / "pyproject.toml").write_text(PROJECT.format(address))
        own = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": address}

        def call(*words: str | Path) -> None:
            done = subprocess.run(words, cwd=project, env=own, capture_output=True, text=True, check=False)
            assert not done.returncode, done.stderr

        call(locate(), "lock", *preview.split(), "--python", sys.executable)
        call(locate(), "sync", *preview.split(), "--python", sys.executable)
        call(sys.executable, "-m", "pip", "download", "--quiet", "--dest", tmp_path / "pip", "tensorflow")
    (locked,) = (
        package
        for package in tomllib.loads((project / "uv.lock").read_text())["package"]
        if package["name"] == "tensorflow"
    )
    names = [f"tensorflow-2.21.0-{tag}.whl" for tag in tags]
    assert {item["url"].rpartition("/")[2] for item in locked["wheels"]} == set(names)
    assert [path.name for path in (tmp_path / "pip").iterdir()] == names[:1]
    (library,) = (project / ".venv").glob(f"lib/python3*/site-packages/{maker.LIBRARY}")
    with zipfile.ZipFile(tmp_path / "pip" / names[0]) as archive:
        assert archive.read(maker.LIBRARY) == library.read_bytes()


def test_an_index_names_each_wheel_with_hash_metadata_and_variants(tmp_path: Path, sources: list[Path]) -> None:
    package_index.make(tmp_path / "site", sources)
    held = read(tmp_path / "site" / "tensorflow")
    assert "tensorflow/" in read(tmp_path / "site")["index.html"].decode()
    page, listed = Links(), json.loads(held["index.json"])
    page.feed(held["index.html"].decode())
    assert [item["filename"] for item in listed["files"]] == [href.partition("#")[0] for href in page.found]
    for href, attributes in page.found.items():
        name, _, value = href.partition("#sha256=")
        assert digest.digest_bytes(held[name]) == f"sha256:{value}"
        if name.endswith(".whl"):
            metadata = digest.digest_bytes(held[f"{name}.metadata"]).replace(":", "=")
            assert attributes["data-core-metadata"] == attributes["data-dist-info-metadata"] == metadata
            assert attributes["data-requires-python"] == ">=3.10"
    described = json.loads(held["tensorflow-2.21.0-variants.json"])
    assert {label: each["nvidia"]["sm_arch"] for label, each in described["variants"].items()} == {
        "sm120": ["120_real", "80_real", "89_real"],
        "sm90": ["90_real"],
    }
    assert f"tensorflow-2.21.0-{TAG}-sm120.whl.provenance.intoto.json" in held
    assert {item.state for item in package_index.verify(tmp_path / "site")} == {"ok"}


def test_the_same_sources_make_the_same_bytes_and_an_index_follows_its_sources(
    tmp_path: Path, sources: list[Path]
) -> None:
    site, again = tmp_path / "site", tmp_path / "again"
    package_index.make(site, sources)
    package_index.make(again, [*reversed(sources), sources[0]])
    assert read(site) == read(again)
    inode = (site / "index.html").stat().st_ino
    package_index.make(site, sources)
    assert (site / "index.html").stat().st_ino == inode, "an index that is up to date is left as it is"
    package_index.make(site, sources[:1])
    assert not [name for name in read(site) if "sm120" in name or "variants" in name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "dist", "site", "variants"]


def spoil_variant(folder: Path, **changes: object) -> Path:
    """Make a variant whose ``variant.json`` is changed, as another program might write it."""
    wheel = next(make(folder, "2.21.0+sm120", 80, 120).glob("*.whl"))
    value = json.loads(variant.compose([variant.describe(inspection.inspect(wheel))])) | changes
    target = folder / f"tensorflow-2.21.0-{TAG}-sm120.whl"
    repack.repack(wheel, target, {}, ("2.21.0+sm120", "2.21.0"), added={variant.FILE: json.dumps(value).encode()})
    return target


def other_label(folder: Path) -> list[Path]:
    one, two = make(folder, "2.21.0+sm120", 120), make(folder, "2.21.0+sm90", 90, tag=TAG.replace("311", "312"))
    return [label(each, folder / each.name / "variant", "mine") for each in (one, two)]


def twice(folder: Path) -> list[Path]:
    return [make(folder / "one", "2.21.0", 80), make(folder / "two", "2.21.0", 89)]


def changed(folder: Path) -> list[Path]:
    source = make(folder)
    wheel = next(source.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    return [source]


def same_cards(folder: Path) -> list[Path]:
    graft = make(folder, "2.21.0+sm120", 120)
    return [label(graft, folder / name, name) for name in ("one", "two")]


BAD = {
    "one label": (other_label, UsageError, "have the label mine"),
    "one name": (twice, UsageError, "two different wheels have the name"),
    "changed": (changed, IntegrityError, "SHA256SUMS"),
    "same cards": (same_cards, UsageError, "are for the same cards: one and two"),
    "no machine code": (
        lambda folder: [spoil_variant(folder, variants={"sm120": {"nvidia": {"sm_arch": ["121_real"]}}})],
        IntegrityError,
        "is not the variant that this version makes",
    ),
    "draft": (lambda folder: [spoil_variant(folder, **{"$schema": "v0.9.9"})], IntegrityError, "is not the variant"),
    "no wheel": (lambda folder: [folder / "absent.whl"], UsageError, "there is no wheel"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sources_get_one_message_and_change_nothing(tmp_path: Path, name: str) -> None:
    package_index.make(tmp_path / "site", [make(tmp_path / "good")])
    before = read(tmp_path / "site")
    bad, kind, message = BAD[name]
    (tmp_path / "bad").mkdir()
    given = bad(tmp_path / "bad")
    with pytest.raises(ToolkitError, match=message) as caught:
        package_index.make(tmp_path / "site", given)
    assert isinstance(caught.value, kind)
    assert caught.value.remedy
    assert read(tmp_path / "site") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "good", "site"]


@pytest.mark.parametrize(
    ("name", "indexed"), [("notes.txt", False), ("notes.txt", True), ("tensorflow/notes.txt", True), ("other/", True)]
)
def test_what_is_not_of_an_index_is_never_removed(tmp_path: Path, name: str, indexed: bool) -> None:
    site, sources = tmp_path / "site", [make(tmp_path / "dist")]
    if indexed:
        package_index.make(site, sources)
    path = site / name
    path.mkdir(parents=True) if name.endswith("/") else path.parent.mkdir(parents=True, exist_ok=True)
    if not name.endswith("/"):
        path.write_text("mine")
    with pytest.raises(UsageError, match="not of an index"):
        package_index.make(site, sources)
    assert path.exists()


def test_a_disk_that_fills_up_leaves_the_old_index(
    tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    package_index.make(site, sources[:1])
    before = read(site)

    def fill(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.raises(PreflightError, match="No space left"):
        package_index.make(site, sources)
    assert read(site) == before


def test_where_folders_cannot_be_exchanged_a_failure_brings_the_old_index_back(
    tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, rename = tmp_path / "site", Path.rename
    package_index.make(site, sources[:1])
    before = read(site)

    def refuse(self: Path, target: Path) -> Path:
        if target == site and self.name == "index":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(files, "exchange", lambda *_: False)
    with monkeypatch.context() as full:
        full.setattr(Path, "rename", refuse)
        with pytest.raises(PreflightError, match="No space left"):
            package_index.make(site, sources)
    assert read(site) == before
    package_index.make(site, sources)
    assert len(read(site)) > len(before)


def test_a_wheel_gets_a_second_name_where_all_may_read_it_and_a_copy_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = next(make(tmp_path / "dist").glob("*.whl"))
    inside = tmp_path / "site" / "tensorflow" / wheel.name
    package_index.make(tmp_path / "site", [wheel])
    assert inside.samefile(wheel)
    shutil.rmtree(tmp_path / "site")
    wheel.chmod(0o600)
    package_index.make(tmp_path / "site", [wheel])
    assert (inside.samefile(wheel), inside.stat().st_mode & 0o777) == (False, 0o644)
    shutil.rmtree(tmp_path / "site")
    wheel.chmod(0o644)

    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    package_index.make(tmp_path / "site", [wheel])
    assert not inside.samefile(wheel)
    assert inside.read_bytes() == wheel.read_bytes()


def test_a_wheel_that_changes_while_its_index_is_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = next(make(tmp_path / "dist").glob("*.whl"))
    os.utime(wheel, (1, 1))
    (wheel.parent / "SHA256SUMS").unlink()
    link = Path.hardlink_to

    def change(self: Path, target: Path) -> None:
        target.write_bytes(target.read_bytes() + b"more")
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", change)
    with pytest.raises(IntegrityError, match="while it was copied"):
        package_index.make(tmp_path / "site", [wheel])
    assert not (tmp_path / "site").exists()


def test_a_change_of_an_index_is_found(tmp_path: Path, sources: list[Path]) -> None:
    """Also if whoever changed a page changed the list of files too."""
    site = tmp_path / "site"
    package_index.make(site, sources)
    kept = (site / package_index.RECORD).read_text()
    wheel = f"tensorflow/tensorflow-2.21.0-{TAG}-sm120.whl"
    for name in ("index.html", wheel, "tensorflow/tensorflow-2.21.0-variants.json", "tensorflow/more.whl"):
        path = site / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes((before or b"") + b" ")
        (wrong,) = findings.list_wrong(package_index.verify(site))
        assert (wrong.id, name in wrong.evidence) == ("files", True)
        if not name.endswith(".whl"):
            record = json.loads(kept)
            record["files"][name] = digest.digest_file(path)
            (site / package_index.RECORD).write_text(json.dumps(record))
            (wrong,) = findings.list_wrong(package_index.verify(site))
            assert (wrong.id, name in wrong.evidence) == ("pages", True)
            (site / package_index.RECORD).write_text(kept)
        path.unlink() if before is None else path.write_bytes(before)
    assert not findings.list_wrong(package_index.verify(site))


def test_the_commands_make_and_verify_an_index(run: Run) -> None:
    source = make(run.folder / "dist", "2.21.0+sm120", 80, 120)
    repaired = make(run.folder / "dist", "2.21.0+repaired")
    assert run("index", "site", str(source), "--label", "null").returncode == 2
    for sources, chosen, names in (
        ([source, repaired], "auto", ["-sm120", ""]),
        ([source], "mine", ["-mine"]),
        ([f"site/tensorflow/tensorflow-2.21.0-{TAG}-mine.whl", repaired], "auto", ["-mine", ""]),
    ):
        done = run("index", "site", *map(str, sources), "--label", chosen, "--json")
        assert list(json.loads(done.stdout)["wheels"]) == [f"tensorflow-2.21.0-{TAG}{name}.whl" for name in names]
    assert run("index", "--verify", "site").returncode == 0
    (run.folder / "site/index.html").write_text("")
    assert run("index", "--verify", "site").returncode == 7
