"""Reads the machine: its GPUs, by NVIDIA's library, else nvidia-smi, else the PCI bus; and the system that they are in.

The library is asked first, because it tells most. All files are read below a root, so that a test can make a machine.
"""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.base.errors import UsageError
from toolkit.checks.gpu_rules import parse_capability
from toolkit.doctor import cards
from toolkit.doctor.machine import Device, Fault, Machine
from toolkit.engine.gpus import find_driver_program
from toolkit.versions.settings import Settings
from toolkit.versions.table import read_yaml

ROOT = Path("/")
ANSWER_SECONDS = 20
"""How long the driver may take to answer: some seconds for each GPU, where nothing else keeps it loaded."""

BRIEF_SECONDS = 5
"""How long the driver may take for a command that can go on without knowing the GPUs."""

FIELDS = ("name", "compute_cap", "driver_version")
OTHER_FIELDS = {"driver_version": "kmd_version"}
"""Fields of nvidia-smi that have, or will have, another name in a newer one."""

_BUS = "sys/bus/pci/devices"
_FAULTS = Path(__file__).with_name("faults.yaml")
_LIBRARY = "libnvidia-ml.so.1"
_FOLDERS = ("usr/lib/wsl/lib", "usr/lib64-nvidia", "run/opengl-driver/lib")
"""Folders of the driver's library that are not in every linker's path: WSL, Colab, NixOS."""

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_INVALID = re.compile(r'Field "(\w+)" is not a valid field')
_CONTAINED = re.compile(r"docker|kubepods|containerd|libpod|lxc")


@dataclass(frozen=True)
class _Answer:
    """What a driver said: the GPUs that it named, and the code and text of a failure."""

    devices: tuple[Device, ...] = ()
    code: int = 0
    text: str = ""
    hangs: bool = False


@dataclass(frozen=True)
class _Place:
    """The system in which a driver is asked."""

    root: Path
    system: str
    release: str
    is_container: bool
    bus: tuple[tuple[str, str], ...]  # device id and driver of each NVIDIA GPU on the PCI bus


def read_machine(settings: Settings, *, root: Path = ROOT, seconds: float = ANSWER_SECONDS) -> Machine:
    """Return what this machine is. A driver that does not answer in time is a fault of the machine, as any other."""
    place = _read_place(root)
    devices, fault = _read_devices(place, seconds)
    # A container on a Jetson may show neither its release nor its device tree.
    on_board = any(device.name.endswith("(nvgpu)") for device in devices)
    return Machine(
        devices=devices,
        fault=fault,
        platform=settings.platform,
        system="jetson" if on_board else place.system,
        jetson_release=place.release,
        is_container=place.is_container,
        glibc=platform.libc_ver()[1],
        python=_find_python(settings),
        engine="" if settings.engine == "auto" else settings.engine,
        lacks_avx=_lacks_avx(root),
    )


def _lacks_avx(root: Path) -> bool:
    flags = re.search(r"^flags\s*:(.*)$", _read(root / "proc/cpuinfo"), re.MULTILINE)
    return bool(flags and "avx" not in flags[1].split())


def find_system(root: Path = ROOT) -> str:
    """Return ``wsl2``, ``jetson`` or ``linux``."""
    kernel = _read(root / "proc/sys/kernel/osrelease").lower()
    if (root / "dev/dxg").exists() or ("microsoft" in kernel and "wsl2" in kernel):
        return "wsl2"
    return "jetson" if _read_release(root) or _find_tegra(root) else "linux"


def _read_place(root: Path) -> _Place:
    return _Place(
        root=root,
        system=find_system(root),
        release=_read_release(root),
        is_container=_is_container(root),
        bus=tuple(_list_bus(root)),
    )


def _read_devices(place: _Place, seconds: float) -> tuple[tuple[Device, ...], Fault | None]:
    answer = _ask_library(place, seconds)
    if answer is None and (program := find_driver_program(place.root)):
        answer = _ask_program(program, seconds)
    if answer is None:
        return _describe_silent(place)
    devices = _complete(answer.devices, place)
    if answer.code or answer.text or answer.hangs or not devices:
        fault = _find_fault(answer, place, seconds)
        return devices or _list_cards(place), fault
    return devices, None


def _describe_silent(place: _Place) -> tuple[tuple[Device, ...], Fault | None]:
    """Describe a machine that has neither NVIDIA's library nor nvidia-smi."""
    shown = _list_cards(place)
    if place.system == "jetson":
        return shown, None  # that of JetPack 4 and 5 has no nvidia-smi
    kind = _name_silence(place)
    row = next((row for row in _load_faults()["silent"] if row["id"] == kind), None)
    return shown, _make_fault(row, place) if row else None


