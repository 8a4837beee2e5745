import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import NotFound

from toolkit.base import manifest, naming
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, EngineError, IntegrityError, ToolkitError
from toolkit.engine import EnvironmentPlan, EnvironmentSpec, Job, buildx, docker
from toolkit.engine.client import BaseImage
from toolkit.engine.docker import DockerEngine, _explain, run
from train.system import signals

ERROR = BuildError("the build failed at [venv 1/1]", why=" 189 | >>> --mount=type=bind", remedy="the whole log is x")


@pytest.mark.parametrize(
    ("said", "kind", "why"),
    [
        (
            "    error: Failed to download `a==1`\n      cause: Hash mismatch for `a==1`\n       Expected:\n",
            IntegrityError,
            "error: Failed to download `a==1`\n       cause: Hash mismatch for `a==1`",
        ),
        ("    error: Failed to fetch `a`\n", BuildError, "error: Failed to fetch `a`"),
        ("ERROR: failed to solve: process did not complete\n", BuildError, ERROR.why),
    ],
)
def test_the_installers_words_are_the_reason(tmp_path: Path, said: str, kind: type[ToolkitError], why: str) -> None:
    log = tmp_path / "build.log"
    log.write_text(f"[venv 1/1] RUN install\n{said}Dockerfile:183\n 189 | >>> --mount=type=bind\n")
    found = _explain(ERROR, log)
    assert (type(found), found.why) == (kind, why)


def _change(image: SimpleNamespace, folder: Path, change: str) -> None:
    match change:
        case "loaded under its name and label":
            image.id = "sha256:stranger"
        case "its record is a stranger's too":
            image.id = "sha256:stranger"
            record = json.loads((folder / manifest.FILE).read_text())
            (folder / manifest.FILE).write_text(json.dumps(record | {"digest": image.id}))
        case "another plan":
            image.labels[naming.PLAN_LABEL] = "sha256:other"
        case "not trusted" | "nothing":
            pass


@pytest.mark.parametrize(
    "change",
    ["nothing", "not trusted", "another plan", "loaded under its name and label", "its record is a stranger's too"],
)
def test_only_an_image_that_this_user_has_made_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    image = SimpleNamespace(
        id="sha256:a",
        labels={naming.PLAN_LABEL: "sha256:plan"},
        attrs={"Size": 1, "Os": "linux", "Architecture": "amd64"},
    )
    client: Any = SimpleNamespace(images=SimpleNamespace(get=lambda _name: image))
    built: list[object] = []
    monkeypatch.setattr(buildx, "build", lambda command, **_options: built.append(command))
    monkeypatch.setattr(docker, "require_buildx", lambda: None)
    engine = DockerEngine(client, BaseImage(reference="base", identity="sha256:b"), state=tmp_path, target="runtime")
    plan = EnvironmentPlan(
        spec=EnvironmentSpec(tensorflow="2.19.0", python="3.11"),
        kind="image",
        reference="toolkit/runtime:one",
        digest="sha256:plan",
        folder=tmp_path / "image",
        inputs={"requirements": "sha256:c"},
        commands=(("build",),),
    )
    assert engine.find(plan) is None, "an image of this name and label was there before anything was made"
    assert not engine.prepare(plan, Console()).reused
    assert engine.find(plan)

    _change(image, plan.folder, change)
    again = engine.prepare(replace(plan, force=change == "not trusted"), Console())
    assert again.reused == (change == "nothing")
    assert len(built) == (1 if again.reused else 2)


JOB = Job(title="test", argv=("-c", "pass"))


class Engine:
    """Makes a container after it was asked to, as an engine does. An interrupt comes in between."""

    def __init__(self, signals: list[signal.Signals]) -> None:
        self.made: list[str] = []
        self.answered = False
        self._signals = signals
        self.containers = self.api = self

    def create(self, *, name: str, **_: object) -> object:
        for signum in self._signals:
            os.kill(os.getpid(), signum)
        self.made.append(name)
        self.answered = True
        return SimpleNamespace(attach=lambda **_: pytest.fail("an interrupted job must not start"))

    def stop(self, name: str, timeout: int) -> None:
        if name not in self.made:
            raise NotFound(name)

    def remove_container(self, name: str, **_: object) -> None:
        self.stop(name, 0)
        self.made.remove(name)


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_while_the_engine_makes_a_container_leaves_none(asked: signal.Signals) -> None:
    engine = Engine([asked])
    assert signals.run(lambda: run(engine, JOB, image="image")) == 130  # type: ignore[arg-type]
    assert engine.answered
    assert engine.made == []


class LostEngine(Engine):
    """Starts a job, and is gone before the job ends."""

    def __init__(self) -> None:
        super().__init__([])

    def create(self, *, name: str, **_: object) -> object:
        return SimpleNamespace(attach=lambda **_: iter([(b"step 1\n", None)]), start=str, wait=self.refuse)

    def remove_container(self, name: str, **_: object) -> None:
        self.refuse()

    def refuse(self, **_: object) -> None:
        raise requests.ConnectionError("Connection refused")


def test_an_engine_that_goes_away_is_named_with_what_is_left_of_the_job() -> None:
    lines: list[str] = []
    job = replace(JOB, kept="its work is saved")
    with pytest.raises(EngineError, match=r"the container engine went away .* its work is saved") as caught:
        run(LostEngine(), job, image="image", listener=lines.append)  # type: ignore[arg-type]
    assert lines == ["step 1"]
    assert caught.value.exit_code == 5
    assert "start the engine" in caught.value.remedy
    assert "toolkit clean" in caught.value.remedy


class StoppedEngine(Engine):
    """Runs a job that says something when it is stopped, and then ends."""

    def __init__(self, code: int) -> None:
        super().__init__([])
        self._code = code
        self._stopped = threading.Event()

    def create(self, *, name: str, **_: object) -> object:
        self.made.append(name)
        return SimpleNamespace(attach=self.attach, start=str, wait=lambda **_: {"StatusCode": self._code})

    def attach(self, **_: object) -> Iterator[tuple[None, bytes]]:
        yield None, b"step 1\n"
        os.kill(os.getpid(), signal.SIGINT)
        self._stopped.wait(10)
        yield None, b"interrupted, saved\n"

    def stop(self, name: str, timeout: int) -> None:
        super().stop(name, timeout)
        self._stopped.set()


@pytest.mark.parametrize(("code", "more"), [(130, ""), (143, "interrupted\n")])
def test_what_a_job_says_when_it_is_interrupted_is_shown_and_not_said_again(
    code: int, more: str, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = StoppedEngine(code)
    assert signals.run(lambda: run(engine, JOB, image="image", listener=print)) == 130  # type: ignore[arg-type]
    assert capfd.readouterr().err == "step 1\ninterrupted, saved\n" + more
    assert engine.made == []
