"""Reads what a cubin defines, the machine code of one GPU as an ELF file: kernels, their parameters, variables.

NVIDIA documents neither the sections nor ``.nv.info``. The attributes are those that CuAssembler (cloudcores, 2020)
names; they were checked against what ptxas 12.5 to 12.9 writes.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from toolkit.checks.gpu_rules import read_cubin_architecture

_HEADER = struct.Struct("<40xQ10xHHH")  # offset of the section headers; bytes, number, and the one with their names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ATTRIBUTE = struct.Struct("<BBH")
_PARAMETER = struct.Struct("<IHHI")
_VALUED: Final = 4  # format of an attribute that is followed by so many bytes
_PARAMETERS: Final = 0x17  # attribute: one parameter
_GLOBAL_OBJECT: Final = 0x11  # binding and type of a symbol
_FUNCTION: Final = 2  # type of a symbol
_ENTRY: Final = 0x10  # bit of a symbol's other field: the function is a kernel
_INFO: Final = ".nv.info."


@dataclass(frozen=True, slots=True)
class Cubin:
    architecture: int  # such as 120
    # Bytes of each kernel's parameters, in their order, by its name. Their offsets are not here: a parameter is aligned
    # within the constant bank, and where in it they begin differs between GPUs. The driver copies them one by one.
    kernels: dict[str, tuple[int, ...]]
    variables: dict[str, int]  # bytes of each global variable by name


def read(data: bytes) -> Cubin:
    """Return what a cubin defines. Raises ValueError if it is damaged, or no cubin."""
    try:
        architecture = read_cubin_architecture(data)
        sections = {name: (start, size) for name, start, size in _list_sections(data)}
        symbols = list(_list_symbols(data, sections))
        entries = [name for name, kind, other, _ in symbols if kind & 0xF == _FUNCTION and other & _ENTRY]
        kernels = {name: _read_kernel(data, *sections.get(f"{_INFO}{name}", (0, 0))) for name in entries}
        variables = {name: size for name, kind, _, size in symbols if kind == _GLOBAL_OBJECT}
        return Cubin(architecture=architecture, kernels=kernels, variables=variables)
    except (struct.error, IndexError, UnicodeDecodeError, MemoryError, OverflowError) as error:
        raise ValueError(f"damaged machine code: {error}") from error


def read_compatibility(data: bytes) -> bytes:
    """Return the section ``.nv.compat`` of a cubin; empty where it has none. Raises ValueError if it is damaged."""
    try:
        sections = {name: (start, size) for name, start, size in _list_sections(data)}
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"damaged machine code: {error}") from error
    start, size = sections.get(".nv.compat", (0, 0))
    return data[start : start + size]


def _list_sections(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset and size of each section."""
    table, entry_size, number, names = _HEADER.unpack_from(data)
    if entry_size != _SECTION.size or table + entry_size * number > len(data) or names >= number:
        raise ValueError("damaged machine code: its section headers lie outside of it")
    headers = [_SECTION.unpack_from(data, table + entry_size * index) for index in range(number)]
    _, _, _, _, strings, size, *_ = headers[names]
    for name, _, _, _, start, length, *_ in headers:
        yield _read_name(data, strings, size, name), start, length


def _read_name(data: bytes, strings: int, size: int, at: int) -> str:
    end = data.find(b"\0", strings + at, strings + size)
    if end < 0:
        raise ValueError("damaged machine code: a name does not end")
    return data[strings + at : end].decode()


def _read_kernel(data: bytes, start: int, size: int) -> tuple[int, ...]:
    """Return the bytes of each parameter that the ``.nv.info`` of a kernel names."""
    if start + size > len(data):
        raise ValueError("damaged machine code: a section lies outside of it")
    parameters, end = {}, start + size
    while start < end:
        form, attribute, value = _ATTRIBUTE.unpack_from(data, start)
        start += _ATTRIBUTE.size
        if form != _VALUED:
            continue
        if attribute == _PARAMETERS:
            _, ordinal, _, flags = _PARAMETER.unpack_from(data, start)
            parameters[ordinal] = flags >> 18
        start += value
    return tuple(parameters[ordinal] for ordinal in sorted(parameters))


def _list_symbols(data: bytes, sections: dict[str, tuple[int, int]]) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, binding and type, other field and size of each symbol."""
    start, size = sections.get(".symtab", (0, 0))
    strings = sections.get(".strtab", (0, 0))
    for name, info, other, _, _, length in _SYMBOL.iter_unpack(data[start : start + size - size % _SYMBOL.size]):
        yield _read_name(data, *strings, name), info, other, length
