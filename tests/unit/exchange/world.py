import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.makers.publication import PLAN
from tests.server import QuietHandler
from tests.unit.exchange import oci
from toolkit import records
from toolkit.base import console
from toolkit.engine.registry import parse
from toolkit.records import transfer
from toolkit.wheel import wheel_folder
from toolkit.wheel.build_plan import BuildPlan
from toolkit.wheel.wheel_folder import FinishedWheel

WHEEL = ".whl"
LOG = bytes(range(256)) * 12_000
"""Three megabytes, so that a download can be cut after it has gone on."""

Lie = Callable[["World"], object]


@dataclass
class World:
    root: Path
    registry: oci.Registry

    @property
    def made(self) -> Path:
        return self.root / "made"

    @property
    def dist(self) -> Path:
        return self.root / "dist"

    def push(self, folder: Path | None = None, *, replace: bool = False) -> str:
        place = parse(self.registry.reference)
        return transfer.push(folder or self.made, place, ca_bundle="", replace=replace, console=console.Console())

    def pull(self, trust: str | None = "builder.pub", where: str = "", plan: BuildPlan = PLAN) -> FinishedWheel | None:
        return transfer.pull(
            parse(where or self.registry.reference),
            plan,
            dist=self.dist,
            state=self.root / "state",
            policy=records.read_policy([self.root / trust] if trust else []),
            find=lambda: wheel_folder.find(plan, self.dist),
            ca_bundle="",
            console=console.Console(),
        )

    def lie(self, answer: oci.Fault, *, about: str = WHEEL) -> None:
        """Let a function answer when a file is read, or with `about` empty the manifest."""
        end = self.registry.find(about)[1] if about else "manifests/" + next(iter(self.registry.tags))
        self.registry.fault = lambda request: request.path.endswith(end) and answer(request)

    def forget(self) -> None:
        self.registry.asked.clear()

    def list_asked(self, title: str = WHEEL) -> list[tuple[str, str, str | None, str | None]]:
        return [each for each in self.registry.asked if each[1].endswith(self.registry.find(title)[1])]


def log_in(tmp_path: Path, host: str, **entry: str) -> None:
    (tmp_path / "docker").mkdir()
    auth = base64.b64encode(b"user:canary-word").decode()
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {host: entry or {"auth": auth}}}))


def read(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in wheel_folder.list_files(place)}


def flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def ask_password(request: QuietHandler, header: str = 'Basic realm="x"', wanted: str = "Basic ") -> bool:
    if request.headers.get("Authorization", "").startswith(wanted):
        return False
    return request.answer(401, b'{"errors": []}', headers={"WWW-Authenticate": header}) is None
