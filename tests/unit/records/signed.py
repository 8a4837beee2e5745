"""A chain of signed links in one folder: wheel, environment and image, smoke report, run."""

import base64
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.makers.publication import finish_build, publish
from tests.unit.records import maker
from toolkit.base import digest, keys, manifest, naming, signing
from toolkit.base.signing import PAYLOAD, Statement
from toolkit.cli import app
from toolkit.engine.client import InspectedImage
from toolkit.records import find, image, run
from toolkit.wheel import wheel_folder

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

STATE = Path(".toolkit")
WHEEL = Path("dist/one")
IMAGE = STATE / "image-train-one"
SMOKE = "smoke-0123456789ab.json"
TAG = "toolkit/train:one"
IDENTITY, OTHER = ("sha256:" + digit * 64 for digit in "ab")
MAY = {"builder": ["wheel", "environment", "image"], "checker": ["smoke"], "trainer": ["run"]}
CHECK = {"id": "cpu.sum", "title": "", "result": "pass", "evidence": {}, "remedy": "", "seconds": 0.1, "timeout": 9.0}
REPORT = {"schema": 1, "tensorflow": "2.19.0", "python": "3.11.2", "device": {}, "checks": [CHECK], "verdict": "pass"}


@dataclass
class World:
    root: Path
    signers: dict[str, "CryptoSigner"]
    images: dict[str, InspectedImage] = field(default_factory=dict)

    @property
    def wheel(self) -> Path:
        return self.root / WHEEL

    @property
    def image(self) -> Path:
        return self.root / IMAGE

    @property
    def environment(self) -> Path:
        return next(path for path in (self.root / STATE).glob("environment-*") if path.is_dir())  # a lock is beside it

    @property
    def run(self) -> Path:
        return next((self.root / "runs").glob("digits-*"))

    @property
    def report(self) -> Path:
        return self.environment / SMOKE

    @property
    def archive(self) -> Path:
        return wheel_folder.find_wheel(self.wheel)

    def verify(self, target: Path | str, *options: str, trust: Iterable[str] = ("policy.yaml",)) -> Result:
        words = [word for name in trust for word in ("--trust", str(self.root / name))]
        return CliRunner().invoke(app, ["verify", str(target), *words, *options])

    def sign(self, record: Path, who: str, statement: Statement | None = None) -> None:
        """Sign what is there now, or another statement, in place of what was signed before."""
        described = statement or find(str(record), STATE).make_statement()
        signing.write(record, described, self.signers[who], replace=True)

    def sign_bytes(self, record: Path, payload: bytes, who: str = "builder", kind: str = PAYLOAD) -> None:
        from securesystemslib.dsse import Envelope

        envelope = Envelope(payload, kind, {})
        envelope.sign(self.signers[who])
        signing.locate(record).write_text(json.dumps(envelope.to_dict()))


def make(root: Path, trained: Path, change: Callable[[Path], object] = str) -> World:
    """Make and sign the chain in a folder. `trained` is a finished run; `change`: of the wheel's folder."""
    from securesystemslib.signer import CryptoSigner

    world = World(root, {name: CryptoSigner.generate_ed25519() for name in (*MAY, "stranger")})
    world.wheel.parent.mkdir(parents=True)
    publish(finish_build(root / "staging"), world.wheel)
    change(world.wheel)
    link = {"kind": "wheel", "name": world.archive.name, "digest": digest.read_file(world.archive)}
    _make_environment(root / STATE, link)
    folder = shutil.copytree(trained, root / "runs" / trained.name)
    link = {"kind": "environment", "digest": manifest.read(world.environment).digest, "reference": "gone"}  # type: ignore[union-attr]
    maker.change_json(folder / manifest.FILE, lambda value: value.update(parent=link))
    world.report.write_text(json.dumps(REPORT))
    _make_image(world)
    for name, signer in world.signers.items():
        (root / f"{name}.pub").write_bytes(keys._encode_public(signer.private_bytes))
    entries = [{"name": name, "key": f"{name}.pub", "may": may} for name, may in MAY.items()]
    (root / "policy.yaml").write_text(yaml.safe_dump({"signers": entries}))
    records = (world.wheel, world.environment, world.image, world.report, world.run)
    for record, who in zip(records, ("builder", "builder", "builder", "checker", "trainer"), strict=True):
        world.sign(record, who)
    return world


def _make_environment(state: Path, link: dict[str, Any]) -> None:
    folder = maker.make_environment(state, Path(sys.executable))
    maker.change_json(folder / manifest.FILE, lambda value: value.update(parent=link))
    maker.change_json(
        folder / "packages.json", lambda value: value["packages"]["tensorflow-cpu"].update(digest=link["digest"])
    )
    maker.finish(folder)


def _make_image(world: World) -> None:
    link = {"kind": "lock", "name": "cpu.txt", "digest": maker.lock_digest()}
    labels = {naming.OWNER_LABEL: "toolkit", naming.PLAN_LABEL: "sha256:plan", naming.LOCK_LABEL: link["digest"]}
    labels[f"{naming.LABEL_PREFIX}.tensorflow"] = "2.19.0"
    found = InspectedImage(id=IDENTITY, tags=(TAG,), labels=labels, layers=("sha256:1", "sha256:2"))
    base = InspectedImage(id=OTHER, tags=("base",), labels={}, layers=("sha256:1",))
    world.images = {IDENTITY: found, TAG: found, OTHER: base}
    facts = {"tag": TAG, "plan": "sha256:plan", "base": {"name": "base", "digest": OTHER}, "labels": labels}
    manifest.write(world.image, manifest.Manifest(kind="image", digest=IDENTITY, parent=link, facts=facts))


def copy(made: World, root: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Copy the chain, go there, and answer for the engine."""
    shutil.copytree(made.root, root, symlinks=True)
    world = World(root, made.signers, dict(made.images))
    monkeypatch.chdir(root)
    monkeypatch.setattr(image, "inspect", world.images.get)
    monkeypatch.setattr(run, "inspect", world.images.get)
    return world


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_envelope(record: Path, change: Callable[[dict[str, Any]], object]) -> None:
    maker.change_json(signing.locate(record), change)


def read_payload(record: Path) -> Any:
    return json.loads(base64.b64decode(json.loads(signing.locate(record).read_text())["payload"]))
