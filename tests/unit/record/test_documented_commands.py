import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from PIL import Image

from tests.command import Run
from tests.unit.record import maker
from tests.unit.test_docs import COMMANDS
from tests.unit.train.own.making import write_classes
from tests.unit.wheel.test_publication import LOCK, finish_build, publish
from toolkit import artifacts, keys, manifest, project
from toolkit.artifacts import find
from toolkit.manifest import Manifest
from toolkit.record import attestation
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan
from train.__main__ import start

ENGINE = "needs a container engine; tests/integration runs it"
APPTAINER = "needs apptainer; tests/integration runs it"
NOT_RUN = {
    "toolkit build-image": ENGINE,
    "toolkit train ./my-photos --engine docker": ENGINE,
    "toolkit train cifar10 --engine docker": ENGINE,
    "toolkit train digits --engine docker": ENGINE,
    "toolkit train cifar10 --gpu": "it needs a GPU",
    "toolkit reproduce dist/NAME": ENGINE,
    "toolkit reproduce runs/NAME --stretches": "it trains an audited run again; tests/unit/record/test_audit.py does",
    "toolkit build-wheel --platform linux/arm64": "this folder's lock is of linux/amd64",
    "toolkit build-wheel --cuda 12.6.1 --cudnn 9.5.0 --glibc": "this folder's lock is of the base image's glibc",
    "toolkit --install-completion": "it writes to the files of the user's shell; tests/unit/test_completion.py runs it",
    "toolkit --show-completion": "it looks for the user's shell; tests/unit/test_completion.py runs it",
    "toolkit compare-runs": "it needs two audited runs; tests/unit/record/test_audit.py runs it",
    "toolkit key new": "tests/unit/test_signing.py makes keys",
    "toolkit sbom": "an image needs a container engine; tests/unit/record/test_bill.py runs it",
    "toolkit push": "it needs a registry; tests/integration runs it",
    "toolkit serve": "it runs until it is ended; tests/unit/train/service runs it",
    "toolkit train digits --archive": APPTAINER,
    "toolkit clean --volume": "it needs a container engine",
    "toolkit matrix --prove": "it needs a container engine",
    "toolkit matrix --refresh": "it asks the package index; tests/unit/refresh runs it",
    "toolkit launch local cifar100 --shards 4 --workers 4 --gpu": "it needs GPUs",
    "toolkit smoke --device gpu": "it needs a GPU",
    "toolkit lock --tensorflow": "the other commands need the lock of this folder as it is",
    "toolkit install": "it changes an environment; tests/unit/install runs it",
    "toolkit smoke --environment": "it needs an environment with TensorFlow; tests/unit/smoke runs it",
    "toolkit variant": "it needs a wheel with machine code; tests/unit/wheel/test_package_index.py runs it",
    "toolkit index": "it needs such wheels; tests/unit/wheel/test_package_index.py runs it",
    "toolkit diagnose --last": "it needs the log of a job; tests/unit/test_diagnosis.py runs it",
}
"""Starts of commands that are not run here, each with the reason."""

DRY = {"predict", "evaluate", "export", "up", "build-wheel", "smoke", "train", "rehearse", "reproduce", "clean"}
DRY |= {"collect", "graft", "sweep", "launch local", "launch slurm"}
"""Commands that run with --dry-run. Doctor runs with --offline, because tests use no network."""

STANDINS = {
    "DATASET": "digits",
    "IMAGE…": "photo.jpg",
    "TARGET": "dist/NAME",
    "TARGET…": "dist/NAME",
    "RUN": "runs/NAME",
    "FILE": "rates.yaml",
    "KEY": "keys/builder",
    "POLICY": "policy.yaml",
    "CARD": "RTX 5090",
    "N": "20",
}
ARGUMENTS = {
    "graft": ["--gpu", "12.0"],
    "train": ["digits"],
    "rehearse": ["digits"],
    "verify": ["dist/NAME"],
    "report": ["dist/NAME"],
    "reproduce": ["runs/NAME"],
    "evaluate": ["runs/NAME"],
    "diagnose": ["my.log"],
}
"""Arguments that prose leaves out when it names a command."""


