from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wheel.maker import CPU_INFO, MEMBER, make_build_info, make_elf, make_fatbin, make_wheel
from toolkit.base import digest
from toolkit.base.errors import IntegrityError, ToolkitError, UsageError
from toolkit.wheel import elf, fatbin, inspection


@pytest.fixture
def cuda_wheel(tmp_path: Path) -> Path:
    library = make_elf(b"\0" * 16 + make_fatbin(("sm", 75), ("compute", 75), ("other", 99)) + b"\0" * 40)
    return make_wheel(
        tmp_path,
        files={
            MEMBER: make_build_info("compute_75"),
            "tensorflow/libtensorflow_cc.so.2": library,
            "tensorflow/core/kernels/fill.sm_86.cubin": make_elf(machine=190, flags=0x00560556),
            "tensorflow/core/kernels/fill.sm_90.cubin": make_elf(machine=190, flags=0x06005A02, abi=8),
            "tensorflow/readme.txt": "text",
        },
    )


def test_facts_of_a_cuda_wheel(cuda_wheel: Path) -> None:
    found = inspection.inspect(cuda_wheel)
    assert (found.name, found.version, found.pythons, found.platforms) == (
        "tensorflow",
        "2.19.0",
        ("cp311",),
        ("linux_x86_64",),
    )
    assert found.build == inspection.BuildInfo(is_cuda=True, cuda="12.6.1", cudnn="9", capabilities=("compute_75",))
    assert found.architectures == ("compute_75", "sm_75", "sm_86", "sm_90")
    assert found.bytes == cuda_wheel.stat().st_size


@pytest.mark.parametrize("name", ["tensorflow.whl", "tensorflow-2.19.0.zip", "tensorflow-2.19.0-cp311.whl"])
def test_what_has_no_wheels_name_is_wrong_usage(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"PK")
    with pytest.raises(UsageError):
        inspection.inspect(path)


def test_name_and_metadata_must_agree(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, version="2.18.0")
    renamed = path.rename(tmp_path / "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl")
    with pytest.raises(IntegrityError, match=r"that of tensorflow 2\.18\.0"):
        inspection.inspect(renamed)


@pytest.mark.parametrize("content", [b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\xff" * 80])
def test_damaged_library_is_named(tmp_path: Path, content: bytes) -> None:
    path = make_wheel(tmp_path, files={MEMBER: CPU_INFO, "tensorflow/x.so": content})
    with pytest.raises(IntegrityError, match="damaged library"):
        inspection.inspect(path)


@pytest.mark.parametrize(
    ("symbols", "platforms", "host"),
    [
        ({"GLIBC": "2.17"}, ["manylinux_2_27_x86_64", "linux_x86_64"], "glibc 2.27"),  # pip goes by the tag
        ({"GLIBC": "2.34"}, ["linux_x86_64"], "glibc 2.34"),
        ({}, ["linux_x86_64"], ""),
    ],
)
def test_the_c_library_that_a_host_needs_is_named(symbols: dict[str, str], platforms: list[str], host: str) -> None:
    said = inspection.describe_host({"symbols": symbols, "platforms": platforms})
    assert host in said
    assert bool(said) == bool(host)


@pytest.mark.parametrize("unpacked", [1 << 20, 1 << 40])
def test_a_fat_binary_that_unpacks_to_far_more_than_it_holds_is_refused(unpacked: int) -> None:
    entry = fatbin.Entry(
        start=0, header=0, size=8, kind="sm", architecture=75, packed=8, unpacked=unpacked, flags=fatbin._LZ4
    )
    with pytest.raises(ValueError, match="names sizes that cannot be"):
        fatbin.unpack(bytes(8), entry)


def test_build_info_is_never_run(tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    for text in (
        f"build_info = open({str(evil)!r}, 'w')",
        f"import collections\nbuild_info = collections.OrderedDict([(open({str(evil)!r}, 'w'), 1)])",
        f"open({str(evil)!r}, 'w')\nbuild_info = {{'is_cuda_build': False}}",
    ):
        path = make_wheel(tmp_path, files={MEMBER: text})
        try:
            inspection.inspect(path)
        except IntegrityError as error:
            assert "build_info" in error.what  # noqa: PT017 - the third text is harmless and passes
        assert not evil.exists()


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_fat_binary_reader(noise: bytes) -> None:
    whole = make_fatbin(("sm", 75))
    for data in (noise, whole[:4] + noise, whole + noise, whole[:-1]):
        try:
            found = elf.read_architectures(data)
        except ValueError:
            continue
        assert all(name.partition("_")[0] in {"sm", "compute"} for name in found)


@given(data=st.data())
def test_no_damage_crashes_the_inspection(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("wheel")
    path = make_wheel(folder, files={MEMBER: CPU_INFO, "tensorflow/x.so": make_elf(make_fatbin(("sm", 75)))})
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        assert inspection.inspect(path).name == "tensorflow"
    except ToolkitError as error:
        assert error.exit_code in {3, 8}  # noqa: PT017 - either outcome is right


def test_a_wheel_is_inspected_once_where_digests_are_remembered(
    cuda_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").mkdir()
    inspected: list[Path] = []
    real = inspection._inspect
    monkeypatch.setattr(inspection, "_inspect", lambda path, content: inspected.append(path) or real(path, content))
    expected = inspection.inspect(cuda_wheel)
    for _ in range(2):
        with digest.caching(tmp_path / "state"):
            assert inspection.inspect(cuda_wheel) == inspection.inspect(cuda_wheel) == expected
    assert len(inspected) == 2, "once without remembering, once with"
    content = bytearray(cuda_wheel.read_bytes())
    content[len(content) // 2] ^= 1
    cuda_wheel.write_bytes(content)
    with digest.caching(tmp_path / "state"), pytest.raises(IntegrityError):
        inspection.inspect(cuda_wheel)
