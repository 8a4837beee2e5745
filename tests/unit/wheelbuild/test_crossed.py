import os

import pytest
from wheelbuild import arguments
from wheelbuild.request import read_request

from tests.unit.wheelbuild.test_arguments import compose
from tests.unit.wheelbuild.test_full_disk import GIVEN


@pytest.mark.parametrize(
    ("own", "target", "crossed"), [("x86_64", "", 0), ("x86_64", "aarch64", 1), ("aarch64", "", 0)]
)
def test_flags_of_a_cross_compiler_are_added_where_the_wheel_is_for_another_machine(
    monkeypatch: pytest.MonkeyPatch, own: str, target: str, crossed: bool
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "here", "6", "1", own)))
    wanted = read_request({**GIVEN, "TARGET_MACHINE": target}, cores=2, memory=8192)
    flags = compose(wanted)
    assert {*arguments.PROCESSORS[target or own]} <= {*flags}
    assert ({*arguments.CROSS} <= {*flags}) == crossed
    assert bool({*arguments.CROSS} & {*flags}) == crossed