def read(line: str) -> list[str] | None:
    words = shlex.split(re.sub(r"\[[^]]*\]", "", line), comments=True)
    if not words or not re.fullmatch(r"(\.venv/bin/)?toolkit", words[0]):
        return None
    name, *options = (STANDINS.get(word, word).removeprefix("~/") for word in words[1:])
    options = options or ARGUMENTS.get(name, [])
    extra = ["--dry-run"] if {name, " ".join([name, *options[:1]])} & DRY else ["--offline"] if name == "doctor" else []
    extra += ["--shards=2"] if options == ["local", "digits"] else []
    return [name, *options, *(word for word in extra if word not in options)]


LINES = sorted({str(words): line for line in sorted(COMMANDS.values()) if (words := read(line))}.values())
"""One line for each command: comments and the folder of the program make no other."""


def sign(folder: Path) -> None:
    """Sign the chain by one key, which may sign all of it."""
    (folder / "keys").mkdir()
    keys.make(folder / "keys" / "builder")
    keys.make(folder / "keys" / "model", "p256")
    signer = keys.load(str(folder / "keys" / "builder"))
    for path in (folder / "dist" / "NAME", folder / "runs" / "NAME", next((folder / "state").glob("environment-*"))):
        attestation.sign(find(str(path), folder / "state"), signer, fresh=True)
    entry = {"name": "builder", "key": "keys/builder.pub", "may": list(artifacts.list_signed())}
    (folder / "policy.yaml").write_text(yaml.safe_dump({"signers": [entry]}))


@pytest.fixture(scope="module")
def folder(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documented")
    maker.make_environment(folder / "state")
    for name in ("NAME", "ONE", "TWO"):
        shutil.copytree(trained, folder / "runs" / name)
    sweep = Manifest(kind="sweep", digest="sha256:" + "0" * 64, facts={"points": [], "members": []})
    manifest.write(folder / "runs" / "sweep-NAME", sweep)
    assert start(["evaluate", str(trained), "--out", str(folder / "results")]) == 0
    (folder / "dist").mkdir()
    publish(finish_build(folder / "staging"), folder / "dist" / "NAME", plan(LOCK, BuildOptions()))
    sign(folder)
    shutil.copy(project.locate("docker/toolkit.lock.yaml"), folder / "toolkit.lock.yaml")
    shutil.copytree(project.locate("tests/fixtures/mini_tensorflow"), folder / "tensorflow")
    for name in ("my-copy", "downloads/distdir", "bazel/usr/local/bin", "my-tables"):
        (folder / name).mkdir(parents=True)
    for name in ("my-photos", "other-photos"):
        write_classes(folder / name)
    shutil.make_archive(str(folder / "my-photos"), "zip", folder / "my-photos")
    (folder / "bazel/usr/local/bin/bazel").write_text("#!/bin/sh\n")
    (folder / "secrets.bazelrc").write_text("")
    for name in ("my.log", "my-log.txt", "build.log"):
        (folder / name).write_text("all is well\n")
    (folder / "examples").mkdir()
    shutil.copy(project.locate("examples/sweep.yaml"), folder / "examples")
    names = " ".join(f"conv{block}_block{count}_1_conv" for block, count in enumerate((6, 12, 48, 32), start=2))
    (folder / "densenet201_weights_tf_dim_ordering_tf_kernels_notop.h5").write_text(names)
    (folder / "rates.yaml").write_text("{dataset: digits, grid: {learning-rate: [0.05, 0.1], seed: [0, 1, 2]}}")
    for name in ("photos", "pictures"):
        (folder / name).mkdir()
    for name in ("photo.jpg", "photos/first.jpg", "pictures/photo.png"):
        Image.new("RGB", (40, 30), "teal").save(folder / name)
    return folder


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith(tuple(NOT_RUN))])
def test_the_command_does_what_the_page_says(folder: Path, line: str) -> None:
    arguments = read(line)
    assert arguments
    key = (folder / "keys" / "builder").read_text()
    done = Run(folder)(*arguments, TOOLKIT_STATE=str(folder / "state"), SIGNING_KEY=key)
    # The doctor's exit code 4 says that this machine lacks something; the command itself worked.
    assert done.returncode in ({0, 4} if arguments[0] == "doctor" else {0}), done.stderr
    assert done.stdout


def test_each_command_that_is_not_run_is_documented() -> None:
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in LINES)] == []


def test_a_command_that_fails_is_found(folder: Path) -> None:
    with pytest.raises(AssertionError):
        test_the_command_does_what_the_page_says(folder, "toolkit build-wheel --cuda 12.6.1 --cudnn 9.3.0")
