import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

from tests.integration.docker import stages

pytestmark = pytest.mark.engine

TRAIN = "toolkit/train:tests"
OWN = "toolkit/runtime:tests"
BASE = "toolkit/base:tests-plain"


def inspect(image: str) -> dict[str, dict[str, object]]:
    done = subprocess.run(["docker", "image", "inspect", image], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, object]] = json.loads(done.stdout)[0]
    return found


def read_certificates(text: str) -> set[str]:
    return set(re.findall(r"-----BEGIN CERTIFICATE-----\n(.*?)-----END", text, re.DOTALL))


def search(image: str, needles: Path) -> set[str]:
    argv = ["docker", "run", "--rm", "--user=0", f"--volume={needles}:/needles:ro", "--entrypoint", "grep", image]
    argv += ["-rlF", "--file=/needles", "/etc", "/opt", "/root", "/tmp", "/usr", "/var"]
    return set(subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines())


@pytest.fixture(scope="module")
def train() -> Iterator[str]:
    outcome = stages.build("train", tag=TRAIN)
    assert outcome.code == 0, outcome.text
    yield TRAIN
    subprocess.run(["docker", "image", "rm", TRAIN, BASE], capture_output=True, check=False)


def python(image: str, program: str, *options: str) -> str:
    return stages.run(image, "-c", program, options=("--entrypoint", "python", *options))


def test_anybody_may_run_it_with_nothing_but_a_tmp(train: str) -> None:
    program = """
import getpass, json, os, pathlib, tempfile
import tensorflow as tf
pathlib.Path.home().joinpath("written").write_text("yes")
print(json.dumps([tf.__version__, float(tf.reduce_sum(tf.ones((3, 3)))), getpass.getuser(), os.getuid()]))
"""
    assert json.loads(python(train, program).splitlines()[-1]) == ["2.19.0", 9.0, "toolkit", 12345]


def test_it_is_nobody_by_default_and_says_whose_it_is(train: str) -> None:
    config = inspect(train)["Config"]
    labels = config["Labels"]
    assert isinstance(labels, dict)
    assert config["User"] == "10001:10001"
    assert labels["io.github.tensorflow-toolkit.owner"] == "toolkit"
    assert labels["io.github.tensorflow-toolkit.requirements"] == "cpu"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_every_user_can_read_and_run_everything(train: str) -> None:
    listing = [
        "find",
        "/opt",
        "(",
        "!",
        "-perm",
        "-o=r",
        "-o",
        "-perm",
        "-u=x",
        "!",
        "-perm",
        "-o=x",
        ")",
        "!",
        "-type",
    ]
    argv = ["docker", "run", "--rm", "--user=0", "--entrypoint", listing[0], train, *listing[1:], "l"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == ""


@pytest.mark.skipif("SSL_CERT_FILE" not in os.environ, reason="this machine trusts nothing that the image does not")
def test_no_certificate_of_the_build_is_in_a_layer(train: str, tmp_path: Path) -> None:
    ours = read_certificates(Path(os.environ["SSL_CERT_FILE"]).read_text())
    bundle = stages.run(train, "/etc/ssl/certs/ca-certificates.crt", options=("--entrypoint", "cat"))
    secret = ours - read_certificates(bundle) - read_certificates(certifi.contents())
    if not secret:
        pytest.skip("this machine trusts nothing that the image does not")
    needles = tmp_path / "needles"
    needles.write_text("".join(body.splitlines()[-2] + "\n" for body in secret))
    outcome = stages.build("base", tag=BASE)
    assert outcome.code == 0, outcome.text
    # pip, in the base, has its own bundle.
    assert search(train, needles) <= search(BASE, needles)


def test_layers_are_the_same_when_they_are_made_again(train: str) -> None:
    before = inspect(train)["RootFS"]["Layers"]
    argv = [*stages.compose("train", tag=TRAIN), "--no-cache-filter", "job", "--no-cache-filter", "folders"]
    subprocess.run(argv, cwd=stages.ROOT, capture_output=True, check=True)
    assert inspect(TRAIN)["RootFS"]["Layers"] == before


@pytest.mark.weekly
def test_a_wheel_of_our_own_takes_tensorflows_place_and_nothing_else(result: Path) -> None:
    outcome = stages.build("runtime", tag=OWN, contexts={"wheel": result})
    assert outcome.code == 0, outcome.text
    program = """
import importlib.metadata as m, tensorflow as tf
names = sorted(d.name for d in m.distributions() if d.name.startswith("tensorflow"))
print(tf.float128_digits(), m.version("tensorflow"), m.version("keras"), *names)
"""
    try:
        words = stages.run(OWN, "python", "-c", program).split()
        assert words[:4] == ["113", "2.19.0", "3.15.1", "tensorflow"]
        assert "tensorflow-cpu" not in words
    finally:
        subprocess.run(["docker", "image", "rm", OWN], capture_output=True, check=False)


def test_a_wheel_that_is_not_the_one_of_its_sums_is_refused(result: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(result, tmp_path / "dist"))
    wheel = next(folder.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() not in (folder / "SHA256SUMS").read_text()
    outcome = stages.build("runtime", contexts={"wheel": folder})
    assert outcome.step_code == 1, outcome.text
    assert f"{wheel.name}: FAILED" in outcome.text
