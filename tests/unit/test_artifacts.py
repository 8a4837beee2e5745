import json
from pathlib import Path

import pytest

from toolkit import artifacts, inventory, report
from toolkit.artifacts import Artifact
from toolkit.errors import IntegrityError
from toolkit.findings import Finding, check
from toolkit.report.chain import PageContext
from toolkit.signing import Statement


class Note(Artifact):
    """A kind of artifact that only these tests know."""

    kind = "note"
    noun = "note"
    title = "Note"
    remedy = "write it again"
    home = "runs"
    marks = ("note.txt",)

    def make_statement(self) -> Statement:
        raise NotImplementedError

    def check(self) -> list[Finding]:
        return [check("text", (self.folder / "note.txt").read_text() == "as recorded", "note.txt")]

    def find_tensorflow(self) -> str:
        return "2.19.0"


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(artifacts, "KINDS", (*artifacts.KINDS, Note))
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "kind": "note", "digest": "sha256:1"}))
    (folder / "note.txt").write_text("as recorded")
    return folder


def test_a_kind_that_is_added_to_the_table_is_found_compared_and_listed(note: Path, tmp_path: Path) -> None:
    found = artifacts.find(str(note), tmp_path)
    assert isinstance(found, Note)
    assert [item.state for item in artifacts.compare(found).list_findings()] == ["ok"]
    (listed,) = inventory.find(tmp_path, note.parent, tmp_path, None, ["note"])
    assert (listed.kind, listed.name, listed.state) == ("note", str(note), "TensorFlow 2.19.0")


def test_what_only_one_kind_holds_is_not_taken_for_another(note: Path, tmp_path: Path) -> None:
    record = {"schema": 1, "kind": "run", "digest": "sha256:1"}
    (note / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(IntegrityError, match="holds what belongs to the kind note"):
        artifacts.find(str(note), tmp_path)


def test_a_kind_that_is_added_to_the_table_has_a_page(note: Path, tmp_path: Path) -> None:
    page, _ = report.compose([str(note)], PageContext(state=tmp_path))
    assert (page.kind, page.title) == ("Note", "one")
