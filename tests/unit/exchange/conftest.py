import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.makers.publication import finish_build, publish
from tests.unit.exchange import oci
from tests.unit.exchange.world import LOG, World
from toolkit.base import keys
from toolkit.records import attestation, find
from toolkit.wheel import wheel_folder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exchange")
    staging = finish_build(root / "staging")
    (staging / "build.log").write_bytes(LOG)
    wheel_folder.write_sums(staging)
    publish(staging, root / "made")
    for name in ("builder", "stranger"):
        keys.make(root / name)
    attestation.sign(find(str(root / "made"), root), keys.load(str(root / "builder")), fresh=True)
    return root


@pytest.fixture(scope="session")
def servers() -> Iterator[tuple[oci.Registry, oci.Registry]]:
    with oci.serve() as registry, oci.serve() as storage:
        yield registry, storage


@pytest.fixture(scope="session")
def pushed(made: Path, servers: tuple[oci.Registry, oci.Registry]) -> oci.Registry:
    World(made, servers[0]).push()
    kept = oci.Registry()
    kept.copy(servers[0])
    return kept


@pytest.fixture
def storage(servers: tuple[oci.Registry, oci.Registry], pushed: oci.Registry) -> oci.Registry:
    servers[1].copy(pushed)
    return servers[1]


@pytest.fixture
def world(
    made: Path,
    pushed: oci.Registry,
    servers: tuple[oci.Registry, oci.Registry],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    shutil.copytree(made, tmp_path / "world")
    monkeypatch.setattr("toolkit.engine.registry.PAUSE", 0)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    servers[0].copy(pushed)
    return World(tmp_path / "world", servers[0])
