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


def test_our_compiler_is_the_last_word_whatever_the_user_adds() -> None:
    """With CUDA, ./configure writes neither variable, and without them @local_config_cc looks for gcc."""
    clang = "/usr/lib/llvm-17/bin/clang"
    assert compose()[-2:] == [f"--repo_env=CC={clang}", f"--repo_env=BAZEL_COMPILER={clang}"]
    gcc = Request(**{**vars(FULL), "extra": ("--repo_env=CC=/usr/bin/gcc-14",)})
    assert resolve(compose(gcc))["CC"] == clang


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


def test_actions_of_any_remote_service_name_the_toolchain() -> None:
    plain = {**vars(FULL), "remote_executor": "", "remote_cache": "https://cache.example"}
    for options in (vars(FULL), plain):
        for option in ("action_env", "host_action_env"):
            assert f"--{option}=TOOLKIT_TOOLCHAIN=0123456789abcdef" in compose(Request(**options))
    assert not any("instance" in flag for flag in compose(Request(**plain)))
