import base64
import hashlib
import json
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.train.service import serving
from tests.unit.train.service.serving import DIGITS, Client, make
from train.__main__ import start
from train.errors import UsageError
from train.service.options import TOKEN, find_proxies, read_hosts, read_token, require_guard
from train.system.network import close_network
from train.use import network

EVERYWHERE = "0.0.0.0"  # noqa: S104


def test_another_host_and_another_origin_are_refused(client: Client) -> None:
    for host in ("127.0.0.1", f"localhost:{client.port}", "LOCALHOST", "[::1]:80"):
        assert client.ask("GET", "/health", headers={"Host": host}).status == 200
    for host in ("rebound.example", "rebound.example:8000", "127.0.0.1.example", "", "localhost@x"):
        assert client.ask("GET", "/health", headers={"Host": host}).status == 421, host
    own = {"Host": "localhost:8000", "Origin": "http://localhost:8000"}
    assert client.send(DIGITS[:1], headers=own).status == 200
    for origin in ("http://evil.example", "http://localhost:8001", "null", ""):
        assert client.send(DIGITS[:1], headers={**own, "Origin": origin}).status == 403, origin
    assert not any(name.startswith("access-control") for name in client.ask("OPTIONS", "/predictions").headers)


def test_a_proxy_may_pass_on_the_names_that_are_allowed(
    trained: network.Network, capfd: pytest.CaptureFixture[str]
) -> None:
    hosts = read_hosts(["Predict.example.org"])
    with serving.running(replace(make(trained), hosts=hosts)) as client:
        proxied = {"Host": "predict.example.org", "Origin": "https://predict.example.org"}
        assert client.send(DIGITS[:1], headers={**proxied, "X-Forwarded-For": "192.0.2.7"}).status == 200
        assert client.send(DIGITS[:1], headers={**proxied, "Origin": "https://evil.example"}).status == 403
        assert client.ask("GET", "/health", headers={"Host": "evil.example"}).status == 421
        assert (
            "ask by one of its names"
            in client.ask("GET", "/metadata", headers={"Host": "evil.example"}).content.decode()
        )
        assert client.ask("GET", "/health").status == 200
    with serving.running(replace(make(trained, token="0123456789abcdef"), hosts=hosts)) as client:  # noqa: S106
        for host, status in (("predict.example.org", 200), ("evil.example", 421)):
            assert client.ask("GET", "/health", headers={"Host": host}).status == status
    assert " 192.0.2.7 POST /predictions 200 " in capfd.readouterr().err
    # Others may say what they like.
    with serving.running(replace(make(trained), hosts=hosts, proxies=("127.0.0.9",))) as client:
        client.ask("GET", "/health", headers={"X-Forwarded-For": "192.0.2.8"})
    said = capfd.readouterr().err
    assert (" 127.0.0.1 GET /health 200 " in said, "192.0.2.8" in said) == (True, False)
    for wrong in ("", "*", "predict.example.org:443", "https://predict.example.org", "a/b", "-x", "a,b", "*.x"):
        with pytest.raises(UsageError, match="no name of a host") as refused:
            read_hosts([wrong])
        assert "repeat the option" in str(refused.value)


def test_the_proxy_before_a_container_has_the_address_of_its_gateway(tmp_path: Path) -> None:
    assert find_proxies(tmp_path / "missing") == ("127.0.0.1", "::1")
    (tmp_path / "route").write_text(
        "Iface\tDestination\tGateway \tFlags\neth0\t000011AC\t00000000\t0001\neth0\t00000000\t010011AC\t0003\n"
    )
    assert find_proxies(tmp_path / "route") == ("127.0.0.1", "::1", "172.17.0.1")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "refused"),
    [
        ("GET", "/health", {}, 200, ""),
        ("GET", "/health", {"Host": "evil.example"}, 421, "this host is not served"),
        ("GET", "/health", {"Origin": "null"}, 403, "a page of another origin may not use the server"),
        ("GET", "/a%1B?token=secret", {}, 404, "there is no GET /a\\x1b"),
        ("PUT", "/health", {}, 405, "there is no PUT /health"),
        ("POST", "/predictions", {}, 415, "the content is of no type"),
    ],
)
def test_each_request_is_one_line(
    trained: network.Network,
    capfd: pytest.CaptureFixture[str],
    method: str,
    path: str,
    headers: dict[str, str],
    status: int,
    refused: str,
) -> None:
    with serving.running(make(trained)) as client:
        assert client.ask(method, path, headers=headers).status == status
    (line,) = capfd.readouterr().err.splitlines()
    path = path.partition("?")[0]
    found = re.fullmatch(r"[0-9T:.+-]+ 127\.0\.0\.1 (.*) \d+ ms(?:: (.*))?", line)
    assert found
    assert found[1] == f"{method} {path} {status}"
    assert (found[2] or "") == refused
    with serving.running(replace(make(trained), log="json")) as client:
        client.ask(method, path, headers=headers)
    value = json.loads(capfd.readouterr().err)
    assert value.pop("time")
    assert 0 < value.pop("seconds") < 60
    assert value.pop("refused").encode("unicode_escape").decode() == refused
    assert value.pop("host") == headers.get("Host", f"127.0.0.1:{client.port}")
    assert value == {"kind": "request", "client": "127.0.0.1", "method": method, "path": path, "status": status}


