import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.makers.build_request import OTHER
from toolkit.base.console import Console
from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.versions import lock
from toolkit.versions.rules import choose_versions
from toolkit.versions.settings import resolve
from toolkit.versions.table import load_table
from toolkit.wheel.build import plan_tasks
from toolkit.wheel.build_inputs import BuildContext, BuildInputs
from toolkit.wheel.build_options import BuildOptions, list_options
from toolkit.wheel.build_plan import BuildPlan, plan, plan_wheel

TABLE = load_table()
SPEC = choose_versions(TABLE)
LOCK = lock.collect(SPEC, TABLE, base_image="debian", base_digest="sha256:0", apt_snapshot="20261121T000000Z")
SOURCE = BuildContext(location="/source", identity="git:1")


def read_options(built: BuildPlan, name: str) -> dict[str, str]:
    argv = built.command(Path("out"))
    values = [argv[at + 1] for at, word in enumerate(argv) if word == name]
    return dict(value.split("=", 1) for value in values)


def test_arguments_are_those_of_the_contract() -> None:
    arguments = read_options(plan(LOCK, BuildOptions()), "--build-arg")
    assert arguments["TENSORFLOW_COMMIT"].startswith("e36baa3")
    assert arguments["BAZEL_SHA256"].startswith("a40ac69")
    assert arguments["COMPUTE_CAPABILITIES"] == "compute_75"
    assert (arguments["CUDA_VERSION"], arguments["CUDNN_VERSION"]) == ("12.6.1", "9.5.0")
    assert arguments["APT_SNAPSHOT"] == "20261121T000000Z"
    assert "BAZEL_JOBS" not in arguments, "an empty argument would replace the Dockerfile's default"
    readme = Path(__file__).parents[3].joinpath("docker/README.md").read_text()
    assert all(f"`{name}`" in readme for name in arguments)


def test_base_of_a_registry_is_built_upon_by_its_digest() -> None:
    pinned = "python:3.11-slim-trixie@sha256:" + "0" * 64
    built = plan(LOCK, BuildOptions(), BuildInputs(base=pinned))
    assert read_options(built, "--build-arg")["BASE_IMAGE"] == pinned
    assert read_options(plan(LOCK, BuildOptions()), "--build-arg")["BASE_IMAGE"] == "debian"
    assert built.digest == plan(LOCK, BuildOptions()).digest, "the digest of the base is a pin already"


def test_stages_of_a_folder_close_the_network_and_leave_the_plan_as_it_is() -> None:
    stages = {"base": "docker-image://toolkit/offline:base-1", "bazel-tools": "docker-image://toolkit/offline:tools-1"}
    bazel = BuildContext(location="docker-image://elsewhere", identity="sha256:2")
    inputs = BuildInputs(source=SOURCE, bazel=bazel, stages=stages)
    built = plan(LOCK, BuildOptions(), inputs)
    assert read_options(built, "--build-context") == {"source": "/source", **stages}
    command = built.command(Path("out"))
    assert command[command.index("--network") + 1] == "none"
    farm = plan(LOCK, BuildOptions(remote_cache="grpc://cache"), inputs)
    assert "--network" not in farm.command(Path("out")), "the cache is in a network"
    online = plan(LOCK, BuildOptions(), BuildInputs(source=SOURCE, bazel=bazel))
    assert "--network" not in online.command(Path("out"))
    assert (built.digest, built.to_json()) == (online.digest, online.to_json())


