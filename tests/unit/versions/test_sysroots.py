import pytest

from tests.makers.sets import choose
from toolkit.base.errors import UnsupportedError
from toolkit.versions import lock
from toolkit.versions.table import load_table
from toolkit.wheel.build_inputs import BuildContext, BuildInputs
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import BuildPlan, plan

TABLE = load_table()


def make_plan(glibc: str) -> BuildPlan:
    pins = lock.collect(choose(TABLE, glibc=glibc), TABLE, base_image="debian")
    return plan(pins, BuildOptions(), BuildInputs(source=BuildContext(location="/source", identity="git:" + "a" * 40)))


def test_an_older_c_library_is_a_part_of_the_plan_and_keeps_what_is_compiled_apart() -> None:
    usual, older = make_plan(""), make_plan("2.28")
    assert usual.digest != older.digest
    assert (usual.arguments.get("GLIBC"), older.arguments["GLIBC"]) == (None, "2.28")
    assert usual.arguments["CACHE_ID"] != older.arguments["CACHE_ID"]
    locked = "docker/requirements/sysroot.txt"
    assert (locked in usual.lock.pins, locked in older.lock.pins) == (False, True)


@pytest.mark.parametrize(
    ("glibc", "base", "platform", "why"),
    [
        ("2.17", "trixie", "linux/amd64", "for an older one only for 2.28"),
        ("2.28", "bookworm", "linux/amd64", "for glibc 2.36, and for an older one for no other"),
        ("2.28", "trixie", "linux/arm64", "for no other than its own"),
        ("new", "trixie", "linux/amd64", "only for 2.28"),
    ],
)
def test_what_is_not_offered_is_refused(glibc: str, base: str, platform: str, why: str) -> None:
    tensorflow = "2.21.0" if platform != "linux/amd64" else None
    with pytest.raises(UnsupportedError) as caught:
        choose(TABLE, tensorflow=tensorflow, base=base, platform=platform, glibc=glibc)
    assert why in caught.value.why
    assert ("--glibc 2.28" in caught.value.remedy) == (platform == "linux/amd64")