def test_the_line_of_an_image_that_cannot_be_read_says_why(
    trained: network.Network, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving.running(replace(make(trained), log="json")) as client:
        answer = client.send([b"no image"])
    assert answer.status == 422
    problem = json.loads(answer.content)["predictions"][0]["problem"]
    assert problem
    assert json.loads(capfd.readouterr().err)["refused"] == problem


def exchange(client: Client, *requests: str) -> bytes:
    """Send requests over one connection, close the own half of it, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        connection.sendall("".join(requests).encode())
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


LOCAL = "Host: 127.0.0.1\r\n\r\n"


def test_a_target_may_name_the_host(client: Client) -> None:
    for target in ("http://127.0.0.1", f"HTTP://localhost:{client.port}/health", "http://[::1]/health?x=1"):
        assert exchange(client, f"GET {target} HTTP/1.1\r\nHost: evil.example\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    for host in ("evil.example", "127.0.0.1@evil.example", "127.0.0.1.evil.example", "", "evil.example%2f127.0.0.1"):
        answer = exchange(client, f"GET http://{host}/metadata HTTP/1.1\r\n{LOCAL}")
        assert answer.startswith(b"HTTP/1.1 421 "), host


def test_a_sender_that_has_closed_its_own_half_gets_its_answers(client: Client) -> None:
    body = "x" * 100
    post = f"POST /predictions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{LOCAL}"
    assert exchange(client, post, body).startswith(b"HTTP/1.1 4")
    assert exchange(client, f"GET /health HTTP/1.0\r\n{LOCAL}").startswith(b"HTTP/1.1 200 ")
    assert exchange(client, *[f"GET /health HTTP/1.1\r\n{LOCAL}"] * 20).count(b"HTTP/1.1 200 ") == 20
    assert exchange(client, post, body[:50]) == b""
    assert exchange(client, f"GET /health HTTP/1.1\r\n{LOCAL}", post, body[:50]).count(b"HTTP/1.1 ") == 1
    assert exchange(client, "GET /health HTTP/1.1\r\n") == b""
    assert exchange(client) == b""


def test_a_token_is_asked_for(trained: network.Network, capfd: pytest.CaptureFixture[str]) -> None:
    token = "0123456789abcdef-secret"  # noqa: S105
    with serving.running(make(trained, token=token)) as client:
        for path in ("/metadata", "/metrics", "/openapi.json", "/nothing"):
            answer = client.ask("GET", path)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        for wrong in ("", f"Basic {token}", f"Bearer {token}x", "Bearer ", f"Bearer {token[:-1]}", "Bearer \xe9"):
            assert client.send(DIGITS[:1], headers={"Authorization": wrong}).status == 401
        right = {"Authorization": f"Bearer {token}", "Host": "server.example"}
        assert client.send(DIGITS[:1], headers=right).status == 200
        assert client.ask("GET", "/", headers={"Host": "server.example"}).status == 200
        assert client.ask("GET", "/health").status == 200
        assert token not in client.ask("GET", "/metadata", headers=right).content.decode()
    assert token not in "".join(capfd.readouterr())


def test_an_address_that_others_reach_needs_a_token(
    trained: network.Network, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(trained.folder)
    monkeypatch.delenv(TOKEN, raising=False)
    for host in (EVERYWHERE, "::", "192.0.2.1", "example.org"):
        assert start(["serve", run, "--host", host]) == 2
        assert "there is no token" in capsys.readouterr().err
    (tmp_path / "token").write_text("short\n")
    assert start(["serve", run, "--host", EVERYWHERE, "--token-file", str(tmp_path / "token")]) == 2
    assert start(["serve", run, "--token-file", str(tmp_path / "missing")]) == 2
    assert "short" not in capsys.readouterr().err.replace("the token is not fit", "")
    (tmp_path / "token").write_text("0123456789abcdef\n")
    assert read_token(tmp_path / "token") == "0123456789abcdef"
    monkeypatch.setenv(TOKEN, "abcdefghijklmnopqrst")
    assert read_token(None) == "abcdefghijklmnopqrst"
    (tmp_path / "token").write_text("0123456789abcdef\nfedcba9876543210\n")
    with pytest.raises(UsageError, match="has 2 lines; one token is wanted"):
        read_token(tmp_path / "token")
    require_guard(EVERYWHERE, "abcdefghijklmnopqrst", published=False)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        require_guard(host, "", published=False)
    monkeypatch.setenv(TOKEN, "0123456789 with spaces\x07")
    with pytest.raises(UsageError, match="not fit"):
        read_token(None)


def test_a_port_that_is_taken_is_refused(trained: network.Network, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert start(["serve", str(trained.folder), "--port", str(taken.getsockname()[1])]) == 4
    assert "choose another with --port" in capsys.readouterr().err
    assert start(["serve", str(trained.folder.parent)]) == 9


def test_answers_have_the_headers_of_a_closed_server(client: Client) -> None:
    answers = [client.ask("GET", "/health"), client.ask("GET", "/"), client.ask("GET", "/x"), client.send([b""])]
    for answer in [*answers, client.ask("GET", "/health", headers={"Host": "evil.example"})]:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_the_page_runs_its_own_style_and_script_alone(client: Client) -> None:
    answer = client.ask("GET", "/")
    text, policy = answer.content.decode(), answer.headers["content-security-policy"]
    for name in ("style", "script"):
        (content,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        found = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{found}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,|/openapi.json)", text)
    assert "innerHTML" not in text


def test_nothing_is_sent_by_a_process_whose_network_is_closed_but_answers(tmp_path: Path) -> None:
    """A listening socket that is made first still takes connections; a new one cannot be made."""
    import os

    with socket.create_server(("127.0.0.1", 0)) as listening:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert close_network() == ""
                accepted, _ = listening.accept()
                accepted.sendall(b"answer")
                try:
                    socket.create_connection(listening.getsockname())
                except OSError:
                    code = 0
            finally:
                os._exit(code)
        with socket.create_connection(listening.getsockname(), 20) as opened:
            assert opened.recv(6) == b"answer"
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
