"""Where passwords and tokens go, and where not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server import QuietHandler
from tests.unit.exchange import oci
from tests.unit.exchange.world import World, ask_password, log_in, read
from toolkit.base.errors import RegistryError


def test_credentials_of_docker_login_stay_with_their_registry(
    world: World, storage: oci.Registry, tmp_path: Path
) -> None:
    log_in(tmp_path, world.registry.address)

    def answer(request: QuietHandler) -> bool:
        if ask_password(request):
            return True
        where = f"http://{storage.address}{request.path}"
        return "/blobs/" in request.path and request.answer(307, headers={"Location": where}) is None

    world.registry.fault = answer
    assert world.pull() is not None
    assert len(storage.asked) == len(read(world.made))
    assert {each[3] for each in storage.asked} == {None}
    assert {each[3] for each in world.registry.asked} == {None, "Basic dXNlcjpjYW5hcnktd29yZA=="}


@pytest.mark.parametrize("entry", [{}, {"identitytoken": "canary-word"}], ids=["password", "identity"])
def test_a_token_is_fetched_where_the_registry_asks_for_one(
    world: World, tmp_path: Path, entry: dict[str, str]
) -> None:
    log_in(tmp_path, world.registry.address, **entry)

    def answer(request: QuietHandler) -> bool:
        if request.path.startswith("/token"):
            return request.answer(200, b'{"token": "abc"}') is None
        where = f"http://{world.registry.address}/token"
        return ask_password(request, f'Bearer realm="{where}",service="s",scope="repository:x:pull"', "Bearer abc")

    world.registry.fault = answer
    assert world.pull() is not None
    (asked,) = [each for each in world.registry.asked if each[1].startswith("/token")]
    wanted = ("POST", "/token", None, None) if entry else ("GET", "/token?service=s&scope=repository%3Ax%3Apull", None)
    assert asked[: len(wanted)] == wanted


@pytest.mark.parametrize("realm", ["http://192.0.2.1/token", "x", ""])
def test_no_password_goes_where_there_is_no_tls(world: World, tmp_path: Path, realm: str) -> None:
    log_in(tmp_path, world.registry.address)
    world.registry.fault = lambda request: ask_password(request, f'Bearer realm="{realm}"')
    with pytest.raises(RegistryError, match="leads to an address without TLS"):
        world.pull()


def test_credential_helpers_are_asked_and_their_failures_not_repeated(
    world: World, tmp_path: Path, install: Callable[[str, str], Path]
) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text('{"credsStore": "test"}')
    world.registry.fault = ask_password
    install("docker-credential-test", "echo canary-word >&2; echo canary-word; exit 1")
    with pytest.raises(RegistryError, match="cannot be read") as caught:
        world.pull()
    assert "canary" not in str(caught.value)
    install("docker-credential-test", """echo '{"Username": "user", "Secret": "canary-word"}'""")
    assert world.pull() is not None