def _name_silence(place: _Place) -> str:
    """Return the row of faults.yaml that says why there is no driver; empty if there is no GPU either."""
    if _read(place.root / "proc/sys/kernel/osrelease").rstrip().endswith("-Microsoft"):
        return "wsl1"
    # A container sees the bus of its host, where the card is that was not given to it; WSL's card is on no bus.
    if place.is_container and (place.bus or place.system == "wsl2" or not (place.root / _BUS).is_dir()):
        return "not-passed"
    if place.system == "wsl2":
        return "wsl2-without-driver"
    drivers = {driver for _, driver in place.bus}
    if not drivers:
        return ""
    return next((name for driver, name in _BY_DRIVER.items() if driver in drivers), "no-driver")


_BY_DRIVER = {"nouveau": "nouveau", "nvidia": "no-program"}
"""The row for a GPU that has one of these kernel modules."""


def _find_fault(answer: _Answer, place: _Place, seconds: float) -> Fault:
    rows = [row for row in _load_faults()["answers"] if "where" not in row or place.is_container]
    fitting = [row for row in rows if _says(answer.text, row)]
    fitting += [row for row in rows if answer.code in row["codes"]]
    name = "hangs" if answer.hangs else "not-understood"
    row = fitting[0] if fitting and not answer.hangs else next(row for row in rows if row["id"] == name)
    message = re.split(r"\. ", " ".join(answer.text.split()))[0][:200]
    if answer.hangs:
        message = f"it has not answered in {seconds:g} s"
    elif not message:
        message = f"exit code {answer.code}" if answer.code else "it says nothing"
    return _make_fault(row, place, message)


def _says(text: str, row: Mapping[str, Any]) -> bool:
    """Return whether a text shows the failure of a row of faults.yaml."""
    from toolkit import diagnosis  # only a fault needs it

    failure = diagnosis.load_row(row["failure"])
    return failure.sign.stands_in(text) or any(re.search(each, text) for each in row.get("texts", ()))


def _make_fault(row: Mapping[str, Any], place: _Place, message: str = "") -> Fault:
    """Return a fault in the words of its known failure, with the driver's message or the names of the cards."""
    from toolkit import diagnosis

    listed = [card for device, _ in place.bus if (card := cards.find_by_id(device))]
    names = list(dict.fromkeys(card.name for card in listed))
    failure = diagnosis.load_row(row["failure"])
    remedy = diagnosis.to_clause(failure.find_remedy("container" if place.is_container else place.system))
    ended = next((card for card in listed if card.chip and card.chip.last_driver), None)
    if ended and ended.chip and row["id"] in {"no-driver", "nouveau", "not-loaded", "no-devices", "no-program"}:
        last = str(_load_faults()["last_branch"]).format(card=ended.name, branch=ended.chip.last_driver)
        remedy = f"{remedy}; {last}"
    detail = message or " and ".join(names)
    has_gpu = row.get("has_gpu", True)
    return Fault(
        id=row["id"],
        cause=f"{diagnosis.to_clause(failure.cause)}{f' ({detail})' if detail else ''}",
        remedy=f"{remedy}; {failure.reference}",
        has_gpu=bool(place.bus) if has_gpu is None else has_gpu,
    )


@cache
def _load_faults() -> Mapping[str, Any]:
    read: Mapping[str, Any] = read_yaml(_FAULTS.read_bytes())
    return read


def _ask_library(place: _Place, seconds: float) -> _Answer | None:
    """Ask NVIDIA's library in a process that can be killed; None: it is not here, or it cannot be asked."""
    if place.root != ROOT or not has_library():
        return None
    folders = [str(ROOT / name) for name in _FOLDERS]
    paths = os.pathsep.join(filter(None, [os.environ.get("LD_LIBRARY_PATH", ""), *folders]))
    argv = [sys.executable, "-P", str(Path(__file__).with_name("nvml.py"))]
    code, out, _ = _run(argv, seconds, LD_LIBRARY_PATH=paths)
    if code == _KILLED:
        return _Answer(hangs=True)
    try:
        value = json.loads(out)
    except ValueError:
        return None
    if value["code"] == _LIBRARY_NOT_FOUND and not value["devices"]:
        return None
    driver = _know(value["driver"])
    devices = tuple(
        Device(
            name=item["name"],
            capability=_read_capability(item["capability"]) or _find_by_id(item["device"]),
            driver=driver,
            is_mig=item["mig"] or cards.is_mig(item["name"]),
            is_virtual=item["virtual"] or cards.is_profile(item["name"]),
        )
        for item in value["devices"]
    )
    if devices and value["code"] == _NO_PERMISSION:  # a job may use some of the GPUs
        return _Answer(devices)
    return _Answer(devices, value["code"], value["said"])


