from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records import maker
from toolkit.base import manifest, naming
from toolkit.base.errors import IntegrityError
from toolkit.engine.client import InspectedImage
from toolkit.records import Image, compare, image

IDENTITY, BASE, OTHER = ("sha256:" + digit * 64 for digit in "ab0")
TAG = "toolkit/train:cpu-000000000000"
WHOLE = ["id", "labels", "plan", "parent", "base", "lock"]


@dataclass
class World:
    state: Path
    images: dict[str, InspectedImage] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.state / "image-train-cpu-000000000000"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    labels = {naming.OWNER_LABEL: "toolkit", naming.PLAN_LABEL: "sha256:plan", naming.LOCK_LABEL: maker.lock_digest()}
    found = InspectedImage(id=IDENTITY, tags=(TAG,), labels=labels, layers=("sha256:1", "sha256:2", "sha256:3"))
    base = InspectedImage(id=BASE, tags=("base",), labels={}, layers=("sha256:1", "sha256:2"))
    made.images = {IDENTITY: found, TAG: found, BASE: base}
    facts = {"tag": TAG, "plan": "sha256:plan", "base": {"name": "base", "digest": BASE}, "labels": labels}
    parent = {"kind": "lock", "name": "cpu.txt", "digest": maker.lock_digest()}
    manifest.write(made.folder, manifest.Manifest(kind="image", digest=IDENTITY, parent=parent, facts=facts))
    monkeypatch.setattr(image, "inspect", made.images.get)
    return made


def relabel(world: World) -> None:
    labels = {**world.images[IDENTITY].labels, "extra": "x"}
    world.images[IDENTITY] = replace(world.images[IDENTITY], labels=labels)


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[World], None]:
    return lambda world: maker.change_json(world.folder / "manifest.json", change)


def move_tag(world: World) -> None:
    world.images[TAG] = replace(world.images.pop(IDENTITY), id=OTHER)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda world: None, {}),
        (relabel, {"labels": "fail"}),
        (edit(lambda value: value["facts"].update(plan="sha256:other")), {"plan": "fail"}),
        (edit(lambda value: value["parent"].update(digest=OTHER)), {"parent": "fail", "lock": "absent"}),
        (move_tag, {"id": "fail"}),
        (lambda world: world.images.clear(), {"id": "absent"}),
        (lambda world: world.images.update({BASE: replace(world.images[BASE], layers=("x",))}), {"base": "fail"}),
        (lambda world: world.images.pop(BASE), {"base": "absent"}),
    ],
)
def test_what_was_changed_is_found_by_its_name(
    world: World, spoil: Callable[[World], object], found: dict[str, str]
) -> None:
    spoil(world)
    findings = compare(Image(folder=world.folder, state=world.folder.parent)).list_findings()
    assert {item.id: item.state for item in findings if item.state != "ok"} == found
    if not found:
        assert [item.id for item in findings] == WHOLE


def test_an_image_that_was_not_built_here_is_looked_at_by_its_labels(world: World, tmp_path: Path) -> None:
    findings = compare(Image(folder=Path(), state=tmp_path / "other", reference=TAG)).list_findings()
    assert {item.id: item.state for item in findings} == {
        "id": "ok",
        "manifest": "absent",
        "labels": "ok",
        "lock": "ok",
    }
    foreign = {
        item.id: item.state
        for item in compare(Image(folder=Path(), state=tmp_path / "other", reference=BASE)).list_findings()
    }
    assert foreign["labels"] == "fail"


def test_an_unknown_image_or_record_is_named(world: World, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="there is no image"):
        compare(Image(folder=Path(), state=world.state, reference="toolkit/train:none")).list_findings()
    with pytest.raises(IntegrityError, match="no manifest of an image"):
        compare(Image(folder=tmp_path, state=tmp_path.parent)).list_findings()


@pytest.mark.parametrize("name", ["labels", "plan", "tag", "base"])
def test_a_record_without_a_fact_is_damage(world: World, name: str) -> None:
    edit(lambda value: value["facts"].pop(name))(world)
    for verify in (
        lambda: compare(Image(folder=world.folder, state=world.folder.parent)).list_findings(),
        lambda: compare(Image(folder=Path(), state=world.state, reference=IDENTITY)).list_findings(),
    ):
        with pytest.raises(IntegrityError, match=f"lacks {name}"):
            verify()
