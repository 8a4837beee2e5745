import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.makers.publication import PLAN, finish_build, publish
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError, ToolkitError
from toolkit.versions import lock
from toolkit.versions.rules import choose_versions
from toolkit.versions.table import load_table
from toolkit.wheel import build, wheel_folder
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan


def test_result_of_the_plan_is_found_and_of_another_is_not(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    publish(finish_build(tmp_path / "staging"), tmp_path / "dist" / PLAN.name)
    found = wheel_folder.find(PLAN, tmp_path / "dist")
    assert found is not None
    assert found.reused
    assert found.wheel.name.startswith("tensorflow-2.19.0")
    table = load_table()
    other = plan(lock.collect(choose_versions(table), table, base_image="other"), BuildOptions())
    (tmp_path / "dist" / PLAN.name).rename(tmp_path / "dist" / other.name)
    assert wheel_folder.find(other, tmp_path / "dist") is None


def test_log_of_an_earlier_run_explains_nothing(
    tmp_path: Path, install: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stale log names a full disk, but this build fails before Bazel starts, because a download was changed."""
    state = tmp_path / "state"
    stale = state / "bazel" / "build.log"
    stale.parent.mkdir(parents=True)
    stale.write_text("ERROR: no space left on device\n")
    install(
        "docker",
        f'echo "$@" >>{tmp_path}/said\n[ "$1 $2" = "buildx version" ] && exit 0\n'
        'case "$*" in *bazel-log*) exit 0 ;; esac\n'
        'for word; do case $word in id=run,src=*) cat "${word#id=run,src=}" >>' + f"{tmp_path}/run ;; esac; done\n"
        'echo "ERROR: failed to solve: digest mismatch sha256:aa: sha256:bb" >&2\nexit 1',
    )
    monkeypatch.setattr(build, "require_buildx", lambda: None)
    with pytest.raises(IntegrityError, match="other bytes than were pinned"):
        build.build(PLAN, dist=tmp_path / "dist", logs=state, engine="x", console=Console())
    assert not stale.exists()
    run = (tmp_path / "run").read_text()
    assert f"--build-arg LOG_OF={run}" in (tmp_path / "said").read_text(), "the log of this very run was asked for"
    assert len(run) == 32


def test_the_printed_build_is_what_runs(
    tmp_path: Path, install: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the folder differs, which is staged and renamed, and the secret with the name of the run."""
    dist = tmp_path / "dist"
    install("docker", f'[ -e {tmp_path}/argv ] || printf "%s\\n" docker "$@" >{tmp_path}/argv\nexit 1')
    monkeypatch.setattr(build, "require_buildx", lambda: None)
    with pytest.raises(ToolkitError):
        build.build(PLAN, dist=dist, logs=tmp_path / "logs", engine="x", console=Console())
    ran = (tmp_path / "argv").read_text().splitlines()
    (run,) = (word for word in ran if word.startswith("id=run,"))
    at = ran.index(run)
    assert ran[at - 1] == "--secret"
    del ran[at - 1 : at + 1]
    (printed,) = PLAN.step(dist).commands
    words = [word.replace(str(dist / PLAN.name), "OUT") for word in printed]
    assert [re.sub(rf"{re.escape(str(dist))}/\.{PLAN.name}\.\w+", "OUT", word) for word in ran] == words
