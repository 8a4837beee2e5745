import itertools
import re
from typing import Any

import pytest
import yaml

from tests.makers.pages import ROOT
from tests.makers.sets import choose
from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.checks.gpu_rules import find_coverage
from toolkit.versions import numbers, table
from toolkit.versions.table import Table, load_table

TABLE = load_table()


def read_flags(remedy: str) -> dict[str, str | list[str]]:
    flags = re.findall(r"--([a-z-]+) (\S+)", remedy)
    found: dict[str, str | list[str]] = {name: value for name, value in flags if name != "compute-capability"}
    return {**found, "capabilities": [value for name, value in flags if name == "compute-capability"]}


@pytest.mark.parametrize(
    ("asked", "reason", "nearest"),
    [
        ({"cuda": "12.6"}, "full x.y.z is needed", "--cuda 12.6.1 --cudnn 9.5.0"),
        ({"cuda": "12.8.1"}, "no CUDA 12.8.1 in its tables", "--tensorflow 2.19.0 --python 3.11 --cuda 12.8.0"),
        ({"cuda": "12.8.0", "cudnn": "9.7.0", "capabilities": ["12.0"]}, "22 is for TensorFlow >=2.20", "compute_120"),
        ({"capabilities": ["3.5"]}, "compute capability 3.5, which ended with CUDA 11.8", "no set of the table runs"),
        ({"capabilities": ["12.0"]}, "which begins with CUDA 12.8.0", "--tensorflow 2.20.0"),
        ({"capabilities": ["12.0"]}, "TensorFlow 2.20.0 is the first", "--compute-capability compute_120"),
        ({"cudnn": "9.5.0.50"}, "cuDNN 9.5.0 is the release; 9.5.0.50 is the number of a wheel", "--cudnn 9.5.0"),
        ({"tensorflow": "2.21.0", "cudnn": "9.5.1"}, "containers#6417", "--tensorflow 2.21.0"),
        ({"python": "3.13"}, "no Python 3.13", "--python 3.12"),
        ({"tensorflow": "2.18.0", "cudnn": "8.9.6"}, "cuDNN 8", "--tensorflow 2.18.0"),
        ({"tensorflow": "2.21.0", "cuda": "12.9.1", "capabilities": ["12.0f"]}, "clang 22", "compute_120"),
        (
            {"tensorflow": "2.21.0", "cuda": "12.9.1", "cudnn": "9.12.0"},
            "with CUDA 13 alone",
            "--cuda 12.9.1 --cudnn 9",
        ),
        (
            {"tensorflow": "2.21.0", "cuda": "13.0.0", "cudnn": "9.12.0", "capabilities": ["7.0"]},
            "7.0, which ended with CUDA 12.9.1",
            "--cuda 12.9.1",
        ),
        ({"tensorflow": "2.19.0", "cuda": "13.0.0"}, "compiles TensorFlow 2.19.0 with CUDA 13.0.0", "--cuda 12.8.0"),
    ],
)
def test_refusal_names_reason_and_nearest(asked: dict[str, str], reason: str, nearest: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        choose(TABLE, **asked)
    assert caught.value.exit_code == 3
    assert reason in str(caught.value)
    assert nearest in caught.value.remedy


@pytest.fixture(scope="module", params=["9.11.0", "9.11.1"])
def newer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Table, str]:
    data = table.read_yaml(table.PATH.read_text())
    data["cudnn"][request.param] = {"redist": "0" * 64, "sources": ["tsl"], "wheel": f"{request.param}.1"}
    data["tensorflow"]["2.19.0"]["cudnn"].append(request.param)
    path = tmp_path_factory.mktemp("table") / "table.yaml"
    path.write_text(yaml.safe_dump(data))
    return load_table(path), request.param


@pytest.mark.parametrize("capabilities", [["6.0"], ["7.0"], ["7.2"], ["5.0"], ["6.1", "7.5"], ["sm_70", "compute_80"]])
def test_gpus_before_turing_are_kept_from_the_cudnn_without_code_for_them(
    newer: tuple[Table, str], capabilities: list[str]
) -> None:
    """See conda-forge/tensorflow-feedstock#457: cuDNN 9.11 dropped the code for capabilities below 7.5."""
    newer_table, cudnn = newer
    with pytest.raises(UnsupportedError, match=r"cuDNN 9\.11 and later .* before Turing") as caught:
        choose(newer_table, cudnn=cudnn, capabilities=capabilities)
    assert "tensorflow-feedstock#457" in str(caught.value)
    assert "jaxlib-feedstock#330" in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "clang"),
    [
        ({}, "17"),
        ({"tensorflow": "2.18.0", "cuda": "12.4.1", "cudnn": "9.4.0"}, "17"),
        ({"capabilities": ["9.0a"]}, "18"),
        ({"cuda": "12.8.0", "cudnn": "9.7.0"}, "18"),
        ({"tensorflow": "2.20.0", "cuda": "12.8.1"}, "18"),
        ({"tensorflow": "2.20.0", "cuda": "12.8.1", "cudnn": "9.8.0", "capabilities": ["10.0", "12.0"]}, "22"),
        ({"tensorflow": "2.21.0", "cuda": "12.8.1", "cudnn": "9.8.0", "capabilities": ["12.0"]}, "22"),
        ({"tensorflow": "2.21.0", "cuda": "12.9.1", "cudnn": "9.8.0", "capabilities": ["7.5", "10.3"]}, "22"),
        ({"tensorflow": "2.21.0", "cuda": "13.0.0", "cudnn": "9.12.0", "capabilities": ["7.5"]}, "22"),
    ],
)
def test_the_first_compiler_that_serves_a_whole_set_is_taken(asked: dict[str, str], clang: str) -> None:
    found = choose(TABLE, **asked)
    assert found.clang == clang
    documented = TABLE.tensorflow(found.tensorflow).clang.partition(".")[0]
    assert any("upstream documents" in line for line in found.warnings) == (clang != documented)


