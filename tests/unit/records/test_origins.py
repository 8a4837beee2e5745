import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.makers.publication import finish_build, publish
from toolkit.base import digest, manifest, seals
from toolkit.base.findings import Finding
from toolkit.cli import app
from toolkit.records import Environment, compare
from toolkit.wheel import wheel_folder

ZERO = "sha256:" + "0" * 64


class Made(Environment):
    """An environment of which a test looks at what it was made from alone."""

    def check(self) -> list[Finding]:
        return []


def check_origin(folder: Path, parent: Mapping[str, Any]) -> list[Finding]:
    manifest.write(folder, manifest.Manifest(kind="environment", digest=ZERO, parent=parent))
    return compare(Made(folder=folder, state=folder)).list_findings()


def test_a_wheel_of_our_own_is_looked_for_and_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dist").mkdir()
    record = publish(finish_build(tmp_path / "staging"), tmp_path / "dist" / "one")
    link = {"kind": "wheel", "name": "a wheel", "digest": record.digest}
    findings = check_origin(tmp_path, link)
    assert [item.id for item in findings][:3] == ["origin", "wheel.sums", "wheel.digest"]
    assert {item.id for item in findings if item.state != "ok"} == {"wheel.inspection"}
    assert [item.state for item in check_origin(tmp_path, {**link, "digest": ZERO})] == ["absent"]
    with (tmp_path / "dist" / "one" / "build.log").open("a") as log:
        log.write("x")
    (damaged,) = check_origin(tmp_path, link)
    assert (damaged.id, damaged.state) == ("origin", "fail")
    assert "build.log is not what SHA256SUMS says" in damaged.evidence


def test_verify_reads_what_other_commands_remember(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed file is found even if the remembered digest is still the old one."""
    monkeypatch.chdir(tmp_path)
    staging = finish_build(tmp_path / "staging")
    (staging / "build.log").write_bytes(b"a" * (2 << 20))
    wheel_folder.write_sums(staging)
    target = tmp_path / "dist" / "one"
    target.parent.mkdir()
    publish(staging, target)
    log = target / "build.log"
    promised = digest.digest_file(log)
    log.write_bytes(b"b" * (2 << 20))
    memory = tmp_path / ".toolkit" / digest.REMEMBERED
    memory.parent.mkdir(parents=True)
    seals.make_key()
    known = {"file:../dist/one/build.log": {"identity": digest._identify(log.stat()), "digest": promised}}
    memory.write_text(json.dumps({"known": known, "mark": seals.mark("cached digests", known)}))
    with digest.caching(tmp_path / ".toolkit"):
        assert digest.digest_file(log) == promised
        wheel_folder.check_sums(target)
    done = CliRunner().invoke(app, ["verify", str(target)])
    assert done.exit_code == 8, done.output
    assert "build.log is not what SHA256SUMS says" in done.output
