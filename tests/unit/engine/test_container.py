import argparse
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base import naming
from toolkit.engine import Job, Mount, container
from toolkit.engine.container import Container, describe


def _job(**changes: object) -> Job:
    return Job(**{"title": "test", "argv": ("-c", "pass"), **changes})  # type: ignore[arg-type]


def test_everything_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "list_cores", lambda: "")
    asked = describe(_job(), image="i")
    assert asked == Container(
        image="i",
        name=asked.name,
        argv=("-c", "pass"),
        user=asked.user,
        groups=(),
        userns="",
        entrypoint="python",
        labels={naming.OWNER_LABEL: "toolkit", naming.JOB_LABEL: "test"},
        mounts=(),
        environment={},
        network="none",
        read_only=True,
        tmpfs={"/tmp": "rw,nosuid,nodev,size=2g,mode=1777"},
        shm_size="1g",
        cap_drop=("ALL",),
        security_opt=("no-new-privileges",),
        pids_limit=4096,
        init=True,
        terminal=False,
        gpus=False,
    )
    assert not asked.user.startswith("0:"), "nothing is mounted that only root may read"


def test_what_is_asked_for_is_given_and_no_more(tmp_path: Path) -> None:
    mounts = (Mount(source=tmp_path, target="/in"), Mount(source=tmp_path / "out", target="/out", writable=True))
    asked = describe(_job(mounts=mounts, argv=("x", mounts[0]), network=True, gpu=True), image="i").to_sdk()
    assert asked["command"] == ["x", "/in"]
    assert asked["network_mode"] == "bridge"
    assert asked["device_requests"][0]["Capabilities"] == [["gpu"]]
    seen = [(mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in asked["mounts"]]
    assert seen == [(str(tmp_path), "/in", True), (str(tmp_path / "out"), "/out", False)]


WORD = st.text(st.characters(exclude_categories=["C"], exclude_characters="=:"), min_size=1)
FOLDER = st.text(st.characters(exclude_categories=["C"]), min_size=1).map("/".__add__)


@st.composite
def containers(draw: st.DrawFn) -> Container:
    return Container(
        image=draw(WORD.filter(lambda word: not word.startswith("-"))),
        name=draw(WORD.filter(lambda word: not word.startswith("-"))),
        argv=draw(st.lists(st.text()).map(tuple)),
        user=draw(st.sampled_from(["1000:1000", "0:0"])),
        groups=draw(st.sampled_from([(), ("27",), ("27", "1001")])),
        userns=draw(st.sampled_from(["", "host"])),
        entrypoint=draw(st.sampled_from(["python", "sh"])),
        mounts=draw(st.lists(st.tuples(FOLDER, FOLDER, st.booleans())).map(tuple)),
        labels=draw(st.dictionaries(WORD, st.text())),
        environment=draw(st.dictionaries(WORD, st.text())),
        network=draw(st.sampled_from(["none", "bridge"])),
        published=draw(st.sampled_from([None, ("127.0.0.1", 8000), ("::1", 1)])),
        read_only=draw(st.booleans()),
        tmpfs=draw(st.dictionaries(st.sampled_from(["/tmp", "/run"]), st.sampled_from(["rw,size=2g", "mode=1777"]))),
        shm_size=draw(st.sampled_from(["1g", "64m"])),
        cap_drop=draw(st.sampled_from([("ALL",), ("NET_RAW", "MKNOD"), ()])),
        security_opt=draw(st.sampled_from([("no-new-privileges",), ("no-new-privileges", "seccomp=x.json"), ()])),
        pids_limit=draw(st.integers(1, 1 << 20)),
        init=draw(st.booleans()),
        terminal=draw(st.booleans()),
        gpus=draw(st.booleans()),
        devices=draw(st.sampled_from([(), ("0",), ("0", "2"), ("GPU-3",)])),
        cores=draw(st.sampled_from(["", "0", "2,3"])),
    )


def read_command(argv: Sequence[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for name in ("rm", "read-only", "init", "tty"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("user", "userns", "network", "shm-size", "entrypoint", "gpus", "cpuset-cpus", "name", "publish"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--pids-limit", type=int)
    for name in ("group-add", "cap-drop", "security-opt", "tmpfs", "label", "mount", "env"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    assert list(argv[:2]) == ["docker", "run"]
    options = argv[: argv.index("--entrypoint")]
    assert options.count("--cpuset-cpus") <= 1, "the parser takes the last one, as docker does"
    read = parser.parse_args(argv[2:])
    mounts = []
    for line in read.mount:
        (words,) = csv.reader([line], strict=True)
        named = dict(word.partition("=")[::2] for word in words)
        mounts.append((named["type"], named["source"], named["target"], "readonly" in named))
    return {
        "image": read.image,
        "command": read.command,
        "entrypoint": [read.entrypoint],
        "user": read.user,
        "group_add": read.group_add,
        "userns_mode": read.userns,
        "labels": dict(word.partition("=")[::2] for word in read.label),
        "environment": dict(word.partition("=")[::2] for word in read.env),
        "mounts": mounts,
        "network_mode": read.network,
        "ports": read.publish and read_port(read.publish),
        "read_only": read.read_only,
        "tmpfs": dict(word.partition(":")[::2] for word in read.tmpfs),
        "shm_size": read.shm_size,
        "cap_drop": read.cap_drop,
        "security_opt": read.security_opt,
        "pids_limit": read.pids_limit,
        "cpuset_cpus": read.cpuset_cpus,
        "init": read.init,
        "tty": read.tty,
        "gpus": read.gpus and next(csv.reader([read.gpus], strict=True)),
        "name": read.name,
    }


def read_port(text: str) -> dict[str, tuple[str, int]]:
    address, here, inside = text.rsplit(":", 2)
    return {f"{inside}/tcp": (address.strip("[]"), int(here))}


@given(containers())
def test_the_printed_command_is_what_the_engine_is_asked(container: Container) -> None:
    asked = container.to_sdk()
    name, printed = asked.pop("name"), read_command(container.to_command())
    assert name == container.name
    assert printed.pop("name") is None
    asked["mounts"] = [
        (mount["Type"], mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in asked["mounts"]
    ]
    devices = asked.pop("device_requests")
    expected = [f"device={','.join(container.devices)}"] if container.devices else ["all"]
    if devices:
        assert devices[0]["Capabilities"] == [["gpu"]]
        assert (devices[0]["Count"] == -1) == (not container.devices)
        assert devices[0]["DeviceIDs"] == [*container.devices]
    assert bool(devices) == container.gpus
    asked["gpus"] = expected if devices else None
    assert printed == asked


def test_a_secret_is_handed_over_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "canary")
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    asked = describe(_job(inherit=("HF_TOKEN", "HF_ENDPOINT")), image="i")
    assert asked.to_sdk()["environment"] == {"HF_TOKEN": "canary"}
    assert [word for word in asked.to_command() if word.startswith("--env")] == ["--env=HF_TOKEN"]
    assert "canary" not in repr(asked)


@given(st.lists(st.text()))
def test_no_argument_becomes_two(arguments: list[str]) -> None:
    asked = describe(_job(argv=tuple(arguments)), image="i")
    assert asked.to_sdk()["command"] == arguments
    assert asked.to_command()[-len(arguments) - 1 :] == ["i", *arguments]


def test_a_container_gets_the_cores_of_the_command_that_starts_it() -> None:
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert describe(_job(), image="i").cores == ("" if os.cpu_count() == 1 else str(min(cores)))
    finally:
        os.sched_setaffinity(0, cores)
    assert len(cores) < (os.cpu_count() or 1) or not describe(_job(), image="i").cores