@pytest.mark.parametrize(
    "asked",
    [
        {"cuda": "twelve"},
        {"cuda": "12.6.1; rm"},
        {"capabilities": ["75"]},
        {"capabilities": ["7.5", "sm_80"]},
        {"python": "python3"},
    ],
)
def test_what_is_not_written_as_a_version_is_wrong_usage(asked: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        choose(TABLE, **asked)


def test_a_set_for_processors_has_no_cuda_and_meets_none_of_its_failures() -> None:
    found = choose(TABLE, tensorflow="2.21.0", for_processor=True)
    assert (found.cuda, found.cudnn, found.capabilities, found.clang) == ("", "", (), "18")
    assert found.requirements == "cpu-2.21.0"
    assert not re.search("cuda|nvcc|cudnn", " ".join(found.answered), re.IGNORECASE)
    with pytest.raises(UsageError, match=r"--cuda none is for processors, and --compute-capability 7\.5 is given too"):
        choose(TABLE, capabilities=["7.5"], for_processor=True)
    with pytest.raises(UnsupportedError) as caught:
        choose(TABLE, tensorflow="2.21.0", python="3.9", for_processor=True)
    assert caught.value.remedy == "nearest that works: --tensorflow 2.21.0 --python 3.10 --cuda none"


@pytest.mark.parametrize("row", TABLE.rows(), ids=lambda row: row.version)
def test_each_buildable_row_resolves(row: table.TensorflowRow) -> None:
    locked = [cuda for cuda in row.cuda if TABLE.cuda_rows[cuda].parts]
    assert locked
    for cuda in locked:
        assert any(can_be_built(row.version, cuda, cudnn) for cudnn in row.cudnn)


@pytest.mark.parametrize("row", TABLE.rows(), ids=lambda row: row.version)
def test_what_is_said_to_be_patched_has_its_patches(row: table.TensorflowRow) -> None:
    for cuda in row.cuda:
        known = {"tensorflow": [row.version], "cuda": [cuda], "cudnn": row.cudnn, "capability": ["9.0"]}
        for failure in TABLE.failures:
            if "bazel_patches/kernels" in failure.ours and failure.affects(**known):
                assert (ROOT / "bazel_patches/kernels" / f"{row.version}-{cuda}" / "series").is_file(), failure.id


def can_be_built(tensorflow: str, cuda: str, cudnn: str) -> bool:
    try:
        return choose(TABLE, tensorflow=tensorflow, cuda=cuda, cudnn=cudnn).cudnn == cudnn
    except UnsupportedError:
        return False


CARDS = sorted({number for row in TABLE.cuda_rows.values() for number in row.capabilities} | {"3.0", "8.8", "12.1"})


def require_sound(asked: dict[str, Any]) -> None:
    try:
        found = choose(TABLE, **asked)
    except UnsupportedError as error:
        remedy = error.remedy
        if "--cuda " not in remedy:
            return
        found = choose(TABLE, **read_flags(remedy))  # type: ignore[arg-type]
    for card in asked["capabilities"]:
        covered = find_coverage(found.capabilities, numbers.strip_suffix(card))
        assert covered is not None
        assert covered.is_native, f"{found.flags()} does not run on {card}"


@pytest.mark.slow
@pytest.mark.parametrize("tensorflow", TABLE.tensorflow_rows)
def test_every_hint_of_the_whole_table_is_sound(tensorflow: str) -> None:
    releases = itertools.cycle(TABLE.cudnn_rows)
    for (cuda, card), cudnn in zip(itertools.product(TABLE.cuda_rows, CARDS), releases, strict=False):
        require_sound(
            {"tensorflow": tensorflow, "python": "3.13", "cuda": cuda, "cudnn": cudnn, "capabilities": [card]}
        )


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (["7.5"], ("compute_75",)),
        (["8.9", "7.5", "8.9"], ("sm_75", "compute_89")),
        (["9.0a", "10.0"], ("sm_90a", "compute_100")),
        (["sm_75"], ("sm_75",)),
        (["compute_75", "sm_75", "sm_60"], ("sm_60", "sm_75", "compute_75")),
    ],
)
def test_capabilities_as_tensorflow_reads_them(asked: list[str], named: tuple[str, ...]) -> None:
    assert numbers.normalize_capabilities(asked) == named
