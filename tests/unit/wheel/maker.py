import base64
import hashlib
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

CPU_INFO = "import collections\nbuild_info = collections.OrderedDict([('is_cuda_build', False)])\n"
MEMBER = "tensorflow/python/platform/build_info.py"


def make_build_info(*capabilities: str, cuda: str = "12.6.1") -> str:
    pairs = [
        ("cuda_compute_capabilities", list(capabilities)),
        ("cuda_version", cuda),
        ("cudnn_version", "9"),
        ("is_cuda_build", True),
    ]
    return f"import collections\nbuild_info = collections.OrderedDict({pairs!r})\n"


def make_wheel(
    folder: Path,
    *,
    name: str = "tensorflow",
    version: str = "2.19.0",
    tag: str = "cp311-cp311-linux_x86_64",
    files: Mapping[str, bytes | str] | None = None,
    record: Mapping[str, str | None] | None = None,
    requires: Sequence[str] = (),
) -> Path:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    content = {name: text.encode() if isinstance(text, str) else text for name, text in (files or {}).items()}
    if files is None:
        content[MEMBER] = make_build_info("compute_75").encode()
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *requires]
    content[f"{info}/METADATA"] = "\n".join([*head, "", "Text.", ""]).encode()
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    hashes: dict[str, str | None] = {member: hash_for_record(data) for member, data in content.items()}
    hashes.update(record or {})
    lines = [
        f"{member},{value},{len(content.get(member, b''))}" for member, value in hashes.items() if value is not None
    ]
    content[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{name.replace('-', '_')}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in content.items():
            # A constant time makes wheels of equal content equal.
            entry = zipfile.ZipInfo(member, (2025, 3, 5, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def hash_for_record(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def make_fatbin(*entries: tuple[str, int]) -> bytes:
    body, kinds = bytes(24), {"compute": 1, "sm": 2, "other": 0x40}
    packed = b"".join(
        struct.pack("<HHIQIIHHI", kinds[kind], 0x101, 64, len(body), 0, 0, 0, 1, number).ljust(64, b"\0") + body
        for kind, number in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(packed)) + packed


def make_elf(section: bytes = b"", *, machine: int = 62, flags: int = 0, abi: int = 0) -> bytes:
    name = b".nv_fatbin"
    names = b"\0" + name + b"\0.shstrtab\0"
    at_names = 64 + len(section)
    table = at_names + len(names) + (-(at_names + len(names)) % 8)
    header = b"\x7fELF\x02\x01\x01\0" + bytes([abi]) + b"\0" * 7
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, table, flags, 64, 56, 0, 64, 3, 2)
    headers = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(section), 0, 0, 8, 0),
        struct.pack("<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, at_names, len(names), 0, 0, 1, 0),
    ]
    return (header + section + names).ljust(table, b"\0") + b"".join(headers)
