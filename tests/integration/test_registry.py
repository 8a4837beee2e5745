"""Push and pull through Debian's docker-registry, with TLS of an own authority and a login."""

import json
from collections.abc import Iterator

import pytest

from tests.integration import canary
from tests.makers.registries import Machines, connect

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with connect(tmp_path_factory.mktemp("machines")) as found:
        yield found


def test_a_second_machine_gets_the_wheel_of_the_first(machines: Machines) -> None:
    password, name = machines.registry.password, machines.plan.name
    key = (machines.root / "key").read_text().splitlines()[1]
    absent = machines("second", *machines.take, DOCKER_HOST="tcp://127.0.0.1:1")
    assert absent.returncode == 5, "it would have been built"
    with canary.watch_processes(password, "cmdline") as seen:
        done = machines("first", "push", f"dist/{name}", machines.where)
        assert done.returncode == 0, done.stderr
        pulled = machines("second", *machines.take, "--json")
        assert pulled.returncode == 0, pulled.stderr
    assert json.loads(pulled.stdout)["pulled"] is True
    assert seen == []
    first, second = (machines.root / machine / "dist" / name for machine in ("first", "second"))
    # The seal is this user's, of this machine, and is not sent.
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (first, second)]
    assert all(held.pop("seal.json") for held in files)
    assert files[0] == files[1]
    checked = machines("second", "verify", f"dist/{name}", "--trust", "../key.pub")
    assert checked.returncode == 0, checked.stderr
    again = machines("first", "push", f"dist/{name}", machines.where)
    assert again.returncode == 0, again.stderr
    there = [path for path in machines.root.rglob("*") if path.is_file() and path.name not in {"key", "config.json"}]
    assert canary.search(password, there) == canary.search(key, there) == []
    said = "".join(each.stdout + each.stderr for each in (absent, done, pulled, again))
    assert password not in said
    assert key not in said
