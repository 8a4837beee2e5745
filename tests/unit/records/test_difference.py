import warnings
import zipfile
from pathlib import Path

import pytest

from toolkit.records import rebuild

FILES = {"a.py": b"one", "b.so": b"x" * 3_000_000, "t.dist-info/RECORD": b"r"}


def pack(path: Path, files: dict[str, bytes], *, time: int = 1, mode: int = 0o644, stored: bool = False) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (2025, 3, time, 0, 0, 0))
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return path


@pytest.mark.parametrize(
    ("files", "options", "level", "said"),
    [
        (FILES, {"time": 2}, "R2", "time (2025, 3, 1"),
        (FILES, {"stored": True}, "R2", "compression 8 and 0"),
        (dict(reversed(FILES.items())), {}, "R2", "another order"),
        (FILES | {"t.dist-info/RECORD": b"s"}, {}, "R2", "1 of 1 bytes"),
        (FILES | {"a.py": b"three"}, {}, "R1", "3 and 5 bytes"),
        (
            FILES | {"b.so": b"x" * 2_000_000 + b"y" + b"x" * 999_999},
            {},
            "R1",
            "1 of 3,000,000 bytes, the first at 0x1e8480",
        ),
        (FILES | {"c": b""}, {}, "below R1", "only in the second"),
        (FILES, {"mode": 0o120644}, "R1", "type of file in the modes 0o644 and 0o120644"),
    ],
)
def test_each_difference_is_explained_and_ranked(
    tmp_path: Path, files: dict[str, bytes], options: dict[str, int], level: str, said: str
) -> None:
    second = pack(tmp_path / "2", files, **options)  # type: ignore[arg-type]
    found = rebuild.compare(pack(tmp_path / "1", FILES), second)
    assert any(said in item.detail for item in found), found
    assert rebuild.rank(found) == level


@pytest.mark.parametrize(
    ("name", "content", "sort"),
    [
        ("x/_ops.so", b"\x7fELF\x02", "machine code"),
        ("x/kernel", b"\x50\xed\x55\xba\x01", "GPU code"),
        ("x/a.py", b"print()", "Python code"),
    ],
)
def test_code_is_named_as_what_it_is(tmp_path: Path, name: str, content: bytes, sort: str) -> None:
    first, second = pack(tmp_path / "1", {name: b"else"}), pack(tmp_path / "2", {name: content + b"."})
    found = rebuild.compare(first, second)
    assert [item.detail.partition(":")[0] for item in found] == [sort]
    assert not found[0].harmless
    assert rebuild.rank(found) == "R1"


def test_only_named_differences_are_harmless(tmp_path: Path) -> None:
    base = {**FILES, "t.dist-info/METADATA": b"n", "x/RECORD": b"q"}
    other = {**FILES, "t.dist-info/METADATA": b"m", "x/RECORD": b"r", "t.dist-info/RECORD": b"s"}
    found = rebuild.compare(pack(tmp_path / "1", base), pack(tmp_path / "2", other, time=2))
    contents = {item.name: item.harmless for item in found if item.kind == "content"}
    assert contents == {"t.dist-info/RECORD": True, "t.dist-info/METADATA": False, "x/RECORD": False}
    assert all(item.harmless for item in found if item.kind == "envelope")


@pytest.mark.parametrize(
    ("first", "second", "level", "said"),
    [
        ((b"evil", b"good"), (b"good",), "below R1", "stands 2 times in the first, 1 in the second"),
        ((b"evil", b"good"), (b"good", b"good"), "R1", "Python code: 4 of 4 bytes, the first at 0x0"),
        ((b"good", b"good"), (b"good", b"good"), "R3", ""),
    ],
)
def test_a_name_that_stands_twice_is_compared_each_time(
    tmp_path: Path, first: tuple[bytes, ...], second: tuple[bytes, ...], level: str, said: str
) -> None:
    for name, contents in (("1", first), ("2", second)):
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(tmp_path / name, "w") as archive:
            for content in contents:
                archive.writestr(zipfile.ZipInfo("x.py"), content)
    found = rebuild.compare(tmp_path / "1", tmp_path / "2")
    assert (rebuild.rank(found), "".join(each.detail for each in found)) == (level, said)


def test_bytes_after_the_archive_are_noticed(tmp_path: Path) -> None:
    first, second = pack(tmp_path / "1", FILES), pack(tmp_path / "2", FILES)
    with zipfile.ZipFile(second, "a") as archive:
        archive.comment = b"built on Tuesday"
    assert [item.detail for item in rebuild.compare(first, second)] == ["the archive is packed in another way"]
