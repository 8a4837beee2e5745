import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tests.command import Run
from tests.makers.publication import PLAN, finish_build, publish
from toolkit import records
from toolkit.base import keys
from toolkit.base.errors import CheckError
from toolkit.base.steps import Task
from toolkit.cli import app
from toolkit.jobs import pipeline
from toolkit.records import Artifact, Link, attestation, find
from toolkit.versions import lock
from toolkit.versions.rules import choose_versions
from toolkit.versions.table import load_table
from toolkit.wheel import build, build_plan
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan
from toolkit.wheel.wheel_folder import FinishedWheel


def test_wheel_that_is_built_is_found_and_the_rest_is_for_its_cuda(run: Run) -> None:
    """Without an engine the base has no digest, so this test can compute the plan of this folder."""
    table = load_table()
    found = choose_versions(table)
    built = plan(
        lock.collect(found, table, base_image="python:3.11-slim-trixie"),
        BuildOptions(),
        pinned_flags=found.bazel_arguments,
    )
    (run.folder / "dist").mkdir()
    publish(finish_build(run.folder / "staging"), run.folder / "dist" / built.name, built)
    done = run("up", "digits", "--from-source", "--engine", "host", "--dry-run")
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line) for line in done.stdout.splitlines()]
    assert not [argv for argv in commands if "wheel-from-source" in argv]
    assert any("cuda-12.6.1" in word for argv in commands for word in argv)
    assert any(f"dist/{built.name}/tensorflow-2.19.0" in word for argv in commands for word in argv)
    smoke = next(argv for argv in commands if "--expect-cuda" in argv)
    assert smoke[smoke.index("--expect-cuda") + 1] == "12.6.1"

    done = run("build-wheel")
    assert done.returncode == 0, done.stderr
    name, digest, nothing, *ways = done.stdout.splitlines()
    folder = f"dist/{built.name}"
    assert (name.startswith(f"{folder}/tensorflow-2.19.0"), digest[:7], nothing) == (True, "sha256:", "")
    assert [way.partition(":")[0] for way in ways] == ["check it", "install it", "an image"]
    assert ways[0].endswith(f"toolkit verify {folder}")
    assert ways[2].endswith(f"toolkit build-image --wheel {folder} --cuda 12.6.1 --cudnn 9.5.0")


@pytest.mark.parametrize("reused", [False, True])
def test_a_wheel_is_signed_as_soon_as_it_is_built_and_one_that_was_there_when_it_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reused: bool
) -> None:
    folder, verified = Path("dist") / PLAN.name, list[Path]()

    def make() -> FinishedWheel:
        record = publish(finish_build(tmp_path / "staging"), folder)
        return FinishedWheel(folder=folder, record=record, reused=False)

    def stop(*_: object) -> None:
        raise CheckError("a later step fails")

    compare = attestation.compare

    def note(artifact: Artifact) -> Link:
        verified.append(artifact.folder)
        return compare(artifact)

    monkeypatch.chdir(tmp_path)
    folder.parent.mkdir()
    keys.make(tmp_path / "key")
    if reused:
        make()
    monkeypatch.setattr(
        build_plan,
        "plan_wheel",
        lambda *_, **__: SimpleNamespace(plan=PLAN, options=BuildOptions(), prepare=lambda _: None),
    )
    monkeypatch.setattr(build, "plan_tasks", lambda *_, **__: [Task(PLAN.step(folder.parent), make)])
    monkeypatch.setattr(pipeline, "choose_environment", stop)
    monkeypatch.setattr(attestation, "compare", note)
    done = CliRunner().invoke(app, ["up", "digits", "--from-source", "--engine", "host", "--sign", "key"])
    assert done.exit_code == 7, done.output
    assert verified == ([folder] if reused else []), "reading a wheel takes minutes"
    signature = find(str(folder), tmp_path).check_signature(records.read_policy([tmp_path / "key.pub"]))
    assert signature.state == "ok"
