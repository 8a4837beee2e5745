"""The argument list of Bazel against what is known of TensorFlow 2.19.0's own rc file."""

import re
from pathlib import Path

import pytest
from wheelbuild import arguments
from wheelbuild.request import Request

CONFIGURATIONS = {
    "cuda": {"HERMETIC_CUDA_VERSION": "12.5.1", "HERMETIC_CUDNN_VERSION": "9.3.0", "include_cuda_libs": "true"},
    "cuda_clang": {"HERMETIC_CUDA_COMPUTE_CAPABILITIES": "sm_60,sm_70,sm_80,sm_89,compute_90"},
    "cuda_wheel": {"include_cuda_libs": "false"},
}
"""What each configuration sets, at 2.19.0 (google/tsl 62a91642, .bazelrc). `cuda_version` came with 2.21."""

BAZEL_6 = {
    "--action_env",
    "--bazelrc",
    "--build_event_json_file",
    "--color",
    "--config",
    "--curses",
    "--disk_cache",
    "--distdir",
    "--host_jvm_args",
    "--jobs",
    "--local_ram_resources",
    "--noremote_local_fallback",
    "--output_user_root",
    "--remote_cache",
    "--remote_executor",
    "--repo_env",
    "--repository_cache",
    "--show_progress_rate_limit",
    "--tls_certificate",
}
"""The flags of Bazel 6.5.0 that we have use for (its command-line reference)."""

VARIABLES = {
    "WHEEL_NAME",
    "HERMETIC_PYTHON_VERSION",
    "HERMETIC_CUDA_VERSION",
    "HERMETIC_CUDNN_VERSION",
    "HERMETIC_CUDA_COMPUTE_CAPABILITIES",
}
"""What TensorFlow's repository rules read (google/tsl 239072f8, third_party/gpus and third_party/py)."""

QUESTIONS = {
    "PYTHON_BIN_PATH",
    "USE_DEFAULT_PYTHON_LIB_PATH",
    "TF_NEED_ROCM",
    "TF_NEED_CUDA",
    "TF_CUDA_CLANG",
    "CLANG_CUDA_COMPILER_PATH",
    "HERMETIC_CUDA_VERSION",
    "HERMETIC_CUDNN_VERSION",
    "HERMETIC_CUDA_COMPUTE_CAPABILITIES",
    "LOCAL_CUDA_PATH",
    "LOCAL_CUDNN_PATH",
    "LOCAL_NCCL_PATH",
    "CC_OPT_FLAGS",
    "TF_SET_ANDROID_WORKSPACE",
}
"""What ./configure asks of a CUDA build with clang on Linux."""

FULL = Request(
    tensorflow="2.19.0",
    cuda="12.6.1",
    cudnn="9.5.0",
    python="3.11",
    capabilities="sm_75",
    llvm="17",
    jobs=8,
    memory=16000,
    progress=5,
    epoch="1741132800",
    extra=("--copt=-mavx", "--config=cuda"),
    remote_cache="grpcs://cache.example",
    remote_executor="grpcs://executor.example",
)


def compose(request: Request = FULL, downloads: Path = Path("/none"), trust: Path | None = Path("/ca")) -> list[str]:
    return arguments.compose_build(
        request, cache=Path("/cache"), events=Path("/events"), downloads=downloads, trust=trust
    )


def resolve(flags: list[str]) -> dict[str, str]:
    """Last value of each variable, with configurations in the place where they are written."""
    values = dict(CONFIGURATIONS["cuda_clang"])  # ./configure selects it in the rc file, before the command line
    for flag in flags:
        if match := re.fullmatch(r"--config=(.+)", flag):
            values |= CONFIGURATIONS[match[1]]
        elif match := re.fullmatch(r"--repo_env=(\w+)=(.*)", flag):
            values[match[1]] = match[2]
    return values


def test_the_line_begins_as_documented() -> None:
    assert compose()[:5] == [
        "build",
        "//tensorflow/tools/pip_package:wheel",
        "--repo_env=WHEEL_NAME=tensorflow",
        "--config=cuda",
        "--config=cuda_wheel",
    ]


def test_our_versions_are_the_last_word_whatever_the_user_adds() -> None:
    values = resolve(compose())
    assert values["HERMETIC_CUDA_VERSION"] == "12.6.1"
    assert values["HERMETIC_CUDNN_VERSION"] == "9.5.0"
    assert values["HERMETIC_PYTHON_VERSION"] == "3.11"
    assert values["HERMETIC_CUDA_COMPUTE_CAPABILITIES"] == "sm_75"


def test_cuda_libraries_stay_out_of_the_wheel() -> None:
    plain = Request(**{**vars(FULL), "extra": ()})
    assert resolve(compose(plain))["include_cuda_libs"] == "false"


def test_capabilities_come_last() -> None:
    assert compose()[-1] == "--repo_env=HERMETIC_CUDA_COMPUTE_CAPABILITIES=sm_75"


def test_each_flag_and_variable_exists(tmp_path: Path) -> None:
    (tmp_path / "distdir").mkdir()
    startup = arguments.compose_startup(cache=Path("/cache"), credentials=Path("/rc"), trust=Path("/ca"))
    plain = Request(**{**vars(FULL), "extra": ()})
    flags = [*startup, *compose(plain, downloads=tmp_path)[2:]]
    assert {flag.split("=")[0] for flag in flags} == BAZEL_6
    assert {flag.split("=")[1] for flag in flags if flag.startswith("--repo_env=")} == VARIABLES
    assert {flag.split("=")[1] for flag in flags if flag.startswith("--config=")} <= CONFIGURATIONS.keys()


def test_nothing_is_said_of_what_was_not_asked_for() -> None:
    bare = Request(**{**vars(FULL), "epoch": "", "extra": (), "remote_cache": "", "remote_executor": ""})
    said = " ".join(compose(bare, trust=Path("/ca")))
    assert not re.search("remote|tls|distdir|SOURCE_DATE_EPOCH", said)
    assert arguments.compose_startup(cache=Path("/cache"), credentials=None, trust=None) == [
        "--output_user_root=/cache/root"
    ]


def test_each_question_of_configure_is_answered() -> None:
    answers = arguments.compose_configure(FULL, python="/usr/bin/python3.11")
    assert answers.keys() == QUESTIONS
    assert answers["CLANG_CUDA_COMPILER_PATH"] == "/usr/lib/llvm-17/bin/clang"
    assert answers["TF_CUDA_CLANG"] == "1", "cuda without cuda_clang hands nvcc's flags to clang (tensorflow#91733)"


def test_the_stand_in_asks_the_same_questions() -> None:
    configure = Path(__file__).parents[2] / "fixtures/mini_tensorflow/configure"
    text = configure.read_text().replace("\\\n", " ")
    asked = set(re.findall(r"\b(?:ask|yes) ([A-Z_]+)", text))
    for names in re.findall(r"for name in ([A-Z_ ]+);", text):
        asked |= set(names.split())
    assert asked == QUESTIONS


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_stand_in_has_the_same_configurations(name: str) -> None:
    rc = (Path(__file__).parents[2] / "fixtures/mini_tensorflow/.bazelrc").read_text()
    for variable, value in CONFIGURATIONS[name].items():
        assert re.search(
            rf"^build:{name} --(?:repo_env=|@local_config_cuda//cuda:){variable}={value}$", rc, re.MULTILINE
        )
