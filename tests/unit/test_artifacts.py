import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command import Run
from toolkit import records, report
from toolkit.base import digest, files, keys
from toolkit.base.errors import IntegrityError
from toolkit.base.findings import Finding, check
from toolkit.base.signing import Statement
from toolkit.records import Artifact, inventory
from toolkit.report.chain import PageContext


@dataclass(frozen=True, kw_only=True)
class Note(Artifact):
    """A kind of artifact that only these tests know."""

    kind = "note"
    noun = "note"
    title = "Note"
    remedy = "write it again"
    home = "runs"
    cleaned = "note"
    marks = ("note.txt",)

    def make_statement(self) -> Statement:
        return Statement(
            kind=self.kind,
            subjects=digest.read_files(self.folder, ["manifest.json", "note.txt"]),
            predicate_type="urn:example:note",
            predicate={},
        )

    def check(self) -> list[Finding]:
        return [check("text", (self.folder / "note.txt").read_text() == "as recorded", "note.txt")]

    def find_tensorflow(self) -> str:
        return "2.19.0"


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(records, "KINDS", (*records.KINDS, Note))
    monkeypatch.chdir(tmp_path)
    return write_note(tmp_path / "runs" / "one")


def write_note(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "kind": "note", "digest": "sha256:1"}))
    (folder / "note.txt").write_text("as recorded")
    return folder


def test_a_kind_that_is_added_to_the_table_is_listed_from_one_look_at_each_record(
    note: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    read_json = files.read_json
    monkeypatch.setattr(files, "read_json", lambda path: read_json(path) if not read.append(path) else None)
    (listed,) = inventory.find(tmp_path, note.parent, tmp_path, None, ["note"])
    assert (listed.kind, listed.name, listed.state) == ("note", str(note), "TensorFlow 2.19.0")
    assert read == [note / "manifest.json"]


def test_a_kind_that_is_added_to_the_table_is_signed_and_verified_by_a_policy(note: Path, run: Run) -> None:
    keys.make(run.folder / "key", "ed25519")
    (run.folder / "policy.yaml").write_text("signers: [{name: author, key: key.pub, may: [note]}]\n")
    (run.folder / "other.yaml").write_text("signers: [{name: author, key: key.pub, may: [run]}]\n")
    signed = run("sign", str(note), "--key", "key")
    assert signed.returncode == 0, signed.stderr
    verified = run("verify", str(note), "--trust", "policy.yaml", "--json")
    assert {item["id"]: item["state"] for item in json.loads(verified.stdout)["findings"]} == {
        "signature": "ok",
        "text": "ok",
    }
    assert "author may sign run: not note" in run("verify", str(note), "--trust", "other.yaml").stderr
    (note / "note.txt").write_text("changed")
    assert run("verify", str(note)).returncode == 7


def test_commands_name_a_kind_that_is_added_to_the_table(note: Path, run: Run) -> None:
    assert "run, note" in run("ls", "--kind", "none").stderr
    write_note(run.folder / ".toolkit" / "note-0123456789ab")
    assert "folder .toolkit/note-0123456789ab" in json.loads(run("clean", "--dry-run", "--json").stdout)["removed"]
    page = run("report", str(note), "--json")
    assert page.returncode == 0, page.stderr


def test_what_only_one_kind_holds_is_not_taken_for_another(note: Path, tmp_path: Path) -> None:
    record = {"schema": 1, "kind": "run", "digest": "sha256:1"}
    (note / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(IntegrityError, match="holds what belongs to the kind note"):
        records.find(str(note), tmp_path)


def test_a_kind_that_is_added_to_the_table_has_a_page(note: Path, tmp_path: Path) -> None:
    page, _ = report.compose([str(note)], PageContext(state=tmp_path))
    assert (page.kind, page.title) == ("Note", "one")
    assert [(link.name, link.digest_of) for link in page.chain.links] == [("note", "SHA-256")]
