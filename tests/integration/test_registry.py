"""Push and pull through Debian's docker-registry, with TLS of an own authority and a login."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.integration import canary
from tests.makers.registries import Machines, connect
from tests.unit.records.maker import change_json
from toolkit.base import digest, manifest
from toolkit.wheel import wheel_documents, wheel_folder

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def replace_wheel(made: Path, content: Iterable[bytes]) -> None:
    """Put other bytes in the workspace of a wheel, and their digest into its records."""
    workspace = wheel_folder.find_wheel(made)
    before = digest.read_file(workspace).removeprefix("sha256:")
    with workspace.open("wb") as stream:
        stream.writelines(content)
    after = digest.read_file(workspace).removeprefix("sha256:")
    for record in (made / name for name in (manifest.FILE, wheel_documents.PROVENANCE, wheel_documents.BILL)):
        record.write_text(record.read_text().replace(before, after))
    size = {"bytes": workspace.stat().st_size}
    change_json(made / manifest.FILE, lambda record: record["facts"]["inspection"].update(size))
    wheel_folder.write_sums(made)


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


def test_a_tag_has_a_wheel_for_each_platform_and_one_that_is_absent_is_named(machines: Machines) -> None:
    tagged = f"{machines.where}:2.19"
    for _ in range(2):
        done = machines("first", "push", f"dist/{machines.plan.name}", tagged)
        assert (done.returncode, done.stdout.strip()) == (0, tagged), done.stderr
    words = ("build-wheel", "--from", tagged, "--trust", "../key.pub", "--out", "tagged")
    pulled = machines("second", *words, "--platform", "linux/amd64", "--json")
    assert pulled.returncode == 0, pulled.stderr
    assert json.loads(pulled.stdout)["plan"] == machines.plan.digest
    refused = machines("second", *words, "--platform", "linux/arm64", "--tensorflow", "2.21.0")
    assert refused.returncode == 3, refused.stderr
    assert f"{tagged} has no wheel for linux/arm64\n  why: it has linux/amd64" in refused.stderr


def test_who_may_not_read_is_told_what_to_do(machines: Machines) -> None:
    wrong = machines("third", *machines.take)
    assert wrong.returncode == 11, wrong.stderr
    assert f"try: `docker login {machines.registry.host}`" in wrong.stderr
    strange = machines("second", *machines.take, "--out", "third", TOOLKIT_CA_BUNDLE="", SSL_CERT_FILE="")
    assert strange.returncode == 11, strange.stderr
    assert "certificate verify failed" in strange.stderr
    assert not (machines.root / "third" / "dist").exists()


@pytest.mark.weekly
def test_a_killed_download_goes_on(tmp_path: Path) -> None:
    pieces = (os.urandom(1 << 20) for _ in range(300))
    with connect(tmp_path, lambda made: replace_wheel(made, pieces)) as machines:
        dist = machines.root / "first" / "dist" / machines.plan.name
        assert machines("first", "push", str(dist), machines.where).returncode == 0
        value = digest.read_file(wheel_folder.find_wheel(dist))
        part, process = machines.find_part(value), machines.start("second", *machines.take)
        while not part.exists() or part.stat().st_size < 10 << 20:
            assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()
        came, workspace = part.stat().st_size, machines.root / "second" / "dist"
        assert came < 300 << 20
        assert [path for path in workspace.iterdir() if not path.name.startswith(".")] == []
        done = machines("second", *machines.take)
        assert done.returncode == 0, done.stderr
        assert machines.registry.list_answers("GET", value)[-1] == 206
        assert [path.name for path in workspace.iterdir()] == [machines.plan.name]
        assert digest.read_file(wheel_folder.find_wheel(workspace / machines.plan.name)) == value
