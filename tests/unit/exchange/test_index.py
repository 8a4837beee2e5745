"""One name for the wheels of several platforms."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.publication import PLAN
from tests.unit.exchange import oci
from tests.unit.exchange.world import World
from tests.unit.records.maker import change_json
from toolkit.base import manifest
from toolkit.base.errors import IntegrityError, RegistryError, UnsupportedError
from toolkit.engine import oci_manifest
from toolkit.records import transfer
from toolkit.wheel import wheel_folder
from toolkit.wheel.build_plan import BuildPlan

AMD, ARM = "linux/amd64", "linux/arm64"
OTHER: BuildPlan = replace(PLAN, lock=replace(PLAN.lock, spec={**PLAN.lock.spec, "platform": ARM}))


@pytest.fixture
def tagged(world: World) -> World:
    world.push(where=f"{world.registry.reference}:2.19")
    return world


def read_index(world: World) -> Any:
    return json.loads(world.registry.tags["2.19"])


def list_platforms(world: World) -> list[str]:
    return [
        "/".join(entry["platform"][name] for name in ("os", "architecture")) for entry in read_index(world)["manifests"]
    ]


def add(world: World, platform: str) -> None:
    """Name the same manifest for another platform too."""
    value = read_index(world)
    os, _, architecture = platform.partition("/")
    value["manifests"].append({**value["manifests"][0], "platform": {"os": os, "architecture": architecture}})
    world.registry.tags["2.19"] = json.dumps(value).encode()


def copy(world: World, change: str = "") -> Path:
    """Return another wheel of the same plan, or with another log, for the platform of ``change``."""
    made = Path(shutil.copytree(world.made, world.root / "other"))
    (made / "build.log").write_text("another")
    if change:
        change_json(made / manifest.FILE, lambda record: record["facts"]["lock"]["spec"].update(platform=change))
        (made / "plan.json").unlink(missing_ok=True)
    wheel_folder.write_sums(made)
    return made


def test_a_wheel_pushed_with_a_tag_has_that_of_its_plan_too_and_is_pulled_by_either(tagged: World) -> None:
    index = read_index(tagged)
    (entry,) = index["manifests"]
    own = tagged.registry.tags[transfer.name_tag(PLAN.digest)]
    assert (entry["digest"], entry["size"]) == (oci.digest(own), len(own))
    assert (list_platforms(tagged), index["artifactType"]) == ([AMD], transfer.KIND)
    for where in ("", ":2.19"):
        found = tagged.pull(where=tagged.registry.reference + where)
        assert found is not None
        shutil.rmtree(tagged.dist)


def test_a_push_keeps_the_other_platforms_and_the_same_push_changes_nothing(tagged: World) -> None:
    add(tagged, ARM)
    before = read_index(tagged)
    tagged.push(where=f"{tagged.registry.reference}:2.19")
    assert list_platforms(tagged) == [AMD, ARM]
    assert read_index(tagged) == before


@pytest.mark.parametrize(("times", "ends"), [(1, True), (9, False)], ids=["once", "each time"])
def test_two_pushes_at_the_same_time_lose_no_entry_unseen(tagged: World, times: int, ends: bool) -> None:
    """The other push has read the index before this one has written it."""
    add(tagged, ARM)
    others = tagged.registry.tags.pop("2.19")
    value = json.loads(others)
    del value["manifests"][0]
    written = 0

    def replace_index(request: Any) -> bool:
        nonlocal written
        if request.command == "GET" and "2.19" in tagged.registry.tags and written < times:
            written += 1
            tagged.registry.tags["2.19"] = json.dumps(value).encode()
        return False

    tagged.registry.fault = replace_index
    where = f"{tagged.registry.reference}:2.19"
    if ends:
        tagged.push(where=where)
        assert list_platforms(tagged) == [AMD, ARM]
    else:
        with pytest.raises(RegistryError, match=r":2\.19 lost entries of its index"):
            tagged.push(where=where)


def test_a_platform_that_is_absent_is_refused_with_what_there_is(tagged: World) -> None:
    with pytest.raises(UnsupportedError, match=f":2.19 has no wheel for {ARM}") as caught:
        tagged.pull(where=f"{tagged.registry.reference}:2.19", plan=OTHER)
    assert caught.value.why == f"it has {AMD}"
    assert not tagged.dist.exists()
    assert tagged.pull(where=f"{tagged.registry.reference}:none") is None


def test_an_index_that_lies_is_one_clear_error(tagged: World) -> None:
    add(tagged, ARM)
    where = f"{tagged.registry.reference}:2.19"
    with pytest.raises(IntegrityError, match="has another wheel than this plan's"):
        tagged.pull(where=where, plan=OTHER)
    value = read_index(tagged)
    value["manifests"][0]["digest"] = f"sha256:{'0' * 64}"
    tagged.registry.tags["2.19"] = json.dumps(value).encode()
    with pytest.raises(IntegrityError, match="names a manifest that is not there"):
        tagged.pull(where=where)
    tagged.registry.tags["2.19"] = tagged.registry.tags[transfer.name_tag(PLAN.digest)]
    with pytest.raises(IntegrityError, match=f"under 2.19 is not what was asked for.*\n?.*it is no {transfer.KIND}"):
        tagged.pull(where=where)
    assert [*tagged.dist.iterdir()] == []


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"schemaVersion": 2, "artifactType": "x", "manifests": [value]}).encode()
    )
)
def test_no_bytes_crash_the_readers(content: bytes) -> None:
    assert oci_manifest.parse_index(content, "x") in (None, [])
    assert oci_manifest.parse_manifest(content, "x") is None
