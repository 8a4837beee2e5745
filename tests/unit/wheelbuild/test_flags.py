import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from wheelbuild import arguments
from wheelbuild.request import Request

from tests.makers.bazel_flags import FULL, RC, compose
from tests.makers.sets import choose
from tests.tiers import find_repository, needs_upstream
from toolkit.versions.table import load_table

TABLE = yaml.safe_load((Path(__file__).parents[3] / "docker/flags.yaml").read_text())
ROWS = TABLE["bazel"] | TABLE["flags"] | TABLE["variables"]
MINI = RC.parent
PLACE = re.compile(r"(?P<source>[\w.-]+):(?P<line>[1-9]\d*)(?: (?P<word>\S+))?")
PLAIN = Request(**{**vars(FULL), "cuda": "", "cudnn": "", "capabilities": ""})
"""A wheel for processors."""
ANSWERS = arguments.compose_configure(FULL, python=sys.executable)
PLAIN_ANSWERS = arguments.compose_configure(PLAIN, python=sys.executable)


def identify(flag: str) -> str:
    if flag.startswith(("--repo_env=", "--action_env=", "--host_action_env=")):
        return "=".join(flag.split("=")[:2])
    return flag if flag.startswith(("--config=", "--copt=", "--linkopt=")) else flag.partition("=")[0]


def list_emitted(downloads: Path) -> list[str]:
    for name in ("distdir", "packages", "repository_cache"):
        (downloads / name).mkdir()
    plain = Request(**{**vars(FULL), "extra": ()})
    files = {"cache": Path("/cache"), "logging": Path("/log"), "credentials": Path("/rc"), "trust": Path("/ca")}
    flags = arguments.compose_startup(**files)
    flags += compose(plain, downloads=downloads, rules=Path("/rules"))[2:]
    flags += [flag for processor in arguments.PROCESSORS.values() for flag in processor]
    table = load_table()
    return [*flags, *(flag for source in (*table.rows(), *table.failures) for flag in source.flags)]


