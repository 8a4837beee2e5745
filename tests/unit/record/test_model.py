"""Runs signed as OpenSSF Model Signing does, by the toolkit and by `model_signing` itself."""

import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import Run
from tests.unit.record import maker, signed
from toolkit import artifacts, keys, signing
from toolkit.artifacts import find, model_signing
from toolkit.keys import Signer
from toolkit.record import attestation

PYTHON = os.environ.get("TOOLKIT_MODEL_SIGNING_PYTHON", "")
"""A Python that has model-signing."""

needs_peer = pytest.mark.skipif(not PYTHON, reason="TOOLKIT_MODEL_SIGNING_PYTHON names no Python with model-signing")


@pytest.fixture
def toolkit(run: Path, state: Path, tmp_path: Path) -> Run:
    """Run commands in a folder with one run, its environment, which is signed by `key`, and keys of both kinds."""
    keys.make(tmp_path / "model", "p256")
    keys.make(tmp_path / "other", "p256")
    keys.make(tmp_path / "key")
    state.rename(tmp_path / ".toolkit")
    environment = next(tmp_path.glob(".toolkit/environment-*-*"))
    attestation.sign(find(str(environment), tmp_path / ".toolkit"), load(tmp_path, "key"), fresh=True)
    return Run(tmp_path)


def load(folder: Path, name: str = "model") -> Signer:
    return keys.load(str(folder / name))


def sign(run: Path, name: str = "model", *, replace: bool = False) -> str:
    folder = run.parents[1]
    return attestation.sign_model(find(str(run), folder / ".toolkit"), load(folder, name), replace=replace)