_LIBRARY_NOT_FOUND, _NO_PERMISSION = 12, 4


def has_library() -> bool:
    """Return whether the linker or a folder of the driver has NVIDIA's library. Nothing is started or loaded."""
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    folders += [ROOT / name for name in _FOLDERS]
    with suppress(OSError):
        if _LIBRARY.encode() in (ROOT / "etc/ld.so.cache").read_bytes():
            return True
    return any((folder / _LIBRARY).exists() for folder in folders)


def _ask_program(program: str, seconds: float) -> _Answer | None:
    """Ask nvidia-smi, again with fewer or other fields where it does not know one; None: it cannot be started."""
    fields = list(FIELDS)
    for _ in range(4):
        code, out, trouble = _run([program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"], seconds)
        if code == _KILLED:
            return _Answer(hangs=True)
        if code == _NOT_STARTED:
            return None
        if not code or "not a valid field" not in out + trouble:
            break
        match = _INVALID.search(out + trouble)
        fields = _leave_out(fields, match[1] if match else "compute_cap")
    devices, rest = _read_rows(out, fields)
    if not devices:
        return _Answer((), code, (f"{out}\n{trouble}").strip())
    if any(_may_be_mig(device) for device in devices):
        devices = _mark_mig(devices, program, seconds)
    failed = code not in {0, _CORRUPTED} or _is_fault(rest)
    return _Answer(tuple(devices), code if failed else 0, rest if failed else "")


_CORRUPTED = 14
"""The exit code of nvidia-smi for a damaged infoROM. The GPUs work, and it names them."""

_NOT_STARTED, _KILLED = -1000, -1001
"""Stand for exit codes. Those of programs that a signal ends are not so low."""


def _leave_out(fields: Sequence[str], name: str) -> list[str]:
    other = OTHER_FIELDS.get(name, "")
    return [other if field == name else field for field in fields if field != name or other]


def _read_rows(text: str, fields: Sequence[str]) -> tuple[list[Device], str]:
    """Return the GPUs of the lines that are rows, and the other lines. A field that is not known is empty."""
    devices, rest = [], []
    for line in text.splitlines():
        words = [word.strip() for word in line.rsplit(",", len(fields) - 1)]
        values = dict(zip(fields, words, strict=False))
        driver = values.get("driver_version", values.get("kmd_version", ""))
        if not _is_row(words, fields, driver) or _is_fault(line):
            rest += [line] if line.strip() else []
            continue
        devices.append(
            Device(
                name=values["name"],
                capability=_read_capability(values.get("compute_cap", "")),
                driver=_know(driver),
                is_mig=cards.is_mig(values["name"]),
                is_virtual=cards.is_profile(values["name"]),
            )
        )
    return devices, "\n".join(rest)


def _is_row(words: Sequence[str], fields: Sequence[str], driver: str) -> bool:
    complete = "name" in fields and len(words) == len(fields) and words[0] != ""
    return complete and bool(_VERSION.fullmatch(driver) or _is_unknown(driver))


def _is_fault(text: str) -> bool:
    return bool(text) and any(_says(text, row) for row in _load_faults()["answers"])


def _is_unknown(word: str) -> bool:
    """Return whether nvidia-smi says that it does not know a value: ``[N/A]``, ``[Not Supported]``, ``ERR!``."""
    return not word or word[0] == "[" or word in {"N/A", "ERR!", "Not Supported"}


def _know(word: str) -> str:
    return word if _VERSION.fullmatch(word) else ""


def _read_capability(word: str) -> str:
    given = parse_capability(word)
    return given.number if given and not given.kind else ""


def _may_be_mig(device: Device) -> bool:
    first = device.capability.partition(".")[0]
    return not device.is_mig and "GeForce" not in device.name and (not first or int(first) >= 8)


def _mark_mig(devices: Sequence[Device], program: str, seconds: float) -> list[Device]:
    """Mark the GPUs that are in MIG mode, or below which `nvidia-smi -L` lists instances."""
    modes = _run([program, "--query-gpu=mig.mode.current", "--format=csv,noheader"], seconds)[1].split()
    split = {index for index, mode in enumerate(modes) if mode == "Enabled"}
    listed = "" if {*modes} & {"Enabled", "Disabled"} else _run([program, "-L"], seconds)[1]
    number = -1
    for line in listed.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            number = int(match[1])
        elif re.match(r"\s+MIG ", line):
            split.add(number)
    return [replace(device, is_mig=device.is_mig or index in split) for index, device in enumerate(devices)]


def _run(argv: Sequence[str], seconds: float, **variables: str) -> tuple[int, str, str]:
    """Return the exit code of a program and what it wrote, or a code that says that it was killed or not started.

    A program that does not end in time is killed. One that hangs in the kernel is not waited for.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C", **variables},
        )
    except OSError as error:
        return _NOT_STARTED, "", str(error)
    try:
        out, trouble = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # the kernel may hold it as long as the GPU does not answer
            process.communicate(timeout=1)
        return _KILLED, "", ""
    return process.returncode, out, trouble


def _complete(devices: Sequence[Device], place: _Place) -> tuple[Device, ...]:
    """Return the GPUs with a capability also where the driver named none: by PCI id, else by the name."""
    ids = [device for device, _ in place.bus]
    told = [_find_by_id(identity) for identity in ids]
    same = told[0] if told and len(set(told)) == 1 else ""
    completed = []
    for index, device in enumerate(devices):
        # The driver lists GPUs in the order of the bus. A container may have some of those of its machine.
        by_id = told[index] if len(ids) == len(devices) else same
        by_tegra = cards.find_by_tegra(_find_tegra(place.root)) if place.system == "jetson" else None
        known = device.capability or by_id or (by_tegra.capability if by_tegra else "") or _find_by_name(device.name)
        completed.append(replace(device, capability=known))
    return tuple(completed)


def _list_cards(place: _Place) -> tuple[Device, ...]:
    """Return the GPUs that can be seen without a driver: on the PCI bus, or in the device tree of a Jetson."""
    devices = []
    for device, _ in place.bus:
        card = cards.find_by_id(device)
        name = card.name if card else f"NVIDIA GPU 10de:{device}"
        devices.append(Device(name=name, capability=card.capability if card else ""))
    if place.system == "jetson" and (known := cards.find_by_tegra(_find_tegra(place.root))):
        devices.append(Device(name=known.name, capability=known.capability))
    return tuple(devices)


def _find_by_id(device: str) -> str:
    card = cards.find_by_id(device) if device else None
    return card.capability if card else ""


def _find_by_name(name: str) -> str:
    with suppress(UsageError):
        return cards.find_card(name).capability
    return ""


def _list_bus(root: Path) -> Iterator[tuple[str, str]]:
    """Return the id and the driver of each GPU by NVIDIA on the PCI bus, which takes no driver to be read."""
    folder = root / _BUS
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        vendor, kind = _read(device / "vendor").strip(), _read(device / "class").strip()
        if vendor == "0x10de" and kind.startswith("0x03"):
            driver = device / "driver"
            yield _read(device / "device").strip().removeprefix("0x"), driver.resolve().name if driver.exists() else ""


def _read_release(root: Path) -> str:
    """Return the release of Jetson Linux, such as ``R36``; empty if this is none."""
    match = re.match(r"# (R\d+) ", _read(root / "etc/nv_tegra_release"))
    return match[1] if match else ""


def _find_tegra(root: Path) -> str:
    """Return the code of a Jetson's processor, such as ``tegra234``; empty if this is none."""
    for name in ("proc/device-tree/compatible", "sys/firmware/devicetree/base/compatible"):
        if chips := re.findall(r"tegra\d+", _read(root / name)):
            return str(chips[-1])
    return ""


def _is_container(root: Path) -> bool:
    if any((root / name).exists() for name in (".dockerenv", "run/.containerenv", ".singularity.d")):
        return True
    if root == ROOT and {"KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"} & {*os.environ}:
        return True
    return bool(_CONTAINED.search(_read(root / "proc/1/cgroup")))


def _read(path: Path) -> str:
    """Return the text of a small file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(1 << 16).decode(errors="replace")
    except OSError:
        return ""


def _find_python(settings: Settings) -> str:
    """Return the Python of the settings; if it was not asked for and is not here, the one that runs this program."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    asked = settings.sources.get("python", "default") != "default"
    present = settings.python == running or shutil.which(f"python{settings.python}")
    return settings.python if asked or present else running
