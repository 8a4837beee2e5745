"""Push and pull through Debian's docker-registry where it admits the tokens of another service, as ghcr.io does."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.integration.docker import tokens
from tests.makers.registries import Machines, connect
from toolkit.base import digest
from toolkit.base.errors import RegistryError
from toolkit.engine.registry import Client, Layer, parse
from toolkit.records import transfer

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tokens.Service]:
    with tokens.serve(tmp_path_factory.mktemp("tokens")) as found:
        yield found


@pytest.fixture(scope="module")
def machines(service: tokens.Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with connect(tmp_path_factory.mktemp("machines"), service=service) as found:
        done = found("first", "push", f"dist/{found.plan.name}", found.where)
        assert done.returncode == 0, done.stderr
        yield found


def test_what_may_be_pushed_and_pulled_is_what_was_asked_for(machines: Machines, service: tokens.Service) -> None:
    asked = {tuple(sorted(scope.rpartition(":")[2].split(","))) for scope, _ in service.granted}
    assert asked == {("pull",), ("pull", "push")}
    service.granted.clear()
    done = machines("second", *machines.take)
    assert done.returncode == 0, done.stderr
    assert [scope for scope, _ in service.granted] == ["repository:team/tensorflow:pull"]
    assert service.password not in done.stdout + done.stderr
    wrong = machines("third", *machines.take)
    assert wrong.returncode == 11, wrong.stderr
    assert "answered 401 when it was asked for a token" in wrong.stderr
    assert "wrong password" in wrong.stderr


@pytest.fixture
def talk(machines: Machines, service: tokens.Service, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("DOCKER_CONFIG", str(machines.root / "second" / "docker"))
    service.granted.clear()
    return Client(parse(machines.where), str(machines.registry.authority))


def test_a_token_that_expires_is_asked_for_again(
    machines: Machines, talk: Client, service: tokens.Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag, address = transfer.name_tag(machines.plan.digest), f"https://{machines.registry.host}/v2/"
    monkeypatch.setattr(service, "lifetime", 10 - tokens.LEEWAY)
    layers = talk.find(tag, transfer.KIND)
    assert layers is not None
    ((_, token),) = service.granted
    header, authority = {"Authorization": f"Bearer {token}"}, str(machines.registry.authority)
    while requests.get(address, headers=header, verify=authority, timeout=60).ok:
        pass
    monkeypatch.setattr(service, "lifetime", -3600)
    with pytest.raises(RegistryError, match="answered 401 when it was asked for"):
        talk.find(tag, transfer.KIND)
    assert len(service.granted) == 2, "a token that is refused at once is not asked for again and again"
    monkeypatch.setattr(service, "lifetime", 300)
    for layer in layers:
        talk.download(layer, tmp_path / layer.title)
    assert len(service.granted) == 3


def test_a_token_that_expires_before_a_file_is_sent(
    talk: Client, service: tokens.Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry refuses it before it has read the file, and closes the connection."""
    monkeypatch.setattr(service, "lifetime", -3600)
    expired = [service.sign("tests", "repository:team/tensorflow:pull,push")]
    monkeypatch.setattr(service, "lifetime", 300)
    send = talk._send

    def spoil(method: str, url: str, headers: Mapping[str, str], *rest: Any, **query: Any) -> requests.Response:
        used = {"Authorization": f"Bearer {expired.pop()}"} if method == "PUT" and expired else {}
        return send(method, url, {**headers, **used}, *rest, **query)

    monkeypatch.setattr(talk, "_send", spoil)
    (tmp_path / "file").write_bytes(os.urandom(8 << 20))
    value = digest.read_file(tmp_path / "file")
    talk.upload(value, tmp_path / "file")
    assert expired == []
    talk.download(Layer(title="file", digest=value, size=8 << 20), tmp_path / "again")