def ask(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Ask the peer to sign or verify."""
    return subprocess.run([PYTHON, "-m", "model_signing", *words], capture_output=True, text=True, check=False)


def check_by_peer(run: Path, key: str = "model.pub") -> "subprocess.CompletedProcess[str]":
    signature, public = run / model_signing.SIGNATURE, run.parents[1] / key
    return ask("verify", "key", run, "--signature", signature, "--public_key", public)


def read_payload(run: Path) -> Any:
    return json.loads(
        base64.b64decode(json.loads((run / model_signing.SIGNATURE).read_text())["dsseEnvelope"]["payload"])
    )


def sign_payload(run: Path, change: Callable[[Any], object], name: str = "model") -> None:
    """Sign a changed statement by a key that is trusted."""
    from securesystemslib.dsse import Envelope

    payload = read_payload(run)
    change(payload)
    envelope = Envelope(json.dumps(payload).encode(), "application/vnd.in-toto+json", {})
    envelope.sign(load(run.parents[1], name))
    maker.change_json(run / model_signing.SIGNATURE, lambda value: value.update(dsseEnvelope=envelope.to_dict()))


def test_a_run_is_signed_and_verified(toolkit: Run, run: Path) -> None:
    words = ("sign", str(run), "--key", "model", "--model-signing")
    done = toolkit(*words)
    assert done.returncode == 0, done.stderr
    assert f"signed: {run / model_signing.SIGNATURE}" in done.stdout
    assert {path.name for path in run.glob("*.sig")} == {"model.sig"}
    names = [each["name"] for each in read_payload(run)["predicate"]["resources"]]
    assert {*names, "model.sig"} == {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()}
    assert "signed before" in toolkit(*words).stdout
    held = toolkit("verify", str(run), "--trust", "model.pub", "--trust", "key.pub")
    assert held.returncode == 0, held.stderr
    assert f"model.pub signed {len(names)} files in model.sig" in held.stderr
    signed.flip(run / "curves.png")
    refused = toolkit("verify", str(run), "--trust", "model.pub", "--trust", "key.pub")
    assert refused.returncode == 8
    assert "curves.png is not what was signed" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--key", "key"), "--model-signing needs a key of P-256"),
        (("--key", "none"), "cannot read the key"),
    ],
)
def test_a_key_that_the_peer_does_not_know_is_refused(
    toolkit: Run, run: Path, words: tuple[str, ...], message: str
) -> None:
    done = toolkit("sign", str(run), "--model-signing", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (run / model_signing.SIGNATURE).exists()


def test_only_a_run_is_signed_so(toolkit: Run) -> None:
    environment = next(toolkit.folder.glob(".toolkit/environment-*"))
    done = toolkit("sign", str(environment), "--key", "model", "--model-signing")
    assert done.returncode == 2
    assert "--model-signing is for a run" in done.stderr


def test_what_does_not_hold_is_not_signed(toolkit: Run, run: Path) -> None:
    signed.flip(run / "metrics.csv")
    done = toolkit("sign", str(run), "--key", "model", "--model-signing")
    assert done.returncode == 7
    assert not (run / model_signing.SIGNATURE).exists()


def test_another_signature_is_not_replaced_unasked(toolkit: Run, run: Path) -> None:
    sign(run)
    done = toolkit("sign", str(run), "--key", "other", "--model-signing")
    assert done.returncode == 8
    assert "is of other files or another key" in done.stderr
    assert model_signing.is_signed(run, model_signing.describe(run), load(toolkit.folder))
    sign(run, "other", replace=True)
    assert not model_signing.is_signed(run, model_signing.describe(run), load(toolkit.folder))


def test_an_envelope_comes_first(toolkit: Run, run: Path) -> None:
    """What both have signed is held by the envelope, which names what it was made of too."""
    sign(run)
    attestation.sign(find(str(run), toolkit.folder / ".toolkit"), load(toolkit.folder, "key"))
    assert toolkit("verify", str(run), "--trust", "key.pub").returncode == 0
    assert read_finding(run, "model") == "signed by key " + load(toolkit.folder, "key").public_key.keyid[:8] + (
        ", which is not trusted"
    )


def test_a_key_of_p256_signs_envelopes_too(toolkit: Run, run: Path) -> None:
    assert toolkit("sign", str(run), "--key", "model").returncode == 0
    assert read_finding(run, "model").startswith("model.pub signed")
    assert "which is not trusted" in read_finding(run, "other")


def read_finding(run: Path, name: str) -> str:
    """Return what verify says of the run's own signature to those who trust one key."""
    folder = run.parents[1]
    policy = artifacts.read_policy([folder / f"{name}.pub"])
    return find(str(run), folder / ".toolkit").check_signature(policy).evidence


def forget(run: Path, field: str, **values: object) -> None:
    sign_payload(run, lambda value: value["predicate"][field].update(values))


def ignore(run: Path) -> None:
    """Leave the checkpoints out, as a key that is trusted may say in the peer's words."""

    def change(value: Any) -> None:
        predicate = value["predicate"]
        predicate["serialization"]["ignore_paths"].append("checkpoints")
        predicate["resources"] = [each for each in predicate["resources"] if "checkpoints" not in each["name"]]

    sign_payload(run, change)


FORGERIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "byte": (lambda run: signed.flip(run / "curves.png"), "curves.png is not what was signed"),
    "added": (lambda run: (run / "new").write_text("x"), "new is not signed"),
    "removed": (lambda run: (run / "curves.png").unlink(), "curves.png was signed and is not here"),
    "link": (lambda run: (run / "new").symlink_to("curves.png"), "new is no regular file"),
    "linked folder": (lambda run: (run / "new").symlink_to("checkpoints"), "new is no regular file"),
    "another key": (lambda run: sign(run, "other", replace=True), "signed by no key that is trusted"),
    "no checkpoints": (ignore, "json is not signed"),
    "links": (lambda run: forget(run, "serialization", allow_symlinks=True), "does not list files"),
    "shards": (lambda run: forget(run, "serialization", method="shards"), "does not list files"),
    "file twice": (
        lambda run: sign_payload(run, lambda value: value["predicate"]["resources"].append(
            value["predicate"]["resources"][0])),
        "a file is not named once",
    ),
    "other predicate": (
        lambda run: sign_payload(run, lambda value: value.update(predicateType="https://slsa.dev/provenance/v1")),
        "not of a signed model",
    ),
    "no bundle": (lambda run: (run / model_signing.SIGNATURE).write_text("{}"), "is no bundle"),
    "cut": (lambda run: (run / model_signing.SIGNATURE).write_text("{"), "cannot be read"),
    "older bundle": (
        lambda run: maker.change_json(run / model_signing.SIGNATURE, lambda value: value.update(mediaType="v0.1")),
        "is no bundle",
    ),
    "statement changed": (
        lambda run: maker.change_json(
            run / model_signing.SIGNATURE, lambda value: value["dsseEnvelope"].update(payload="e30K")
        ),
        "no in-toto statement",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_each_forgery_is_named(toolkit: Run, run: Path, name: str) -> None:
    sign(run)
    policy = artifacts.read_policy([toolkit.folder / "model.pub"])
    assert model_signing.verify(run, policy).state == "ok"
    change, message = FORGERIES[name]
    change(run)
    found = model_signing.verify(run, policy)
    assert found.state == "fail"
    assert message in found.evidence


def test_a_key_for_something_else_is_named(toolkit: Run, run: Path) -> None:
    sign(run)
    (signatory,) = artifacts.read_policy([toolkit.folder / "model.pub"])
    other = signing.Signatory(name="builder", key=signatory.key, may=("wheel",))
    assert model_signing.verify(run, (other,)).evidence == "builder may sign wheel: not run"


@needs_peer
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, ""),
        (lambda run: signed.flip(run / "curves.png"), "Hash mismatch for 'curves.png'"),
        (lambda run: (run / "new").write_text("x"), "Extra files found"),
        (lambda run: (run / "curves.png").unlink(), "Missing files"),
    ],
)
def test_the_peer_finds_the_same(
    toolkit: Run, run: Path, change: Callable[[Path], object] | None, message: str
) -> None:
    (run / ".gitignore").write_text("*.npz")
    sign(run)
    attestation.sign(find(str(run), toolkit.folder / ".toolkit"), load(toolkit.folder, "key"))  # it may come later
    if change:
        change(run)
    done = check_by_peer(run)
    assert (done.returncode == 0) == (change is None), done.stderr
    assert message in done.stdout + done.stderr


@needs_peer
@pytest.mark.slow
def test_the_peer_refuses_another_key(toolkit: Run, run: Path) -> None:
    sign(run)
    assert check_by_peer(run, "other.pub").returncode != 0


@needs_peer
@pytest.mark.slow
def test_the_peer_takes_the_largest_curve(toolkit: Run, run: Path) -> None:
    from securesystemslib.signer import CryptoSigner

    made = CryptoSigner.generate_ecdsa(scheme="ecdsa-sha2-nistp521")
    (toolkit.folder / "large").write_bytes(made.private_bytes)
    (toolkit.folder / "large.pub").write_bytes(keys._encode_public(made.private_bytes))
    sign(run, "large")
    done = check_by_peer(run, "large.pub")
    assert done.returncode == 0, done.stderr
    assert read_finding(run, "large").startswith("large.pub signed")


@needs_peer
@pytest.mark.slow
def test_what_the_peer_signs_is_verified(toolkit: Run, run: Path) -> None:
    done = ask(
        "sign", "key", run, "--private_key", toolkit.folder / "model", "--signature", run / model_signing.SIGNATURE
    )
    assert done.returncode == 0, done.stderr
    run = run.rename(run.with_name("renamed"))
    assert read_finding(run, "model").startswith("model.pub signed")
    signed.flip(run / "curves.png")
    assert read_finding(run, "model") == "curves.png is not what was signed"
