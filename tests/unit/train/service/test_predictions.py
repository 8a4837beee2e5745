import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native import needs_native
from tests.unit.train import runs
from tests.unit.train.service import serving
from tests.unit.train.service.serving import DIGITS, PIXELS, Client, conforms, list_guesses, make
from train.record.reader import digest_weights, read_newest_state
from train.service.server import find_digest
from train.use import network, prediction


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


@pytest.mark.parametrize("kernels", ["stock", pytest.param("native", marks=needs_native)])
def test_the_probabilities_of_an_image_do_not_depend_on_its_batch(
    kernels: str, tmp_path: Path, trained: network.Network
) -> None:
    stock = ("--epochs", "1", "--kernels", "stock")
    found = trained if kernels == "native" else network.load(runs.make(tmp_path, *stock), exact=True)
    assert found.form.native is (kernels == "native"), found.note
    pixels = PIXELS[:64, ..., None]
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


PART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n--b--\r\n'


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
        ("multipart/form-data; boundary=b", PART % (b"url", b"https://example.org/a.png"), 422, "is not fetched"),
        ("multipart/form-data; boundary=b", PART % (b"x", b"hello"), 422, "is a text"),
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
