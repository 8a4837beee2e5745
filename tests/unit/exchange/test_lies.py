"""What a registry on this machine may answer in place of a wheel."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.makers.publication import PLAN, finish_build, publish
from tests.server import QuietHandler
from tests.unit.exchange import oci
from tests.unit.exchange.world import WHEEL, Lie, World, flip
from tests.unit.records.maker import change_json
from toolkit.base import files, keys, manifest, signing
from toolkit.base.errors import IntegrityError, ToolkitError
from toolkit.engine import oci_manifest
from toolkit.records import attestation, find
from toolkit.wheel import wheel_folder
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan


def forge(title: str) -> Lie:
    def put(world: World) -> None:
        _, value = world.registry.find(title)
        world.registry.put(title, flip(world.registry.blobs[value]))

    return put


def serve_bytes(change: Callable[[bytes], bytes]) -> Lie:
    def lie(world: World) -> None:
        content = change(world.registry.blobs[world.registry.find(WHEEL)[1]])
        world.lie(lambda request: oci.send(request, content) is None)

    return lie


def serve_status(status: int, body: bytes = b"", *, about: str = WHEEL, **headers: str) -> Lie:
    def lie(world: World) -> None:
        world.lie(lambda request: request.answer(status, body, headers=headers) is None, about=about)

    return lie


def serve_slowly(world: World) -> None:
    def drip(request: QuietHandler) -> bool:
        request.send_response(200)
        request.end_headers()
        over = threading.Event()
        while not over.wait(0.02):
            try:
                request.wfile.write(b"x")
            except OSError:
                break
        return True

    world.lie(drip)


def serve_a_slow_head(world: World) -> None:
    def drip(request: QuietHandler) -> bool:
        over = threading.Event()
        for letter in b"HTTP/1.1 200 OK\r\n" + b"X-Header: x\r\n" * 20:
            try:
                request.wfile.write(bytes([letter]))
                request.wfile.flush()
            except OSError:
                break
            over.wait(0.02)
        return True

    world.lie(drip)


def serve_nothing(world: World) -> None:
    done = threading.Event()
    world.lie(lambda request: not done.wait(1))


def serve_other_plan(world: World) -> None:
    other = plan(PLAN.lock, BuildOptions(bazel_argument=("--copt=-O3",)))
    publish(finish_build(world.root / "staging-2"), world.root / "other", other)
    attestation.sign(find(str(world.root / "other"), world.root), keys.load(str(world.root / "builder")))
    ((tag, _),) = world.registry.tags.items()
    world.registry.tags.clear()
    world.push(world.root / "other")
    world.registry.tags = {tag: next(iter(world.registry.tags.values()))}


def serve_other_wheel(world: World) -> None:
    change_json(world.made / manifest.FILE, lambda value: value.update(digest=oci.digest(b"x")))
    wheel_folder.write_sums(world.made)
    signer = keys.load(str(world.root / "builder"))
    attestation.sign(find(str(world.made), world.root), signer, fresh=True)
    world.push(replace=True)


def serve_other_commit(world: World) -> None:
    """Put another provenance into the statement that the builder signs, about the files of before."""
    statement = find(str(world.made), world.root).make_statement()
    build = {**statement.predicate["buildDefinition"], "resolvedDependencies": []}
    lying = replace(statement, predicate={**statement.predicate, "buildDefinition": build})
    signing.write(world.made, lying, keys.load(str(world.root / "builder")), replace=True)
    world.registry.put(signing.ENVELOPE, (world.made / signing.ENVELOPE).read_bytes())


def name_file(title: str) -> Lie:
    return lambda world: world.registry.change(
        lambda value: value["layers"][0]["annotations"].update({oci_manifest.TITLE: title})
    )


def drop(title: str) -> Lie:
    return lambda world: world.registry.change(lambda value: value["layers"].pop(world.registry.find(title)[0]))


def claim_size(title: str) -> Lie:
    return lambda world: world.registry.change(
        lambda value: value["layers"][world.registry.find(title)[0]].update(size=signing.LARGEST + 1)
    )


REDIRECT = "leads to an address without TLS"
LIES: dict[str, tuple[Lie, int, str]] = {
    "byte of the wheel flipped": (serve_bytes(flip), 8, "sent other bytes than its manifest names"),
    "more bytes than named": (serve_bytes(lambda content: content + b"x"), 8, "sent other bytes"),
    "fewer bytes than named": (serve_bytes(lambda content: content[:-1]), 11, r"sent [\d,]+ of the [\d,]+ bytes"),
    "forged wheel": (forge(WHEEL), 8, "not signed as --trust asks"),
    "forged log": (forge("build.log"), 8, "not signed as --trust asks"),
    "forged manifest": (forge(manifest.FILE), 8, "not signed as --trust asks"),
    "signature removed": (drop(signing.ENVELOPE), 8, "not signed as --trust asks"),
    "log removed": (drop("build.log"), 8, "not signed as --trust asks"),
    "wheel removed": (drop(WHEEL), 8, "is not one wheel and its records"),
    "manifest of another wheel": (serve_other_wheel, 8, "has another wheel than this plan's"),
    "wheel of another plan": (serve_other_plan, 8, "has another wheel than this plan's"),
    "another commit in the statement": (serve_other_commit, 8, "not signed as --trust asks"),
    "name out of the folder": (name_file("../x"), 8, "is not what was asked for"),
    "two files of one name": (name_file("build.log"), 8, "is not what was asked for"),
    "hidden name": (name_file(".x"), 8, "is not what was asked for"),
    "another artifact": (
        lambda world: world.registry.change(lambda value: value.update(artifactType="x")),
        8,
        "is not what was asked for",
    ),
    "no manifest": (serve_status(200, b"[" * 100_000, about=""), 8, "is not what was asked for"),
    "huge signature": (claim_size(signing.ENVELOPE), 8, "more than one envelope, or one above 16 MiB"),
    "huge manifest": (serve_status(200, b" " * (5 << 20), about=""), 8, "more than 4 MiB"),
    "digest of another manifest": (
        lambda world: world.lie(
            lambda request: (
                request.answer(
                    200, next(iter(world.registry.tags.values())), headers={"Docker-Content-Digest": oci.digest(b"x")}
                )
                is None
            ),
            about="",
        ),
        8,
        "is not what was asked for",
    ),
    "error 500 for the manifest": (serve_status(500, about=""), 11, "answered 500 when it was asked for plan-"),
    "error 500 for the wheel": (serve_status(500), 11, "answered 500 when it was asked for tensorflow"),
    "wheel gone": (serve_status(404), 11, "answered 404 when it was asked for tensorflow"),
    "no registry": (serve_status(404, b"<html>", about=""), 11, "is no registry"),
    "slow": (serve_slowly, 11, "broke off"),
    "slow head": (serve_a_slow_head, 11, r"(?s)failed.*no answer within"),
    "frozen": (serve_nothing, 11, "failed"),
    "redirect without TLS": (serve_status(307, Location="http://192.0.2.1/x"), 11, REDIRECT),
    "redirect to a file": (serve_status(307, Location="file:///etc/passwd"), 11, REDIRECT),
    "redirect to nowhere": (serve_status(307, Location="https://[x"), 11, "failed"),
    "redirect in a circle": (serve_status(307, Location=""), 11, "redirects in a circle"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_one_clear_error_and_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lie, code, message = LIES[name]
    lie(world)
    if name in {"slow", "slow head", "frozen"}:
        monkeypatch.setattr("toolkit.engine.registry.PATIENCE", 0.1)
        monkeypatch.setattr("toolkit.engine.registry.ATTEMPTS", 1)
    world.forget()
    with pytest.raises(ToolkitError, match=message) as caught:
        world.pull()
    assert caught.value.exit_code == code
    assert list(world.dist.glob("*")) == []
    assert files.find_staging(world.dist) == []
    if message.startswith("not signed"):
        assert world.list_asked() == [], "the wheel was not even fetched"


def test_a_wheel_that_anyone_may_have_pushed_needs_all_facts(world: World) -> None:
    value = files.read_json(world.made / manifest.FILE)
    assert isinstance(value, dict)
    del value["facts"]["auditwheel"]
    world.registry.put(manifest.FILE, json.dumps(value).encode())
    with pytest.raises(IntegrityError, match=r"lacks auditwheel\.platform"):
        world.pull(None)


def answer_all(status: int, body: bytes = b"", **headers: str) -> Lie:
    """Let each request be answered alike, but those that only look."""
    return lambda world: setattr(
        world.registry,
        "fault",
        lambda request: request.command in {"POST", "PUT"} and request.answer(status, body, headers=headers) is None,
    )


def forget_all(world: World) -> None:
    world.registry.fault = lambda request: (
        request.command == "PUT" and "manifests" in request.path and request.answer(201) is None
    )


def keep_another(world: World) -> None:
    """Keep a manifest with one file less than was pushed."""

    def drop_one(request: QuietHandler) -> bool:
        if request.command == "GET" and world.registry.tags:
            world.registry.change(lambda value: value["layers"].pop())
        return False

    world.registry.fault = drop_one


def close_early(world: World) -> None:
    def close(request: QuietHandler) -> bool:
        request.close_connection = True
        return request.command == "PUT"

    world.registry.fault = close


def name_another_digest(world: World) -> None:
    world.registry.fault = lambda request: (
        request.command == "GET"
        and bool(world.registry.tags)
        and request.answer(
            200, next(iter(world.registry.tags.values())), headers={"Docker-Content-Digest": oci.digest(b"x")}
        )
        is None
    )


ESCAPE = b'{"errors": [{"code": "\\u001b[2JX", "message": "\\u202e' + b"y" * 100_000 + b'"}]}'


LIES_TO_PUSH: dict[str, tuple[Lie, int, str]] = {
    "nothing kept": (forget_all, 11, "has not kept what was pushed"),
    "another manifest kept": (keep_another, 11, "has not kept what was pushed"),
    "another digest": (name_another_digest, 8, "is not what was asked for"),
    "no place": (answer_all(202), 11, "answered 202 when it got a file"),
    "place without TLS": (answer_all(202, Location="http://192.0.2.1/x"), 11, REDIRECT),
    "place of a file": (answer_all(202, Location="file:///etc/passwd"), 11, REDIRECT),
    "place that is none": (answer_all(202, Location="https://[x"), 11, "failed"),
    "place with a password": (answer_all(202, Location="http://a:b@192.0.2.1/x"), 11, REDIRECT),
    "redirect of an upload": (answer_all(307, Location="http://192.0.2.1/x"), 11, "answered 307"),
    "teapot": (answer_all(418, b"<html>" * 1000), 11, "answered 418"),
    "error with escapes": (answer_all(400, ESCAPE), 11, "answered 400"),
    "endless error": (answer_all(500, b" " * (5 << 20)), 11, "answered 500"),
    "deep error": (answer_all(400, b"[" * 100_000), 11, "answered 400"),
    "closed early": (close_early, 11, "failed"),
}


@pytest.mark.parametrize("name", LIES_TO_PUSH)
def test_a_lie_to_a_push_is_one_clear_error(world: World, name: str) -> None:
    lie, code, message = LIES_TO_PUSH[name]
    world.registry.tags.clear()
    world.registry.blobs.clear()
    before = {path: path.read_bytes() for path in world.made.iterdir()}
    lie(world)
    with pytest.raises(ToolkitError, match=message) as caught:
        world.push()
    assert caught.value.exit_code == code
    assert len(str(caught.value)) < 2000
    assert {path: path.read_bytes() for path in world.made.iterdir()} == before