def test_what_does_not_change_the_result_does_not_change_the_digest(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("")
    (tmp_path / "distdir").mkdir()
    other = BuildOptions(
        jobs=3,
        memory=4,
        remote_cache="https://cache",
        remote_executor="grpcs://executor",
        remote_instance_name="main",
        bazelrc=str(file),
        cache="other",
    )
    inputs = BuildInputs(ca_bundle=str(file), downloads=str(tmp_path))
    assert plan(LOCK, other, inputs).digest == plan(LOCK, BuildOptions()).digest


@pytest.mark.parametrize("name", list_options())
def test_each_option_changes_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    (tmp_path / OTHER.source).mkdir()
    for file, text in ((f"{OTHER.source}/configure", ""), (f"{OTHER.source}/.bazelversion", SPEC.bazel)):
        (tmp_path / file).write_text(text)
    (tmp_path / OTHER.bazelrc).touch()
    usual = BuildOptions(remote_executor="grpc://x" if name == "remote_instance_name" else "")
    changed = replace(usual, **{name: getattr(OTHER, name)})
    settings = resolve({}, environment={})
    planned = [plan_wheel(settings, options, lock_file=Path("none")) for options in (usual, changed)]
    tasks = [plan_tasks(each, settings, Console(), out=Path("out"), dry_run=True) for each in planned]
    assert [task.step.commands for task in tasks[0]] != [task.step.commands for task in tasks[1]]


def test_what_changes_the_result_changes_the_digest() -> None:
    changed = [
        plan(LOCK, BuildOptions()),
        plan(LOCK, BuildOptions(), BuildInputs(source=SOURCE)),
        plan(LOCK, BuildOptions(), BuildInputs(source=BuildContext(location="/source", identity="git:2"))),
        plan(LOCK, BuildOptions(), BuildInputs(bazel=SOURCE)),
        plan(LOCK, BuildOptions(bazel_argument=("--copt=-O1",))),
        plan(LOCK, BuildOptions(), pinned_flags=["--copt=-O2"]),
        plan(LOCK, BuildOptions(cpu_target="x86-64-v3")),
        plan(LOCK, BuildOptions(exact=True)),
        plan(lock.collect(SPEC, TABLE, base_image="debian", base_digest="sha256:1"), BuildOptions()),
    ]
    assert len({item.digest for item in changed}) == len(changed)


def test_secrets_are_files_and_never_arguments(tmp_path: Path) -> None:
    file = tmp_path / "with,comma and space"
    file.write_text("canary")
    argv = plan(LOCK, BuildOptions(bazelrc=str(file)), BuildInputs(ca_bundle=str(file))).command(Path("a,b"))
    secrets = [next(csv.reader([argv[at + 1]])) for at, word in enumerate(argv) if word == "--secret"]
    assert secrets == [["id=ca", f"src={file}"], ["id=bazelrc", f"src={file}"]]
    assert next(csv.reader([argv[argv.index("--output") + 1]])) == ["type=local", "dest=a,b"]
    assert not any("canary" in word for word in argv)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (BuildOptions(remote_cache="cache:9090"), "--remote-cache is not the URL"),
        (BuildOptions(remote_executor="ftp://x"), "--remote-executor is not the URL"),
        (BuildOptions(remote_cache="https://user:password@cache"), "has credentials in it"),
        (BuildOptions(remote_instance_name="main"), "without a service that has instances"),
        (BuildOptions(remote_instance_name="a", remote_cache="https://x"), "without a service that has instances"),
        (BuildOptions(remote_instance_name="a b", remote_executor="grpc://x"), "is not a name"),
        (BuildOptions(bazelrc="nowhere"), "there is no file nowhere"),
    ],
)
def test_options_that_make_no_sense(options: BuildOptions, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        plan(LOCK, options)


def test_nothing_is_fetched_without_a_pin() -> None:
    def without(name: str) -> lock.Lock:
        return lock.Lock(spec=LOCK.spec, pins={**LOCK.pins, name: ""})

    with pytest.raises(UnsupportedError, match=r"commit of TensorFlow 2\.19\.0"):
        plan(without("tensorflow-commit"), BuildOptions())
    with pytest.raises(UnsupportedError, match=r"hash of Bazel 6\.5\.0"):
        plan(without("bazel-sha256"), BuildOptions())
    assert plan(without("tensorflow-commit"), BuildOptions(), BuildInputs(source=SOURCE)).contexts


@pytest.mark.parametrize("name", ["distdir", "repository_cache"])
def test_downloads_that_bazel_would_not_look_into_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "content_addressable").mkdir()
    with pytest.raises(UsageError, match="has neither of distdir and repository_cache"):
        plan(LOCK, BuildOptions(), BuildInputs(downloads=str(tmp_path)))
    (tmp_path / name).mkdir()
    assert plan(LOCK, BuildOptions(), BuildInputs(downloads=str(tmp_path))).contexts == {"downloads": str(tmp_path)}


@pytest.mark.parametrize(
    "word",
    ["--remote_header=Authorization=Bearer canary", "--bes_header=x=canary", "--remote_cache=https://u:canary@x"],
)
def test_credentials_are_no_arguments_for_bazel(word: str) -> None:
    with pytest.raises(UsageError, match="has credentials in it") as caught:
        plan(LOCK, BuildOptions(bazel_argument=(word,)))
    assert "canary" not in str(caught.value)
    assert "--bazelrc" in caught.value.remedy
    assert plan(LOCK, BuildOptions(bazel_argument=("--features=header_modules", "--remote_cache=https://cache")))


def test_a_plan_finds_its_source_in_the_home_of_its_user_without_naming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    built = plan(LOCK, BuildOptions(), BuildInputs(source=replace(SOURCE, location=str(tmp_path / "tensorflow"))))
    built.write(tmp_path, tmp_path / "dist")
    assert str(tmp_path) not in (tmp_path / "plan.json").read_text()
    assert BuildPlan.read(tmp_path) == built


def test_a_plan_is_read_back_from_beside_its_wheel(tmp_path: Path) -> None:
    secret = tmp_path / "ca.pem"
    secret.touch()
    built = plan(
        LOCK, BuildOptions(jobs=3, bazel_argument=("--copt=-O1",)), BuildInputs(source=SOURCE, ca_bundle=str(secret))
    )
    built.write(tmp_path, tmp_path)
    assert BuildPlan.read(tmp_path) == replace(built, secrets={})
    (step,) = json.loads((tmp_path / "plan.json").read_text())["steps"]
    assert step["inputs"] == {"lock": LOCK.digest, "source": SOURCE.identity}
