"""The wheel is the stand-in's: real CUDA code and real libraries, but no TensorFlow."""

import json
import re
import subprocess
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from tests.makers.build_image import NEEDS_GPU, NEEDS_TENSORFLOW
from tests.makers.smoke_images import failures, require_breaks_named
from toolkit.base import keys, naming, signing
from toolkit.base.digest import digest_file
from toolkit.smoke import runner

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

CUDA = ("--cuda", "12.6.1", "--cudnn", "9.5.0")
LOCKED = stages.ROOT / "docker/requirements/cuda-12.6.1.txt"
Built = tuple[Workspace, dict[str, Any]]


@pytest.fixture(scope="module")
def image(built: Built) -> Iterator[str]:
    workspace, value = built
    name = f"toolkit/test:{uuid.uuid4().hex[:8]}"
    keys.make(workspace.folder / "image-key")
    words = ("--tag", name, "--sign", "image-key", "--json")
    done = workspace.toolkit("build-image", "--wheel", value["folder"], *CUDA, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reused"] is False
    yield name
    subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)


def run(image: str, program: str) -> Any:
    return json.loads(stages.run(image, "-c", program, options=("--entrypoint", "python")))


def smoke(workspace: Workspace, image: str, *arguments: str) -> tuple[int, runner.Report]:
    done = workspace.toolkit("smoke", "--image", image, *CUDA, "--tensorflow", "2.19.0", "--json", *arguments)
    return done.returncode, runner.from_json(json.loads(done.stdout))


def test_the_image_holds_the_locked_set_and_nothing_else(image: str) -> None:
    installed = run(
        image,
        "import importlib.metadata as m, json;"
        "print(json.dumps([[d.name.lower().replace('_', '-'), d.version] for d in m.distributions()]))",
    )
    locked = re.findall(r"^([\w.-]+)==(\S+)", LOCKED.read_text(), re.MULTILINE)
    assert sorted(map(tuple, installed)) == sorted(locked)


def test_the_image_is_signed_and_its_wheel_is_asked_for_too(built: Built, image: str) -> None:
    workspace, value = built
    words = ("verify", image, "--trust", "image-key.pub")
    signing.discard(workspace.folder / value["folder"])
    done = workspace.toolkit(*words)
    assert done.returncode == 8, done.stderr
    assert "wheel.signature: the wheel is not signed" in done.stderr
    signed = workspace.toolkit("sign", value["folder"], "--key", "image-key")
    assert signed.returncode == 0, signed.stderr
    assert workspace.toolkit(*words).returncode == 0


def test_tensorflow_is_the_wheel_that_was_given(built: Built, image: str) -> None:
    workspace, value = built
    assert run(image, "import tensorflow as tf; print(tf.float128_digits())") == 113
    with zipfile.ZipFile(workspace.folder / value["wheel"]) as wheel:
        record = wheel.read("tensorflow-2.19.0.dist-info/RECORD").decode()
    program = (
        "import importlib.metadata as m, json; print(json.dumps(m.distribution('tensorflow').read_text('RECORD')))"
    )
    # The installer adds lines to RECORD, and keeps those of the wheel.
    assert set(record.split()) - set(run(image, program).split()) <= {"tensorflow-2.19.0.dist-info/RECORD,,"}
    argv = ["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", image]
    labels = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    assert labels[f"{naming.LABEL_PREFIX}.wheel"] == value["digest"]
    assert labels[f"{naming.LABEL_PREFIX}.lock"] == digest_file(LOCKED)


def test_smoke_passes_all_that_the_stand_in_can_answer(built: Built, image: str) -> None:
    skip = [word for name in NEEDS_TENSORFLOW for word in ("--skip", name)]
    code, found = smoke(built[0], image, "--expect-capability", "7.5", *skip)
    assert (code, failures(found)) == (0, {})
    passed = {check.id for check in found.checks if check.state == "ok"}
    assert passed == {
        *("cpu.instructions", "tensorflow.import"),
        *("version.tensorflow", "version.wheel", "version.dependencies", "version.files", "version.apart"),
        *("build.info", "build.cuda", "build.capabilities"),
        *("libraries.system", "libraries.reachable", "libraries.load", "libraries.versions"),
        *("compiler.libdevice", "compiler.ptxas"),
    }
    skipped = {check.id: check.evidence for check in found.checks if check.state == "skipped"}
    left_out = {name for name, why in skipped.items() if why == "left out, as --skip asked"}
    assert {name.partition(".")[0] for name in left_out} == {"cpu", "numerics", "xla", "determinism"}
    assert skipped.keys() - left_out <= NEEDS_GPU
    evidence = {check.id: check.facts["evidence"] for check in found.checks}
    assert evidence["build.cuda"]["built"] == {"cuda": "12.6.1", "cudnn": "9"}
    assert evidence["build.capabilities"]["covered_by"] == "compute_75 machine code"
    versions = evidence["libraries.versions"]
    assert (versions["cudaRuntimeGetVersion"], versions["cudnnGetVersion"]) == (12060, 90500)
    assert evidence["compiler.ptxas"]["assembled_for"] == "sm_75"


def test_a_component_with_another_hash_than_locked_is_refused(built: Built, clone: Path, tmp_path: Path) -> None:
    locked = clone / "docker/requirements/cuda-12.6.1.txt"
    entry = r"(?m)^nvidia-cuda-runtime-cu12==.*(\n +--hash.*)+"
    spoiled = re.sub(entry, lambda found: re.sub("[0-9a-f]{64}", "0" * 64, found[0]), locked.read_text())
    locked.write_text(spoiled)
    workspace = Workspace(tmp_path)
    workspace.root = clone
    wheel = str(built[0].folder / built[1]["folder"])
    done = workspace.toolkit("build-image", "--wheel", wheel, *CUDA, "--tag", "toolkit/test:none")
    assert done.returncode == 8, done.stderr
    assert "a downloaded package does not have the hash that the lock promises" in done.stderr
    assert "Hash mismatch for `nvidia-cuda-runtime-cu12==12.6.68`" in done.stderr


def test_every_break_in_the_image_is_named(image: str, tmp_path: Path) -> None:
    require_breaks_named(image, tmp_path)


def test_up_from_source_goes_on_with_the_wheel_that_is_built_and_stops_where_a_check_fails(
    built: Built, image: str
) -> None:
    workspace, value = built
    words = ("--source", str(workspace.source), "--bazel", "docker-image://toolkit/bazel:debian")
    done = workspace.toolkit("up", "digits", "--from-source", *words, "--engine", "docker", "--json")
    assert done.returncode == 7, "the stand-in has no TensorFlow to compute with\n" + done.stderr
    made = re.search(r"image +made (\S+)", done.stderr)
    assert made
    argv = ["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", made[1]]
    labels = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    subprocess.run(["docker", "image", "rm", made[1]], capture_output=True, check=True)
    assert labels[f"{naming.LABEL_PREFIX}.wheel"] == value["digest"]
    assert labels[f"{naming.LABEL_PREFIX}.cuda"] == "12.6.1"
    assert "reused tensorflow-2.19.0" in done.stderr
    assert not (workspace.folder / "runs").exists(), "nothing is trained with what failed its checks"
