"""A version that is asked for changes what is built and what is installed: none is ignored silently."""

from contextlib import suppress

import pytest
from wheelbuild.arguments import list_cuda
from wheelbuild.request import read_request

from tests.makers.build_request import GIVEN
from toolkit.base.errors import UnsupportedError
from toolkit.versions import lock
from toolkit.versions.rules import BuildVersions, choose_versions
from toolkit.versions.set import LIBRARIES, VERSIONS, Set
from toolkit.versions.sets import compose_input, describe_set
from toolkit.versions.table import load_table
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import BuildPlan, plan

TABLE = load_table()
USUAL = choose_versions(TABLE)


def choose_other(name: str) -> BuildVersions:
    """Return the set of a build that follows if one version is asked for that is not the usual one."""
    row = TABLE.tensorflow(USUAL.tensorflow)
    offered = {"tensorflow": tuple(TABLE.tensorflow_rows), "python": row.python}
    for value in reversed(row.offers(name) if name in LIBRARIES else offered[name]):
        with suppress(UnsupportedError):
            if value != getattr(USUAL, name):
                return choose_versions(TABLE, Set(**{name: value}))
    raise AssertionError(f"the table has one {name} alone")


def plan_build(spec: BuildVersions) -> BuildPlan:
    return plan(lock.collect(spec, TABLE, base_image="debian"), BuildOptions())


@pytest.mark.parametrize("name", VERSIONS)
def test_plan_and_run_time_set_follow_each_version(name: str) -> None:
    other = choose_other(name)
    usual, changed = plan_build(USUAL), plan_build(other)
    assert changed.digest != usual.digest
    assert changed.lock.spec[name] == getattr(other, name) == changed.arguments[f"{name.upper()}_VERSION"]
    if name == "python":  # one set serves several
        return
    made, before = describe_set(TABLE, other), describe_set(TABLE, USUAL)
    assert made.requirements != before.requirements
    assert compose_input(TABLE, made) != compose_input(TABLE, before)
    if name in LIBRARIES:
        given = {**GIVEN, **changed.arguments, "DEVICE": "cuda"}
        assert getattr(other, name) in list_cuda(read_request(given, cores=1, memory=4096)).values()
