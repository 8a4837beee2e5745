import struct


def cubin(flags: int, machine: int = 190, abi: int = 7) -> bytes:
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    header[8] = abi
    struct.pack_into("<H", header, 18, machine)
    struct.pack_into("<I", header, 48, flags)
    return bytes(header)
