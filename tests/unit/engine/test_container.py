import shlex
from dataclasses import replace
from pathlib import Path

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


WHOLE = Container(image="i", name="n", argv=("-c", "a b"), entrypoint="python", user="1000:7", groups=("27", "1001"),
                  userns="host", labels={"owner": "a=b"}, mounts=(("/a, b", "/in", True), ("/runs", "/out", False)),
                  environment={"A": "1=2"}, network="bridge", published=("::1", 8000), read_only=True,
                  tmpfs={"/tmp": "rw,size=2g"}, shm_size="1g", pids_limit=4096, cap_drop=("ALL",),
                  security_opt=("no-new-privileges",), init=True, terminal=True, gpus=True, devices=("0", "2"),
                  cores="2,3")  # fmt: skip
BARE = replace(WHOLE, groups=(), userns="", labels={}, mounts=(), environment={}, network="none", published=None,
               read_only=False, tmpfs={}, cap_drop=(), security_opt=(), init=False, terminal=False, gpus=False,
               devices=(), cores="")  # fmt: skip
COMMAND = """
docker run --rm --read-only --init --user 1000:7 --group-add 27 --group-add 1001 --cap-drop ALL --userns host
--security-opt no-new-privileges --network bridge --publish [::1]:8000:8000 --pids-limit 4096 --shm-size 1g
--cpuset-cpus 2,3 --tmpfs=/tmp:rw,size=2g --label=owner=a=b '--mount=type=bind,"source=/a, b",target=/in,readonly'
--mount=type=bind,source=/runs,target=/out --env=A=1=2 --gpus '"device=0,2"' --tty --entrypoint python i -c 'a b'
"""


def test_the_printed_command_is_what_the_engine_is_asked() -> None:
    assert list(WHOLE.to_command()) == shlex.split(COMMAND)
    mounts = [{"Type": "bind", "Source": "/a, b", "Target": "/in", "ReadOnly": True},
              {"Type": "bind", "Source": "/runs", "Target": "/out", "ReadOnly": False}]  # fmt: skip
    gpus = {"Driver": "", "Count": 0, "DeviceIDs": ["0", "2"], "Capabilities": [["gpu"]], "Options": {}}
    assert WHOLE.to_sdk() == {
        "image": "i", "name": "n", "command": ["-c", "a b"], "entrypoint": ["python"], "mounts": mounts,
        "user": "1000:7", "group_add": ["27", "1001"], "userns_mode": "host", "labels": {"owner": "a=b"},
        "environment": {"A": "1=2"}, "network_mode": "bridge", "ports": {"8000/tcp": ("::1", 8000)},
        "read_only": True, "tmpfs": {"/tmp": "rw,size=2g"}, "shm_size": "1g", "pids_limit": 4096, "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"], "init": True, "tty": True, "cpuset_cpus": "2,3",
        "device_requests": [gpus],
    }  # fmt: skip
    bare = "docker run --rm --user 1000:7 --network none --pids-limit 4096 --shm-size 1g --entrypoint python i -c 'a b'"
    assert shlex.join(BARE.to_command()) == bare
    kept = {"image", "name", "command", "entrypoint", "user", "pids_limit", "shm_size", "network_mode"}
    assert {name for name, value in BARE.to_sdk().items() if value} == kept


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
