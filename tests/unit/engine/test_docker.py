import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import NotFound

from toolkit.engine import Job
from toolkit.engine.docker import _explain, run
from toolkit.errors import BuildError, IntegrityError, ToolkitError

ERROR = BuildError("the build failed at [venv 1/1]", why=" 189 | >>> --mount=type=bind", remedy="the whole log is x")


@pytest.mark.parametrize(
    ("said", "kind", "why"),
    [
        (
            "    error: Failed to download `a==1`\n      cause: Hash mismatch for `a==1`\n       Expected:\n",
            IntegrityError,
            "error: Failed to download `a==1`\n       cause: Hash mismatch for `a==1`",
        ),
        (
            "    ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n",
            IntegrityError,
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
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


@pytest.fixture
def handlers() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_while_the_engine_makes_a_container_leaves_none(handlers: None, asked: signal.Signals) -> None:
    engine = Engine([asked])
    with pytest.raises(KeyboardInterrupt):
        run(engine, JOB, image="image")  # type: ignore[arg-type]
    assert engine.answered
    assert engine.made == []


def test_second_interrupt_does_not_wait_for_the_engine(handlers: None) -> None:
    engine = Engine([signal.SIGINT, signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        run(engine, JOB, image="image")  # type: ignore[arg-type]
    assert not engine.answered
