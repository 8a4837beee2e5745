"""Reads the names of NVIDIA's devices from the repositories that list them, for the doctor's `devices.txt`."""

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from toolkit import inquiry, project

PATH: Final = project.ROOT / "toolkit" / "doctor" / "devices.txt"


class Source(NamedTuple):
    repository: str
    reference: str
    path: str

    def read(self) -> tuple[str, str]:
        """Return the text of the file, and the commit and day that it is of."""
        with tempfile.TemporaryDirectory() as folder:
            git = ("git", "-C", folder)
            inquiry.run(*git, "init", "--quiet", "--bare")
            inquiry.run(*git, "fetch", "--quiet", "--depth=1", "--filter=blob:none", self.repository, self.reference)
            inquiry.run(*git, "remote", "add", "origin", self.repository)
            text = inquiry.run(*git, "show", f"FETCH_HEAD:{self.path}")
            return text, inquiry.run(*git, "log", "-1", "--format=%h of %cs", "--abbrev=12", "FETCH_HEAD").strip()


SOURCES: Final[Mapping[str, Source]] = {
    "ids": Source("https://github.com/pciutils/pciids", "HEAD", "pci.ids"),
    "driver": Source(
        "https://github.com/NVIDIA/open-gpu-kernel-modules", "HEAD", "src/nvidia/generated/g_nv_name_released.h"
    ),
    # Names before Turing, which the open driver does not know. They change no more.
    "legacy": Source(
        "https://github.com/alex-tu-cc/get-nvidia-supported-gpus-json",
        "b9c1aa1a24f3af5d864da50e588b4a7be85bfd22",
        "focal-nvidia-driver-525-supported-gpus.json",
    ),
}

_HEAD = """\
# NVIDIA's GPUs by PCI device id: id, chip, names of the device, families of its vGPU profiles. Fields are separated by
# tabs, names by |. `toolkit matrix --refresh` makes this file anew and draws a patch of it.
"""
_VERSION = re.compile(r"^#\tVersion: (\S+)", re.MULTILINE)
_VENDOR = re.compile(r"^10de .*\n((?:[\t#].*\n)*)", re.MULTILINE)
_DEVICE = re.compile(r"^\t([0-9a-f]{4})  ([\w/]+)(?: / [\w-]+)*(?: \[(.+)\])?$", re.MULTILINE)
_CHIP = re.compile(r"NV\w+|C[5-7]\w+|MCP\w+|THOR|[AGT][A-Z]?\d{2,3}[A-Z]?")
_KIND = re.compile(r"(?:GLM|GL|M)$")
"""What pci.ids adds to a chip for the kind of its boards: for workstations, for laptops."""

_RELEASED = re.compile(r'\{ 0x(\w{4}), 0x(\w{4}), 0x(\w{4}), "([^"]+)" \}')
_PROFILE = re.compile(r"(?!NVIDIA PG)(.+?)(?:-\d{1,2})?-\d{1,3}(?:[ABCQ]\d?(?:ME)?|)")


def collect() -> str:
    """Return the text of the file. Raises UnreadableError if a source cannot be read."""
    read = {name: source.read() for name, source in SOURCES.items()}
    lines = []
    for name, (text, commit) in read.items():
        version = _VERSION.search(text[:1000])
        stated, source = f"version {version[1]}" if version else commit, SOURCES[name]
        lines.append(f"# source: {source.repository.removeprefix('https://github.com/')}, {source.path}, {stated}\n")
    return _HEAD + "".join(lines) + generate(**{name: text for name, (text, _) in read.items()})


def list_rows(text: str) -> list[str]:
    """Return the rows of a text of the file, without what its head says of the sources."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def generate(*, ids: str, driver: str, legacy: str) -> str:
    """Return a line for each GPU that pci.ids lists, with all its names. Raises UnreadableError on another format."""
    names: dict[str, list[str]] = defaultdict(list)
    families: dict[str, list[str]] = defaultdict(list)
    devices = list(_list_devices(ids))
    released = _RELEASED.findall(driver)
    if not devices or not released:
        raise inquiry.UnreadableError("the list of NVIDIA's devices has another format than before")
    for device, _, name in devices:
        names[device].append(name)
    for device, subsystem, _, name in released:
        profile = _PROFILE.fullmatch(name) if int(subsystem, 16) else None
        (families if profile else names)[device.lower()].append(profile[1] if profile else name)
    for device in families:
        # Profiles for games bear the name of a card with another chip.
        names[device] = [name for name in names[device] if "GeForce" not in name]
    with inquiry.parsing_answer(legacy):
        for item in json.loads(legacy)["chips"]:
            names[item["devid"].removeprefix("0x").lower()].append(str(item["name"]))
    return "".join(
        "\t".join((device, chip, _join(names[device]), _join(families[device]))).rstrip() + "\n"
        for device, chip, _ in sorted(devices)
    )


def _list_devices(ids: str) -> Iterator[tuple[str, str, str]]:
    vendor = _VENDOR.search(ids)
    for device, code, name in _DEVICE.findall(vendor[1] if vendor else ""):
        chip = _KIND.sub("", code.partition("/")[0].upper())
        if _CHIP.fullmatch(chip):
            yield device, chip, name


def _join(names: list[str]) -> str:
    return "|".join(dict.fromkeys(name.replace("|", "/") for name in names if name))
