import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration import canary
from tests.integration.workspace import Workspace
from tests.makers.mini_tensorflow import change, edit
from toolkit.base import keys

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("bazel"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may read layers and other users' processes"),
]


@dataclass(frozen=True)
class Trap:
    """A workspace with an rc file full of secrets. A search that finds the word ``public`` would also find a secret."""

    workspace: Workspace
    secret: str
    public: str
    since: float
    seen: list[str]

    @property
    def arguments(self) -> list[str]:
        rc = str(self.workspace.folder / "secrets" / "bazelrc")
        return ["--bazelrc", rc, "--bazel-argument", f"--define=x={self.public}"]

    def check(self, *, wheel: bool, key: str = "") -> None:
        root = canary.find_engine_root()
        engine = [root / "overlay2", root / "buildkit", root / "containers", root / "image"]
        ours = [self.workspace.folder / name for name in ("state", "dist")]
        files = canary.list_files(*engine, *ours, since=self.since)
        public = canary.search(self.public, files)
        names = {(path.is_relative_to(root), path.name) for path in public}
        assert (True, "build.log") in names or (True, "events.json") in names, "the cache mount was looked into"
        if wheel:
            assert (True, "build.json") in names, "the layer of the stage was looked into"
            assert (False, "manifest.json") in names
        assert canary.search(self.secret, files) == []
        assert not key or canary.search(key, files) == []
        assert self.seen == []


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    workspace, secret = Workspace(tmp_path), f"canary{uuid.uuid4().hex}"
    public = f"public{uuid.uuid4().hex}"
    change(workspace.source)
    with (workspace.source / ".bazelrc").open("a") as announced:
        announced.write(f"build --define=note={public}\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "bazelrc").write_text(
        f"build --remote_header=Authorization='Bearer {secret}a'\n"
        f"build --remote_cache=http://user:{secret}b@127.0.0.1:1/{secret}c\n"
        f"common --bes_header x-api-key={secret}d\n"
        f"build --test_env=TOKEN={secret}e --noshow_timestamps\n"
        f"build --build_metadata=key={secret}f\n"
        "build --announce_rc\n"
    )
    with canary.watch_processes(secret) as seen:
        yield Trap(workspace=workspace, secret=secret, public=public, since=canary.now(), seen=seen)


def test_a_build_that_went_well_leaves_no_secret(trap: Trap) -> None:
    keys.make(trap.workspace.folder / "secrets" / "key")
    text = (trap.workspace.folder / "secrets" / "key").read_text()
    key = text.splitlines()[1]
    trap.workspace.variables["SIGNING_KEY"] = text
    with canary.watch_processes(key) as seen:
        done = trap.workspace.build(*trap.arguments, "--verbose", "--sign", "env:SIGNING_KEY")
    assert done.returncode == 0, done.stderr
    assert trap.secret not in done.stdout + done.stderr
    assert key not in done.stdout + done.stderr
    # For a moment, a forked process has its parent's environment.
    holders = [name for name, count in Counter(line.partition(":")[0] for line in seen).items() if count > 1]
    assert len(holders) == 1, f"the command itself, and no process that it started: {seen}".replace(key, "KEY")
    assert holders[0].endswith("/environ")
    trap.check(wheel=True, key=key)
    assert next(trap.workspace.folder.glob("dist/*/attestation.dsse.json"))
    log = next((trap.workspace.folder / "dist").glob("*/build.log")).read_text()
    assert "--remote_header=Authorization=[redacted]" in log, "the rc file was announced"


def test_a_build_that_fails_leaves_no_secret(trap: Trap) -> None:
    edit(trap.workspace.source / "tensorflow/core/kernels/host.cc", "standin_total(", "standin_total((")
    done = trap.workspace.build(
        *trap.arguments, "--bazel-argument=--verbose_failures", "--bazel-argument=--subcommands"
    )
    assert done.returncode == 6, done.stderr
    trap.check(wheel=False)
    log = next((trap.workspace.folder / "state").glob("wheel-*/bazel/build.log")).read_text()
    assert "--remote_header=Authorization=[redacted]" in log


def test_a_build_that_is_killed_leaves_no_secret(trap: Trap) -> None:
    packer = trap.workspace.hold_packer()
    process = trap.workspace.start(*trap.arguments)
    waiting = trap.workspace.wait_for(process, packer)
    os.kill(canary.find_ancestor(waiting, b"wheelbuild"), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    began = time.monotonic()
    while Path(f"/proc/{waiting}").exists():
        assert time.monotonic() - began < 30, "Bazel outlived its build"
        time.sleep(0.1)
    assert trap.secret not in errors
    trap.check(wheel=False)


def test_settings_that_cannot_be_kept_secret_are_refused(trap: Trap) -> None:
    rc = trap.workspace.folder / "secrets" / "bazelrc"
    rc.write_text(f"build --action_env=TOKEN={trap.secret}\n")
    done = trap.workspace.build(*trap.arguments)
    assert done.returncode == 6, done.stderr
    assert "the rc file sets --action_env, whose value Bazel keeps in its caches" in done.stderr
    assert trap.secret not in done.stderr
