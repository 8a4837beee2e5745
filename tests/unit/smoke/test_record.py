"""Installed files against the promises of their RECORD."""

from pathlib import Path

import pytest

from tests.unit.smoke.conftest import Site
from toolkit.smoke.inside import version
from toolkit.smoke.inside.check import Ask, Fail


def test_untouched_files_pass(site: Site) -> None:
    site.install()
    assert version.files(Ask())["files"] == 1


def test_a_changed_byte_fails(site: Site) -> None:
    site.install()
    file = Path(site.module.__file__)
    file.write_bytes(file.read_bytes().replace(b"2.19", b"2.91"))
    with pytest.raises(Fail, match=r"0 files missing, 1 changed.*tensorflow/__init__\.py"):
        version.files(Ask())


def test_a_missing_file_fails(site: Site) -> None:
    listing = site.install() / "RECORD"
    listing.write_text(listing.read_text() + "tensorflow/lost.so,sha256=AAAA,1\n")
    with pytest.raises(Fail, match=r"1 files missing.*lost\.so"):
        version.files(Ask())


def test_a_record_without_hashes_fails(site: Site) -> None:
    (site.install() / "RECORD").write_text("tensorflow/__init__.py,,\n")
    with pytest.raises(Fail, match="no RECORD of its files"):
        version.files(Ask())


def test_a_promise_is_found_for_the_very_file_only(site: Site, tmp_path: Path) -> None:
    site.install()
    file = Path(site.module.__file__)
    promised = version.find_promise("tensorflow", file)
    assert promised is not None
    measured = version.measure(file, promised.mode)
    assert measured is not None
    assert (measured.digest, measured.size) == (promised.value, file.stat().st_size)
    elsewhere = tmp_path / file.name
    elsewhere.write_bytes(file.read_bytes())
    assert version.find_promise("tensorflow", elsewhere) is None
    assert version.find_promise("no-such-distribution", file) is None
