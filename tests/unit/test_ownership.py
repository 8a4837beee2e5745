import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError
from typer.testing import CliRunner

from tests.loaded import become
from toolkit.__main__ import main
from toolkit.base import files, manifest, naming, ownership, seals
from toolkit.base.manifest import Manifest
from toolkit.cli import app
from toolkit.engine import custody

PLAN = "sha256:67d1fe14fdb7" + "0" * 52
TAG = "toolkit/train:cpu-67d1fe14fdb7"
IDENTITY = "sha256:1"


class Engine:
    """Stands in for the SDK's client: has containers, images, networks and volumes, and notes what is removed."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.made: dict[str, list[Any]] = {kind: [] for kind in ("containers", "images", "networks", "volumes")}
        for kind, made in self.made.items():
            listed = SimpleNamespace(list=lambda made=made, **options: self._list(made, **options), remove=self._remove)
            setattr(self, kind, listed)

    def df(self) -> dict[str, Any]:
        return {"Volumes": [{"Name": item.name, "UsageData": {"Size": 5_000_000}} for item in self.made["volumes"]]}

    def container(self, name: str, status: str = "exited", **labels: str) -> None:
        def remove(*, force: bool, v: bool) -> None:
            if status == "running" and not force:
                raise APIError("it is running")
            self._remove(name)

        labels |= {naming.JOB_LABEL: "train"}
        attrs = {"Image": IDENTITY}
        made = SimpleNamespace(id=name, name=name, status=status, labels=labels, attrs=attrs, remove=remove)
        self.made["containers"].append(made)

    def image(self, *tags: str, identity: str = IDENTITY, plan: str = PLAN) -> None:
        labels = {naming.OWNER_LABEL: "toolkit", naming.PLAN_LABEL: plan}
        made = SimpleNamespace(id=identity, tags=tags, labels=labels, attrs={"Size": 2_000_000_000}, client=self)
        self.made["images"].append(made)

    def volume(self, name: str) -> None:
        labels = {naming.OWNER_LABEL: "toolkit"}
        self.made["volumes"].append(SimpleNamespace(name=name, labels=labels, remove=lambda: self._remove(name)))

    def _remove(self, name: str) -> None:
        self.removed.append(name)
        for made in self.made.values():
            made[:] = [item for item in made if item.name != name] if made and hasattr(made[0], "name") else made

    def _list(self, made: list[Any], *, filters: dict[str, str], **_: object) -> list[Any]:
        name, _, value = filters["label"].partition("=")
        return [item for item in made if name in item.labels and value in {"", item.labels[name]}]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("toolkit.engine.client.connect", lambda: made)
    monkeypatch.setattr("toolkit.engine.buildx.find_caches", list)
    return made


def record(state: Path) -> None:
    ownership.claim(state)
    facts = {"tag": TAG, "plan": PLAN, "engine": "docker", "base": {"name": naming.name_standin("3.11")}}
    folder = state / "image-train-cpu-67d1fe14fdb7"
    manifest.write(folder, Manifest(kind="image", digest=IDENTITY, facts=facts))
    seals.make_key()
    custody.seal(folder, IDENTITY)


def call(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["clean", "--json", *arguments])
    assert done.exit_code == code, done.output
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_a_state_folder_keeps_its_id_where_it_moves_and_a_copy_gets_its_own(engine: Engine, tmp_path: Path) -> None:
    first = ownership.claim(tmp_path / "one")
    assert ownership.claim(tmp_path / "one") == ownership.find(tmp_path / "one") == first
    (tmp_path / "one").rename(tmp_path / "moved")
    assert ownership.claim(tmp_path / "moved") == first
    shutil.copytree(tmp_path / "moved", tmp_path / "copy")
    assert ownership.find(tmp_path / "copy") == "", "otherwise each would remove what the other made"
    assert ownership.claim(tmp_path / "copy") != first
    assert ownership.find(tmp_path / "moved") == first
    assert set(ownership.list_states().values()) == {tmp_path / "moved", tmp_path / "copy"}


def test_nothing_is_removed_without_an_answer(engine: Engine) -> None:
    record(Path(".toolkit"))
    engine.image(TAG)
    done = CliRunner().invoke(app, ["clean"])
    assert done.exit_code == 2
    assert "give --yes" in done.stderr
    assert f"would remove image {TAG} (2.0 GB)" in done.stdout
    assert not engine.removed
    value = call("--dry-run")
    assert (value["dry_run"], value["sizes"][f"image {TAG}"]) == (True, 2_000_000_000)
    assert not engine.removed
    assert f"image {TAG}" in call("--yes")["removed"]
    assert engine.removed == [TAG]
    assert call()["removed"] == [], "there is nothing to ask"


@pytest.mark.parametrize(
    ("said", "removed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("\x04", False)]
)
def test_the_answer_on_a_terminal_counts(tmp_path: Path, said: str, removed: bool) -> None:
    folder = tmp_path / ".toolkit/environment-cpu-0123456789ab"
    folder.mkdir(parents=True)

    def start() -> None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - that of pytest is no terminal
        main()

    controller, terminal = os.openpty()
    os.write(controller, said.encode())
    variables = {**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with (tmp_path / "out").open("w+") as out:
        child = os.fork()
        if child == 0:
            streams = {0: terminal, 1: out.fileno(), 2: terminal}
            become(start, ["toolkit", "clean", "--json"], tmp_path, variables, streams)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    asked = os.read(controller, 1 << 16).decode()
    for handle in (controller, terminal):
        os.close(handle)
    assert "environment-cpu-0123456789ab" in asked
    assert "remove this 1 thing, 0.0 MB? [y/N]" in asked
    assert bool(json.loads((tmp_path / "out").read_text())["removed"]) is removed
    assert folder.exists() is not removed


def test_what_others_own_is_left_and_all_removes_what_is_this_users(engine: Engine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    record(other)
    mine = {naming.USER_LABEL: str(os.getuid())}
    engine.image(TAG)
    engine.image("toolkit/train:mine-67d1fe14fdb7", "somebody/app:1", identity="sha256:2")
    engine.image("toolkit/runtime:cpu-67d1fe14fdb7", identity="sha256:3")
    engine.container("others", **mine, **{naming.STATE_LABEL: ownership.find(other)})
    engine.container("running", status="running", **mine, **{naming.STATE_LABEL: ownership.find(other)})
    engine.container("earlier")
    engine.container("colleague", **{naming.STATE_LABEL: "a" * 32, naming.USER_LABEL: str(os.getuid() + 1)})
    engine.container("unknown", **{naming.STATE_LABEL: "b" * 32})
    composed = {naming.COMPOSE_LABEL: "toolkit", naming.COMPOSE_FOLDER_LABEL: "/clone"}
    engine.container("composed", **{naming.STATE_LABEL: "", **composed})
    engine.volume("toolkit_data")

    value = call("--yes", "--force")
    assert value["removed"] == engine.removed == []
    left = dict(line.split(": ", 1) for line in value["left"])
    assert str(other) in left[f"image {TAG}"]
    assert str(other) in left["container others"]
    assert "/clone" in left["container composed"]
    assert f"the number {os.getuid() + 1}" in left["container colleague"]

    value = call("--yes", "--force", "--all", code=4)
    assert sorted(engine.removed) == ["earlier", "others", "toolkit/runtime:cpu-67d1fe14fdb7", TAG]
    assert value["kept"] == ["container running: a job is running in it"]
    assert "`docker volume rm toolkit_data`" in left["volume toolkit_data"]


def test_an_image_of_two_clones_is_left(engine: Engine, tmp_path: Path) -> None:
    record(Path(".toolkit"))
    record(tmp_path / "other")
    engine.image(TAG)
    value = call("--yes")
    assert not engine.removed
    assert any(line.startswith(f"image {TAG}: it is used by {tmp_path / 'other'}") for line in value["left"])
    shutil.rmtree(tmp_path / "other")
    record(Path(".toolkit"))
    assert f"image {TAG}" in call("--yes")["removed"]


def test_force_is_for_jobs_of_this_state_folder_and_user(engine: Engine) -> None:
    made = {naming.STATE_LABEL: ownership.claim(Path(".toolkit"))}
    engine.container("mine", status="running", **made)
    engine.container("colleague", status="running", **made, **{naming.USER_LABEL: str(os.getuid() + 1)})
    assert call("--yes", code=4)["removed"] == []
    assert call("--yes", "--force")["removed"] == ["container mine"]


def test_a_base_stays_for_all_clones(engine: Engine) -> None:
    engine.image(naming.name_standin("3.11"), plan="")
    value = call("--yes", "--all")
    assert value["removed"] == []
    assert "docker image rm" in value["left"][0]


def test_the_record_of_an_image_stays_while_no_engine_answers(run: Any) -> None:
    record(run.folder / ".toolkit")
    done = run("clean", "--yes", "--json", XDG_CACHE_HOME=str(run.folder / "cache"))
    assert json.loads(done.stdout)["removed"] == []
    assert (run.folder / ".toolkit/image-train-cpu-67d1fe14fdb7").exists()


def test_an_image_that_only_a_strangers_record_names_is_left(engine: Engine) -> None:
    """A clone or an archive can bring a state folder along. Its record is whole, but this user has not made it."""
    state = Path(".toolkit")
    record(state)
    (state / "image-train-cpu-67d1fe14fdb7" / custody.FILE).unlink()
    files.write_json(state / "image-bazel-debian" / ownership.IMAGE_FILE, {"tag": "toolkit/bazel:debian", "id": "x"})
    engine.image(TAG)
    engine.image("toolkit/bazel:debian", identity="x")
    value = call("--yes")
    assert engine.removed == []
    assert len(value["left"]) == 2
    assert all("no state folder of this user has a record of it" in line for line in value["left"])


def test_a_forged_label_makes_no_line_of_its_own(engine: Engine) -> None:
    forged = "/clone\r\nremoved image everything\x1b[2J"
    composed = {naming.COMPOSE_LABEL: "toolkit", naming.COMPOSE_FOLDER_LABEL: forged}
    engine.container("composed", **composed)
    engine.container("colleague", **{naming.USER_LABEL: forged})
    engine.image(TAG)
    engine.made["images"][0].labels[f"{naming.LABEL_PREFIX}.tensorflow"] = forged
    for command in ("ls", "clean"):
        shown = CliRunner().invoke(app, [command, "--dry-run"] if command == "clean" else [command]).output
        assert sum("removed image everything" in line for line in shown.splitlines()) >= 2
        assert not any(line.startswith("removed") for line in shown.splitlines())
        assert "\x1b" not in shown
