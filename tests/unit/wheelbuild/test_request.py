import pytest
from wheelbuild.request import UsageError, read_request

from tests.makers.build_request import GIVEN


@pytest.mark.parametrize(("cores", "memory", "jobs"), [(32, 65536, 32), (32, 16384, 8), (2, 24000, 2), (4, 1000, 1)])
def test_jobs_follow_cores_and_memory(cores: int, memory: int, jobs: int) -> None:
    assert read_request(GIVEN, cores=cores, memory=memory).jobs == jobs


def test_the_user_has_the_last_word() -> None:
    wanted = read_request({**GIVEN, "BAZEL_JOBS": "3", "BAZEL_MEMORY": "9000"}, cores=8, memory=65536)
    assert (wanted.jobs, wanted.memory) == (3, 9000)


def test_more_arguments_are_split_at_blanks() -> None:
    wanted = read_request({**GIVEN, "BAZEL_ARGUMENTS": " --copt=-mavx  --keep_going "}, cores=1, memory=4096)
    assert wanted.extra == ("--copt=-mavx", "--keep_going")


@pytest.mark.parametrize(
    "given", [GIVEN | {"LLVM_VERSION": ""}, {key: GIVEN[key] for key in GIVEN if key != "LLVM_VERSION"}]
)
def test_what_is_missing_is_named(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="LLVM_VERSION"):
        read_request(given, cores=1, memory=4096)


def test_a_wheel_for_processors_names_no_cuda_and_another_device_is_refused() -> None:
    wanted = read_request({**GIVEN, "DEVICE": "cpu"}, cores=1, memory=4096)
    assert (wanted.cuda, wanted.cudnn, wanted.capabilities) == ("", "", "")
    with pytest.raises(UsageError, match="DEVICE must be cuda or cpu, not 'none'"):
        read_request({**GIVEN, "DEVICE": "none"}, cores=1, memory=4096)


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many", "1,000"])
def test_a_count_is_a_positive_number(text: str) -> None:
    with pytest.raises(UsageError, match="BAZEL_JOBS"):
        read_request({**GIVEN, "BAZEL_JOBS": text}, cores=1, memory=4096)
