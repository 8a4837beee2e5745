import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from wheelbuild import arguments
from wheelbuild.request import Request

from tests.makers.bazel_flags import FULL, RC, compose


def expand(flags: list[str]) -> Iterator[str]:
    rc = [shlex.split(line, comments=True) for line in RC.read_text().splitlines()]
    for flag in flags:
        if not flag.startswith("--config="):
            yield flag
            continue
        name = f"build:{flag.removeprefix('--config=')}"
        yield from expand([word for head, *rest in filter(None, rc) if head == name for word in rest])


def resolve(flags: list[str]) -> dict[str, str]:
    values = {}
    for flag in expand(["--config=cuda_clang", *flags]):  # ./configure selects it in the rc file
        if match := re.fullmatch(r"--(?:repo_env=|@local_config_cuda//cuda:)(\w+)=(.*)", flag):
            values[match[1]] = match[2]
    return values


def test_our_versions_are_the_last_word_whatever_the_user_adds() -> None:
    values = resolve(compose())
    assert values["HERMETIC_CUDA_VERSION"] == "12.6.1"
    assert values["HERMETIC_CUDNN_VERSION"] == "9.5.0"
    assert values["HERMETIC_PYTHON_VERSION"] == "3.11"
    assert values["HERMETIC_CUDA_COMPUTE_CAPABILITIES"] == "sm_75"


def test_cuda_libraries_stay_out_of_the_wheel() -> None:
    plain = Request(**{**vars(FULL), "extra": ()})
    assert resolve(compose(plain))["include_cuda_libs"] == "false"


def test_our_compiler_is_the_last_word_whatever_the_user_adds() -> None:
    """With CUDA, ./configure writes neither variable, and without them @local_config_cc looks for gcc."""
    clang = "/usr/lib/llvm-17/bin/clang"
    assert compose()[-2:] == [f"--repo_env=CC={clang}", f"--repo_env=BAZEL_COMPILER={clang}"]
    gcc = Request(**{**vars(FULL), "extra": ("--repo_env=CC=/usr/bin/gcc-14",)})
    assert resolve(compose(gcc))["CC"] == clang


def test_wheel_is_for_processors_with_avx_as_the_published_one_is() -> None:
    assert "-mavx" in [flag.removeprefix("--copt=") for flag in expand(compose(Request(**{**vars(FULL), "extra": ()})))]


def test_nothing_is_said_of_what_was_not_asked_for() -> None:
    empty = {"epoch": "", "extra": (), "remote_cache": "", "remote_executor": "", "remote_instance": ""}
    bare = Request(**{**vars(FULL), **empty})
    said = " ".join(compose(bare, trust=Path("/ca")))
    assert not re.search("remote|tls|distdir|SOURCE_DATE_EPOCH", said)
    startup = arguments.compose_startup(cache=Path("/cache"), logging=Path("/log"), credentials=None, trust=None)
    assert not re.search("bazelrc|trustStore", " ".join(startup))


def test_the_server_of_bazel_keeps_no_log_in_the_cache_mount() -> None:
    startup = arguments.compose_startup(cache=Path("/cache"), logging=Path("/tmp/off"), credentials=None, trust=None)
    assert {
        "--nowrite_command_log",
        "--host_jvm_args=-Djava.util.logging.config.file=/tmp/off",
        "--host_jvm_args=-XX:-HeapDumpOnOutOfMemoryError",
    } <= {*startup}


def test_an_executor_is_used_whatever_the_rc_file_of_tensorflow_says() -> None:
    """Upstream: ``build --spawn_strategy=standalone`` (google/tsl 62a91642, .bazelrc, line 81)."""
    flags = compose()
    assert "--spawn_strategy=remote,local" in flags
    assert "--nobuild_event_json_file_path_conversion" in flags


def test_instance_carries_the_name_of_the_toolchain_unless_another_is_asked_for() -> None:
    """With one name for two toolchains, a service would serve the results of the first to the second."""
    for asked, name in (
        ("", "toolkit-0123456789abcdef"),
        ("a/{toolchain}/b", "a/0123456789abcdef/b"),
        ("main", "main"),
    ):
        flags = compose(Request(**{**vars(FULL), "remote_instance": asked}))
        assert [flag for flag in flags if "instance" in flag] == [f"--remote_instance_name={name}"]
    other = Request(**{**vars(FULL), "remote_instance": "", "toolchain": "fedcba9876543210"})
    assert "--remote_instance_name=toolkit-fedcba9876543210" in compose(other)


def test_actions_of_any_remote_service_name_the_toolchain() -> None:
    plain = {**vars(FULL), "remote_executor": "", "remote_cache": "https://cache.example"}
    for options in (vars(FULL), plain):
        for option in ("action_env", "host_action_env"):
            assert f"--{option}=TOOLKIT_TOOLCHAIN=0123456789abcdef" in compose(Request(**options))
    assert not any("instance" in flag for flag in compose(Request(**plain)))
