"""The signatures of the toolkit, checked by Debian's cosign without a network."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.makers.publication import finish_build, publish
from tests.unit.records.maker import change_json
from toolkit.base import keys, signing
from toolkit.records import attestation, find

pytestmark = pytest.mark.engine

IMAGE = "toolkit/test:cosign"
DOCKERFILE = f"""
FROM {stages.STANDIN}
RUN --mount=type=cache,id=toolkit-apt,target=/var/cache/apt,sharing=locked \\
    --mount=type=cache,id=toolkit-apt-lists,target=/var/lib/apt/lists,sharing=locked \\
    apt-get --quiet=2 update && \\
    DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 install --yes --no-install-recommends cosign >/dev/null
"""


@pytest.fixture(scope="module")
def cosign() -> Iterator[str]:
    argv = ["docker", "buildx", "build", "--load", "--tag", IMAGE, "-"]
    subprocess.run(argv, input=DOCKERFILE, text=True, check=True, capture_output=True)
    yield IMAGE
    subprocess.run(["docker", "image", "rm", IMAGE], check=True, capture_output=True)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    publish(finish_build(folder / "staging"), folder / "dist")
    for name in ("first", "second", "stranger"):
        keys.make(folder / name)
    for name in ("first", "second"):
        attestation.sign(find(str(folder / "dist"), folder), keys.load(str(folder / name)))
    folder.chmod(0o755)
    return folder


def ask(
    image: str, workspace: Path, key: str, blob: str, kind: str = "slsaprovenance1"
) -> "subprocess.CompletedProcess[str]":
    argv = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--volume",
        f"{workspace}:/workspace:ro",
        "--workdir=/workspace",
        image,
    ]
    argv += ["cosign", "verify-blob-attestation", "--key", f"{key}.pub", "--insecure-ignore-tlog", "--type", kind]
    argv += ["--signature", f"dist/{signing.ENVELOPE}", blob]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_cosign_accepts_each_file_by_each_key(cosign: str, workspace: Path) -> None:
    wheel = next(workspace.glob("dist/*.whl"))
    for key, file in (("first", wheel.name), ("second", wheel.name), ("first", "SHA256SUMS"), ("first", "build.log")):
        done = ask(cosign, workspace, key, f"dist/{file}")
        assert done.returncode == 0, done.stderr
        assert "Verified OK" in done.stderr


def test_cosign_refuses_what_verify_refuses(cosign: str, workspace: Path) -> None:
    (workspace / "other").write_text("x")
    wheel = next(workspace.glob("dist/*.whl")).relative_to(workspace)
    assert "accepted signatures do not match threshold" in ask(cosign, workspace, "stranger", str(wheel)).stderr
    assert "no matching subject digest found" in ask(cosign, workspace, "first", "other").stderr
    assert ask(cosign, workspace, "first", str(wheel), "spdx").returncode != 0
    envelope = workspace / "dist" / signing.ENVELOPE
    whole = envelope.read_bytes()
    change_json(envelope, lambda value: value.update(payload="e30" + value["payload"][3:]))
    done = ask(cosign, workspace, "first", str(wheel))
    envelope.write_bytes(whole)
    assert done.returncode != 0
    assert "accepted signatures do not match threshold" in done.stderr
