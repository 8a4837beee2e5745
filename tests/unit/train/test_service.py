import base64
import hashlib
import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator
from PIL import Image
from sklearn import datasets

from tests.unit.train import runs, serving
from tests.unit.train.serving import Client, encode
from train.__main__ import start
from train.errors import UsageError
from train.record.reader import digest_weights, read_newest_state
from train.service import application, connection, guard, reading
from train.service.application import Service
from train.service.batches import Batches
from train.service.reading import Limits
from train.service.server import find_digest, make_service
from train.system import process
from train.use import network, prediction

LIMITS = Limits(bytes=200_000, pixels=250_000, images=80, seconds=20)
EVERYWHERE = "0.0.0.0"  # noqa: S104
DIGITS = [encode(image.astype(np.uint8)) for image in datasets.load_digits().images[:70]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> network.Network:
    return network.load(runs.make(tmp_path_factory.mktemp("runs"), "--epochs", "6"), exact=True)


def make(trained: network.Network, *, token: str = "", size: int = 64, wait: float = 0.002, **limits: Any) -> Service:
    return make_service(trained, replace(LIMITS, **limits), token=token, size=size, wait=wait)


@pytest.fixture(scope="module")
def client(trained: network.Network) -> Iterator[Client]:
    with serving.running(make(trained)) as found:
        yield found


@pytest.fixture(scope="module")
def expected(trained: network.Network, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The guesses of `predict` for the digits."""
    folder = tmp_path_factory.mktemp("digits")
    for number, content in enumerate(DIGITS):
        (folder / f"{number:02}.png").write_bytes(content)
    found = prediction.predict(trained, sorted(folder.iterdir()), 10)
    return [[guess.__dict__ for guess in each.guesses] for each in found]


def list_guesses(answer: serving.Answer) -> list[list[dict[str, Any]]]:
    assert answer.status == 200, answer.content
    return [each["guesses"] for each in answer.value["predictions"]]


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(application.DESCRIPTION.read_text())
    return value


def conforms(description: dict[str, Any], name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": description["components"]}
    Draft202012Validator(schema).validate(value)


def test_files_and_json_are_answered_as_predict_does(
    client: Client, expected: list[Any], description: dict[str, Any]
) -> None:
    assert list_guesses(client.send(DIGITS[:3], "?top=10")) == expected[:3]
    listed = [base64.b64encode(each).decode() for each in DIGITS[3:5]]
    answer = client.send_json({"images": [listed[0], {"name": "four", "content": listed[1]}]}, "?top=10")
    assert list_guesses(answer) == expected[3:5]
    assert [each["image"] for each in answer.value["predictions"]] == ["image 1", "four"]
    conforms(description, "Predictions", answer.value)
    assert [len(each) for each in list_guesses(client.send(DIGITS[:1]))] == [5]
    assert [len(each) for each in list_guesses(client.send(DIGITS[:1], "?top=99"))] == [10]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_the_batch_makes_no_difference(trained: network.Network, expected: list[Any], size: int) -> None:
    numbers = np.random.default_rng(size)
    groups = np.split(numbers.permutation(len(DIGITS)), np.sort(numbers.integers(0, len(DIGITS), 30)))
    service = make(trained, size=size, wait=0.01, images=500)
    with serving.running(service) as client, ThreadPoolExecutor(16) as pool:

        def send(group: Any) -> list[Any]:
            return list_guesses(client.send([DIGITS[index] for index in group], "?top=10"))

        groups = [group for group in groups if len(group)]
        for group, found in zip(groups, pool.map(send, groups), strict=True):
            assert found == [expected[index] for index in group]
    counts = re.findall(r'toolkit_batch_images_bucket{le="(\d+)"} (\d+)', service.metrics.render())
    (total,) = re.findall(r"toolkit_batch_images_count (\d+)", service.metrics.render())
    assert dict(counts)[{1: "1", 7: "8", 64: "64"}[size]] == total
    assert (int(total) < len(DIGITS)) is (size > 1), "images of several requests were computed together"


@pytest.mark.parametrize("kernels", ["stock", "native"])
def test_the_probabilities_of_an_image_do_not_depend_on_its_batch(
    kernels: str, tmp_path: Path, trained: network.Network
) -> None:
    found = network.load(runs.make(tmp_path, "--epochs", "1", "--kernels", kernels), exact=True)
    assert found.form.native is (kernels == "native"), found.note
    pixels = datasets.load_digits().images[:64, ..., None].astype(np.uint8)
    whole = found.compute_probabilities(pixels)
    numbers = np.random.default_rng(0)
    for count in (1, 2, 3, 8, 9, 31, 64):
        order = numbers.permutation(64)
        parts = [found.compute_probabilities(pixels[order[at : at + count]]) for at in range(0, 64, count)]
        assert np.array_equal(np.concatenate(parts), whole[order]), count


def test_the_picture_is_that_of_predict(client: Client, trained: network.Network, tmp_path: Path) -> None:
    (tmp_path / "three.png").write_bytes(DIGITS[3])
    list(prediction.predict(trained, [tmp_path / "three.png"], 1, tmp_path / "drawn"))
    (entry,) = client.send(DIGITS[3:4], "?explain=1").value["predictions"]
    kind, _, content = entry["explanation"].partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content) == (tmp_path / "drawn" / "0001-three.png").read_bytes()


def test_an_image_that_cannot_be_read_leaves_the_others(client: Client, expected: list[Any]) -> None:
    answer = client.send([DIGITS[0], DIGITS[1][:50], DIGITS[2]], "?top=10")
    first, broken, last = answer.value["predictions"]
    assert [first["guesses"], last["guesses"]] == [expected[0], expected[2]]
    assert (answer.status, broken["guesses"]) == (200, [])
    assert "broken" in broken["problem"]


def test_what_is_not_an_image_is_refused(client: Client, description: dict[str, Any]) -> None:
    for content, said in ((b"text", "no image that can be read"), (b"", "no bytes"), (DIGITS[0][:50], "broken")):
        answer = client.send([content])
        assert answer.status == 422
        assert said in answer.value["predictions"][0]["problem"]
        conforms(description, "Predictions", answer.value)
    assert client.send([]).status == 422


def test_formats_with_readers_that_start_programs_are_not_read(client: Client) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "EPS")
    with Image.open(io.BytesIO(file.getvalue())) as image:
        assert image.format == "EPS"
    assert client.send([file.getvalue()]).status == 422


def test_every_format_that_predict_takes_by_its_suffix_is_read(client: Client) -> None:
    for form in reading.FORMATS:
        answer = client.send([encode(np.zeros((9, 9, 3), np.uint8), form)])
        assert answer.status == 200, (form, answer.content)


@pytest.mark.parametrize(
    ("kind", "body", "status", "said"),
    [
        ("text/plain", b"hello", 415, "text/plain"),
        ("", b"hello", 415, "of no type"),
        ("image/png", DIGITS[0], 415, "image/png"),
        ("application/json", b"{", 400, "not JSON"),
        ("application/json", b"[" * 100_000, 400, "not JSON"),
        ("application/json", b"\xff", 400, "not JSON"),
        ("application/json", b"[]", 422, "no list of images"),
        ("application/json", b'{"images": []}', 422, "holds no image"),
        ("application/json", b'{"images": [3]}', 422, "has no content"),
        ("application/json", b'{"images": [{"content": 3}]}', 422, "has no content"),
        ("application/json", b'{"images": [{"content": "", "name": 3}]}', 422, "has no content"),
        ("application/json", b'{"images": ["%%%%"]}', 422, "not base64"),
        ("application/json", '{"images": ["ä"]}'.encode(), 422, "not base64"),
        ("application/json", b'{"images": ["http://127.0.0.1/a.png"]}', 422, "is not fetched"),
        ("application/json", b'{"images": [{"url": "https://example.org/a.png"}]}', 422, "is not fetched"),
        ("application/json", b'{"images": [{"content": " FILE:///etc/passwd"}]}', 422, "is not fetched"),
        ("multipart/form-data", b"x", 400, "cannot be read"),
        ("multipart/form-data; boundary=b", b"x", 400, "cannot be read"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="url"\r\n\r\nhttps://example.org/a.png\r\n--b--\r\n',
            422,
            "is not fetched",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nhello\r\n--b--\r\n',
            422,
            "is a text",
        ),
    ],
)
def test_what_is_not_a_request_for_predictions_is_refused(
    client: Client, kind: str, body: bytes, status: int, said: str, description: dict[str, Any]
) -> None:
    answer = client.ask("POST", "/predictions", body, {"Content-Type": kind} if kind else {})
    assert answer.status == status, answer.content
    assert said in answer.what
    conforms(description, "Refusal", answer.value)


@pytest.mark.parametrize("query", ["?top=0", "?top=x", "?top=-1", "?top=999999999999", "?explain=yes"])
def test_a_wrong_option_is_refused(client: Client, query: str) -> None:
    assert client.send(DIGITS[:1], query).status == 422


def test_limits_on_bytes_pixels_and_images(client: Client) -> None:
    big = client.send([bytes(LIMITS.bytes)])
    assert (big.status, big.what) == (413, "a request may have 200,000 bytes")
    declared = client.ask("POST", "/predictions", b"x", {"Content-Type": "application/json", "Content-Length": "9" * 9})
    assert declared.status == 413
    assert client.send([encode(np.zeros((500, 500), np.uint8))]).status == 200
    answer = client.send([encode(np.zeros((501, 500), np.uint8))])
    assert answer.status == 413
    assert "250,000" in answer.value["predictions"][0]["problem"]
    assert client.send([DIGITS[0]] * 81).status == 413
    assert client.send_json({"images": [""] * 81}).status == 413


def test_a_body_in_pieces_is_bounded_too(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), 20) as opened:
        opened.sendall(
            b"POST /predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        opened.sendall(b"30D41\r\n" + bytes(200_001) + b"\r\n0\r\n\r\n")
        assert opened.recv(12) == b"HTTP/1.1 413"


def _slow(service: Service, event: threading.Event) -> Service:
    """Return a service that computes only after an event."""
    compute = service.batches.compute

    def wait(pixels: Any) -> Any:
        assert event.wait(30)
        return compute(pixels)

    batches = Batches(compute=wait, metrics=service.metrics, size=1, wait=0, limit=service.batches.limit)
    return replace(service, batches=batches)


def test_a_full_queue_is_refused_with_a_time_to_try_again(trained: network.Network, expected: list[Any]) -> None:
    event = threading.Event()
    with serving.running(_slow(make(trained, images=3), event)) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.send, DIGITS[:1], "?top=10")
        time.sleep(0.5)  # it is being computed, and three more fit in the queue
        waiting = pool.submit(client.send, DIGITS[1:4], "?top=10")
        while "toolkit_images_waiting 3" not in client.ask("GET", "/metrics").content.decode():
            time.sleep(0.02)
        refused = client.send(DIGITS[4:5])
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert client.ask("GET", "/health").status == 200
        event.set()
        assert list_guesses(first.result()) + list_guesses(waiting.result()) == expected[:4]
        assert client.send(DIGITS[4:5]).status == 200


def test_an_answer_that_takes_too_long_is_given_up(trained: network.Network) -> None:
    event = threading.Event()
    with serving.running(_slow(make(trained, seconds=0.5), event)) as client:
        answer = client.send(DIGITS[:1])
        assert (answer.status, answer.headers["retry-after"]) == (504, "1")
        event.set()
        assert client.send(DIGITS[:1]).status == 200


def test_a_body_that_takes_too_long_is_given_up(trained: network.Network) -> None:
    with (
        serving.running(make(trained, seconds=0.5)) as client,
        socket.create_connection(("127.0.0.1", client.port), 20) as opened,
    ):
        opened.sendall(
            b"POST /predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10\r\n\r\n{"
        )
        assert opened.recv(12) == b"HTTP/1.1 408"


def test_a_connection_without_a_request_is_closed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    for sent in (b"", b"GET / HTTP/1.1\r\nHost: local"):
        with socket.create_connection(("127.0.0.1", client.port), 20) as opened:
            opened.sendall(sent)
            began = time.monotonic()
            assert opened.recv(1) == b""
            assert time.monotonic() - began < 5


def test_a_defect_of_the_network_is_an_error_of_its_requests_alone(
    trained: network.Network, expected: list[Any]
) -> None:
    service = make(trained)
    compute, fails = service.batches.compute, [True]

    def fail(pixels: Any) -> Any:
        if fails.pop() if fails else False:
            raise RuntimeError("planted")
        return compute(pixels)

    service.batches.compute = fail
    with serving.running(service) as client:
        assert client.send(DIGITS[:1]).status == 500
        assert list_guesses(client.send(DIGITS[:1], "?top=10")) == expected[:1]


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
    monkeypatch.delenv(guard.TOKEN, raising=False)
    for host in (EVERYWHERE, "::", "192.0.2.1", "example.org"):
        assert start(["serve", run, "--host", host]) == 2
        assert "there is no token" in capsys.readouterr().err
    (tmp_path / "token").write_text("short\n")
    assert start(["serve", run, "--host", EVERYWHERE, "--token-file", str(tmp_path / "token")]) == 2
    assert start(["serve", run, "--token-file", str(tmp_path / "missing")]) == 2
    assert "short" not in capsys.readouterr().err.replace("the token is not fit", "")
    (tmp_path / "token").write_text("0123456789abcdef\n")
    assert guard.read_token(tmp_path / "token") == "0123456789abcdef"
    monkeypatch.setenv(guard.TOKEN, "abcdefghijklmnopqrst")
    assert guard.read_token(None) == "abcdefghijklmnopqrst"
    guard.require_guard(EVERYWHERE, "abcdefghijklmnopqrst", published=False)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        guard.require_guard(host, "", published=False)
    monkeypatch.setenv(guard.TOKEN, "0123456789 with spaces\x07")
    with pytest.raises(UsageError, match="not fit"):
        guard.read_token(None)


def test_a_port_that_is_taken_is_refused(trained: network.Network, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert start(["serve", str(trained.folder), "--port", str(taken.getsockname()[1])]) == 4
    assert "choose another with --port" in capsys.readouterr().err
    assert start(["serve", str(trained.folder.parent)]) == 9


def test_the_description_has_what_there_is(client: Client, description: dict[str, Any]) -> None:
    assert client.ask("GET", "/openapi.json").value == json.loads(json.dumps(description))
    for path, methods in description["paths"].items():
        (method,) = methods
        other = "GET" if method == "post" else "POST"
        assert client.ask(other, path).status == 405
        if method == "get":
            assert client.ask("GET", path).status == 200
    assert client.ask("GET", "/nothing").status == 404
    listed = set(description["paths"])
    assert set(re.findall(r'path="([^"]+)"', client.ask("GET", "/metrics").content.decode())) <= listed | {"other"}


def test_the_facts_are_those_of_the_run(client: Client, trained: network.Network, description: dict[str, Any]) -> None:
    facts = client.ask("GET", "/metadata").value
    conforms(description, "Metadata", facts)
    manifest = json.loads((trained.folder / "manifest.json").read_text())
    saved = read_newest_state(trained.folder)
    assert saved
    assert facts["digests"]["weights"] == manifest["weights_sha256"] == digest_weights(saved)
    assert facts["digests"]["config"] == manifest["config_sha256"]
    assert facts["result"]["test_accuracy"] == manifest["result"]["test_accuracy"]
    assert facts["classes"] == list("0123456789")
    chain = {"kind": "image", "digest": "i", "parent": {"kind": "wheel", "digest": "w"}}
    assert (find_digest(chain, "wheel"), find_digest(chain, "lock"), find_digest(None, "wheel")) == ("w", "", "")


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
                assert process.close_network() == ""
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
