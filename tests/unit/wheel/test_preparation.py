import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import DockerException

from tests.command import Run
from toolkit.base.errors import EngineError, PreflightError
from toolkit.engine import client
from toolkit.versions.settings import resolve
from toolkit.wheel import build_inputs

MINI = Path(__file__).parents[2] / "fixtures/mini_tensorflow"


def test_engine_without_the_base_leaves_its_digest_open_where_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PreflightError("the base image is neither on this machine nor can it be pulled")

    monkeypatch.setattr(client, "connect", lambda: SimpleNamespace(version=lambda: {"Version": "26.1.5"}))
    monkeypatch.setattr(client, "select_base", refuse)
    settings = resolve({}, environment={})
    found = build_inputs.find_images(settings)
    assert (found.base, found.digest, found.engine) == (settings.base_image, "", "docker 26.1.5")
    assert isinstance(found.trouble, PreflightError)


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        ("version", ("", "")),
        ("find_digest", ("docker 26.1.5", "")),
        ("select_base", ("docker 26.1.5", "sha256:1")),
    ],
)
def test_engine_that_stops_answering_leaves_open_what_it_did_not_tell(
    monkeypatch: pytest.MonkeyPatch, failing: str, told: tuple[str, str]
) -> None:
    def stop(*_: object) -> None:
        raise DockerException("closed") if failing == "version" else EngineError("the container engine failed")

    engine = SimpleNamespace(version=lambda: {"Version": "26.1.5"})
    monkeypatch.setattr(client, "connect", lambda: engine)
    monkeypatch.setattr(client, "find_digest", lambda *_: "sha256:1")
    monkeypatch.setattr(engine if failing == "version" else client, failing, stop)
    settings = resolve({}, environment={})
    found = build_inputs.find_images(settings, bazel="docker-image://bazel")
    assert (found.base, found.digest) == (settings.base_image, "")
    assert (found.engine, found.bazel_digest) == told
    assert isinstance(found.trouble, EngineError)


def test_dry_run_says_what_this_machine_would_take(run: Run) -> None:
    said = run("build-wheel", "--dry-run").stderr
    assert re.search(r"machine +TensorFlow from source: \d+ jobs, about \d+ h", said)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--tensorflow", "2.20.0", "--source", str(MINI)), 3, "is TensorFlow 2.19.0, and TensorFlow 2.20.0"),
        (("--downloads", ".", "--dry-run"), 2, "has neither of distdir and repository_cache"),
    ],
)
def test_what_would_come_out_after_hours_is_refused_at_once(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = run("build-wheel", *arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert list(run.folder.iterdir()) == []


@pytest.mark.parametrize("command", [["build-wheel"], ["up", "--from-source"]])
def test_refusal_does_not_wait_for_what_only_a_build_needs(command: list[str], tmp_path: Path) -> None:
    program = (
        "import sys; from toolkit.cli import app\n"
        f"try: app({[*command, '--cuda', '12.6', '--cudnn', '9.5.0']!r})\n"
        "except SystemExit as end: print(end.code)\n"
        "print(*{'docker', 'requests', 'urllib.request', 'elftools'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3"]
