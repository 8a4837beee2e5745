"""Bills of materials of environments and images, held against the schema of CycloneDX."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tests.unit.record import maker
from tests.unit.wheel.test_publication import finish_build, publish
from toolkit import digest, manifest, naming, project
from toolkit.artifacts import open_wheel
from toolkit.cli import app
from toolkit.manifest import Manifest
from toolkit.record import bill
from toolkit.wheel import wheel_folder

VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)
LOCK = project.locate("docker/requirements/cuda-12.6.1.txt")
IDENTITY, BASE = ("sha256:" + digit * 64 for digit in "ab")
STATUS = """\
Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.21.22
Description: Debian package management system
 Package: not a field

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Source: gcc-12
Version: 1:12.2.0-14+deb12u1
"""
FILES = {
    bill.STATUS: STATUS,
    bill.RELEASE: 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n',
    bill.VENV: "home = /usr/bin\nversion_info = 3.11.2\n",
}


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the record of an image from a locked set, whose files are read as an engine gives them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bill, "connect", lambda: None)
    monkeypatch.setattr(bill, "read_files", lambda _client, _name, path, _: {Path(path).name: FILES[path].encode()})
    found = digest.digest_file(LOCK)
    facts = {
        "tag": "toolkit/train:one",
        "plan": "sha256:plan",
        "base": {"name": "debian:12", "digest": BASE},
        "labels": {naming.LOCK_LABEL: found},
        "kernels": "sha256:" + "c" * 64,
    }
    folder = tmp_path / ".toolkit" / "image-train-one"
    link = {"kind": "lock", "name": LOCK.name, "digest": found}
    manifest.write(folder, Manifest(kind="image", digest=IDENTITY, parent=link, facts=facts))
    return folder


def ask(target: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["sbom", str(target), *options])


def read(text: str) -> dict[str, Any]:
    """Return the components by name, after the schema and the library's own reader have taken the bill."""
    assert VALIDATOR.validate_str(text) is None
    value = json.loads(text)
    assert len(Bom.from_json(value).components) == len(value["components"])  # type: ignore[attr-defined]
    assert {each["ref"] for each in value["dependencies"]} >= {each["bom-ref"] for each in value["components"]}
    return {each["name"]: each for each in value["components"]}


def test_an_image_has_its_base_its_debian_and_its_python_packages(image: Path) -> None:
    done = ask(image)
    assert done.exit_code == 0, done.output
    found = read(done.stdout)
    assert found["debian:12"]["hashes"] == [{"alg": "SHA-256", "content": "b" * 64}]
    assert (
        found["libstdc++6"]["purl"] == "pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12"
    )
    assert "gone" not in found
    assert found["kernels.so"]["hashes"][0]["content"] == "c" * 64
    names = {line.split("==")[0] for line in LOCK.read_text().splitlines() if "==" in line and not line.startswith("#")}
    assert found.keys() >= names, "for this Python and processor the set has no other"
    cublas = found["nvidia-cublas-cu12"]
    assert cublas["purl"] == "pkg:pypi/nvidia-cublas-cu12@12.6.1.4"
    hashes = [each["value"] for each in cublas["properties"]]
    assert hashes
    assert all(f"--hash={value}" in LOCK.read_text() for value in hashes)
    assert json.loads(done.stdout)["metadata"]["component"]["hashes"][0]["content"] == IDENTITY.removeprefix("sha256:")


def test_the_same_record_gives_the_same_bill(image: Path) -> None:
    assert ask(image).stdout == ask(image).stdout
    assert ask(image, "--out", "bill.json").exit_code == 0
    assert Path("bill.json").read_text() == ask(image).stdout