def configure(folder: Path, script: list[str], answers: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    for name, words in (("bin/bazel", "bazel 6.5.0"), ("llvm/bin/clang", "Debian clang version 17.0.6 (22+b2)")):
        program = folder / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{words}'\n")
        program.chmod(0o755)
    (folder / "tools").mkdir(exist_ok=True)
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", **answers}
    for name in {"CLANG_CUDA_COMPILER_PATH", "CLANG_COMPILER_PATH"} & answers.keys():
        environment[name] = str(folder / "llvm/bin/clang")
    return subprocess.run(
        script, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def write(folder: Path, answers: dict[str, str]) -> str:
    shutil.copy(MINI / "configure", folder)
    done = configure(folder, ["./configure"], answers)
    assert done.returncode == 0, done.stderr
    return (folder / ".tf_configure.bazelrc").read_text().replace(str(folder), "")


@pytest.fixture
def written(tmp_path: Path) -> str:
    return write(tmp_path, ANSWERS)


def test_each_flag_has_a_row_and_each_row_a_flag(tmp_path: Path, written: str) -> None:
    chosen = [word for word in written.split() if word.startswith("--config=")]
    emitted = {identify(flag) for flag in [*list_emitted(tmp_path), *chosen]}
    assert sorted(emitted - ROWS.keys()) == [], "add a row to docker/flags.yaml, with upstream's line"
    assert sorted(ROWS.keys() - emitted) == [], "nothing emits this any more"


def test_each_argument_changes_a_flag_of_bazel_but_for_two_that_the_image_follows() -> None:
    other = {name: value + 1 if isinstance(value, int) else value[1:] for name, value in vars(FULL).items()}
    changed = {name: Request(**{**vars(FULL), name: value}) for name, value in {**other, "machine": "aarch64"}.items()}
    assert {name for name, request in changed.items() if compose(request) == compose()} == {"tensorflow", "glibc"}


def test_each_row_names_a_line_of_a_source_and_each_source_is_named() -> None:
    places = [place for rows in (ROWS, TABLE["configure"]) for places in rows.values() for place in places]
    named = [match["source"] for match in map(PLACE.fullmatch, places) if match]
    assert len(named) == len(places) > 0
    assert set(named) == TABLE["sources"].keys()
    assert all(ROWS.values())
    assert all(re.fullmatch("[0-9a-f]{40}", source["commit"]) for source in TABLE["sources"].values())


@pytest.mark.parametrize("version", ["2.20", "2.21"])
def test_each_flag_names_its_line_in_the_tree_of_a_newer_version_too(version: str) -> None:
    """A flag for 2.21 that only an older tree defines may be one that 2.21 no longer has."""
    table = load_table()
    newer = choose(table, tensorflow=f"{version}.0", cuda="12.8.1", cudnn="9.8.0")
    others = {flag for row in (*table.rows(), *table.failures) for flag in row.flags} - {*newer.bazel_arguments}
    # Wheels for 64-bit ARM are built of 2.21 alone.
    others |= {*arguments.PROCESSORS["aarch64"]} if version == "2.20" else set()
    told = {name for name in TABLE["flags"] | TABLE["variables"] if name not in {identify(flag) for flag in others}}
    missing = {name for name in told if not any(place.split(":")[0].endswith(f"-{version}") for place in ROWS[name])}
    assert missing == set()


def test_stand_in_writes_what_upstream_writes_and_no_compiler_for_cc(written: str) -> None:
    python = ANSWERS["PYTHON_BIN_PATH"]
    first, second, *rest = written.splitlines()
    assert first == f'build --action_env PYTHON_BIN_PATH="{python}"'
    assert re.fullmatch(r'build --action_env PYTHON_LIB_PATH="/.+"', second)
    assert rest == [
        f'build --python_path="{python}"',
        'build:cuda --repo_env HERMETIC_CUDA_VERSION="12.6.1"',
        'build:cuda --repo_env HERMETIC_CUDNN_VERSION="9.5.0"',
        'build:cuda --repo_env HERMETIC_CUDA_COMPUTE_CAPABILITIES="sm_75"',
        "build --config=cuda_clang",
        'build --action_env CLANG_CUDA_COMPILER_PATH="/llvm/bin/clang"',
        "build --copt=-Wno-gnu-offsetof-extensions",
        "build --config=cuda_clang",
        "build:opt --copt=-Wno-sign-compare",
        "build:opt --host_copt=-Wno-sign-compare",
        "test --test_size_filters=small,medium",
        "test --test_env=LD_LIBRARY_PATH",
        "test:v1 --test_tag_filters=-benchmark-test,-no_oss,-oss_excluded,-no_gpu,-oss_serial",
        "test:v1 --build_tag_filters=-benchmark-test,-no_oss,-oss_excluded,-no_gpu",
        "test:v2 --test_tag_filters=-benchmark-test,-no_oss,-oss_excluded,-no_gpu,-oss_serial,-v1only",
        "test:v2 --build_tag_filters=-benchmark-test,-no_oss,-oss_excluded,-no_gpu,-v1only",
    ]


def test_without_cuda_the_stand_in_takes_clang_as_upstream_does_and_asks_for_nothing_else(tmp_path: Path) -> None:
    lines = write(tmp_path, PLAIN_ANSWERS).splitlines()
    assert lines[3:7] == [
        'build --action_env CLANG_COMPILER_PATH="/llvm/bin/clang"',
        "build --repo_env=CC=/llvm/bin/clang",
        "build --repo_env=BAZEL_COMPILER=/llvm/bin/clang",
        "build --copt=-Wno-gnu-offsetof-extensions",
    ]
    assert not [line for line in lines if "cuda" in line.lower()]
    assert not [flag for flag in compose(PLAIN) if "cuda" in flag.lower() and flag not in FULL.extra]


def read_upstream(source: dict[str, str]) -> list[str]:
    folder = find_repository(source["repository"])
    argv = ["git", "-C", str(folder), "show", f"{source['commit']}:{source['file']}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def list_places() -> Iterator[tuple[str, str]]:
    for rows in (ROWS, TABLE["configure"]):
        for key, places in rows.items():
            yield from ((key, place) for place in places)


@needs_upstream
def test_each_line_of_upstream_says_it() -> None:
    files = {name: read_upstream(source) for name, source in TABLE["sources"].items() if "index" not in source}
    for key, place in list_places():
        match = PLACE.fullmatch(place)
        assert match
        if "index" in TABLE["sources"][match["source"]]:
            continue
        word = match["word"] or key.split("=")[1 if key.startswith(("--config", "--repo_env")) else -1]
        line = files[match["source"]][int(match["line"]) - 1]
        assert word.removeprefix("--").removeprefix("no") in line, (key, place, line)


@needs_upstream
def test_each_line_of_the_rc_file_is_a_line_of_upstreams() -> None:
    upstream = {line.strip() for name in ("rc", "rc-2.21") for line in read_upstream(TABLE["sources"][name])}
    own = {line for line in RC.read_text().splitlines() if line and not line.startswith("#")}
    assert own <= upstream


@needs_upstream
@pytest.mark.parametrize("answers", [ANSWERS, PLAIN_ANSWERS])
def test_upstreams_own_script_writes_the_same(tmp_path: Path, answers: dict[str, str]) -> None:
    written = write(tmp_path, answers)
    folder = tmp_path / "upstream"
    folder.mkdir()
    (folder / "configure.py").write_text("\n".join(read_upstream(TABLE["sources"]["configure"])))
    done = configure(folder, [sys.executable, "configure.py"], answers)
    assert done.returncode == 0, done.stdout
    assert (folder / ".tf_configure.bazelrc").read_text().replace(str(folder), "") == written