def test_an_image_with_a_wheel_of_its_own_refers_to_its_bill(image: Path) -> None:
    wheel = Path("dist/one")
    wheel.parent.mkdir()
    publish(finish_build(Path("staging")), wheel)
    archive = wheel_folder.find_wheel(wheel)
    link = {"kind": "wheel", "name": archive.name, "digest": open_wheel(wheel).read_record().digest}
    maker.change_json(image / manifest.FILE, lambda value: value.update(parent=link))
    (found,) = [each for name, each in read(ask(image).stdout).items() if name in manifest.PUBLISHED]
    assert found["hashes"][0]["content"] == link["digest"].removeprefix("sha256:")
    serial = json.loads((wheel / "sbom.cdx.json").read_text())["serialNumber"].removeprefix("urn:uuid:")
    assert found["externalReferences"] == [{"type": "bom", "url": f"urn:cdx:{serial}/1"}]
    shutil.rmtree(wheel)
    (found,) = [each for name, each in read(ask(image).stdout).items() if name in manifest.PUBLISHED]
    assert "externalReferences" not in found


def test_an_environment_has_what_was_installed(state: Path) -> None:
    folder = next(path for path in state.glob("environment-*") if path.is_dir())
    (found,) = read(ask(folder).stdout).values()
    assert (found["name"], found["version"]) == ("tensorflow-cpu", "2.19.0")
    assert found["cpe"] == "cpe:2.3:a:google:tensorflow:2.19.0:*:*:*:*:*:*:*"
    assert found["hashes"] == [{"alg": "SHA-256", "content": "7" * 64}]
    maker.change_json(folder / "packages.json", lambda value: value.clear())
    done = ask(folder)
    assert done.exit_code == 8
    assert "is no record of packages" in done.output


def test_what_an_image_does_not_say_is_not_guessed(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FILES, bill.VENV, "home = /usr/bin\n")
    assert "does not say what its packages are for" in ask(image).output
    monkeypatch.setitem(FILES, bill.VENV, "version = 3.11.2\n")
    maker.change_json(image / manifest.FILE, lambda value: value.update(parent={"kind": "wheel", "name": "x"}))
    assert "names no wheel" in ask(image).output
    maker.change_json(image / manifest.FILE, lambda value: value["facts"]["labels"].clear())
    done = ask(image, "--out", "bill.json")
    assert done.exit_code == 8
    assert "no locked set of this clone is that of the image" in done.output
    assert not Path("bill.json").exists()
    maker.change_json(image / manifest.FILE, lambda value: value["facts"].pop("base"))
    assert "lacks its base or its labels" in ask(image).output


def test_a_wheel_has_its_own_bill(tmp_path: Path) -> None:
    publish(finish_build(tmp_path / "staging"), tmp_path / "dist")
    done = ask(tmp_path / "dist")
    assert done.exit_code == 2
    assert "sbom.cdx.json" in done.output


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "tensorflow-cpu"), ("aarch64", "tensorflow")])
def test_a_locked_set_is_read_for_one_processor_and_python(machine: str, name: str) -> None:
    text = project.locate("docker/requirements/cpu.txt").read_text()
    found = {part.name for part in bill.parse_locked(text, machine, "3.11.2")}
    assert found & manifest.PUBLISHED == {name}
    later = {part.name for part in bill.parse_locked(text, machine, "3.12.1")}
    assert found - later == {"tensorflow-io-gcs-filesystem"}


WORD = st.text(st.characters(codec="ascii", exclude_characters="\n\r:\x0b\x0c\x1c\x1d\x1e "), min_size=1)


@given(st.lists(st.tuples(WORD, WORD, st.booleans())))
def test_each_installed_package_is_read(packages: list[tuple[str, str, bool]]) -> None:
    stanzas = [
        f"Package: {name}\nStatus: install ok {'installed' if installed else 'unpacked'}\nVersion: {version}\n"
        "Architecture: all\nDescription: x\n Version: y\n"
        for name, version, installed in packages
    ]
    found = [(each["Package"], each["Version"]) for each in bill.parse_status("\n".join(stanzas))]
    assert found == [(name, version) for name, version, installed in packages if installed]
