"""What is read of machines of each kind, and why a driver does not answer. Programs and libraries are played."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit import diagnosis
from toolkit.doctor import hardware, reading
from toolkit.doctor.machine import Device, Machine
from toolkit.versions.settings import resolve

FIXTURES = Path(__file__).parents[1] / "fixtures"
MACHINES = yaml.safe_load((FIXTURES / "machines.yaml").read_text())

SMI = """\
known=' {known} '
case "$1" in -L) printf '%s\\n' '{listed}'; exit 0 ;; esac
IFS=,
for field in ${{1#--query-gpu=}}; do
  case "$known" in *" $field "*) ;; *) echo "Field \\"$field\\" is not a valid field to query."; exit 2 ;; esac
done
{rows}
{last}
"""
ROW = """\
line=
for field in ${{1#--query-gpu=}}; do
  case "$field" in
    {cases}
  esac
  line="$line, $value"
done
echo "${{line#, }}"
"""


def write_program(path: Path, smi: dict[str, Any]) -> None:
    if "says" in smi:
        script = f"cat <<'E'\n{smi['says']}\nE\nexit {smi['exit']}"
    elif smi.get("hangs"):
        script = "exec sleep 600"
    else:
        rows = ""
        for row in smi["rows"]:
            cases = "\n    ".join(f"{name}) value='{word}' ;;" for name, word in zip(smi["fields"], row, strict=True))
            rows += ROW.format(cases=cases)
        last = f"echo '{smi.get('warns', '')}'\nexit {smi.get('exit', 0)}" if smi.get("warns") else ""
        script = SMI.format(known=" ".join(smi["fields"]), listed=smi.get("listed", ""), rows=rows, last=last)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def make_root(root: Path, files: dict[str, str], bus: list[list[str]] = []) -> Path:  # noqa: B006 - only read
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for number, (device, driver) in enumerate(bus):
        folder = root / f"sys/bus/pci/devices/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        for name, text in (("vendor", "0x10de"), ("device", f"0x{device}"), ("class", "0x030000")):
            (folder / name).write_text(f"{text}\n")
        if driver:
            (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(root / "drivers" / driver)
    return root


def read(entry: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    root = make_root(folder / "root", entry.get("files", {}), entry.get("bus", []))
    smi = entry["smi"]
    if smi:
        place = root / smi["beside"] if "beside" in smi else folder / "bin"
        write_program(place / "nvidia-smi", smi)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    seconds = 0.3 if smi and smi.get("hangs") else 20
    return reading.read_machine(resolve({}, environment={}), root=root, seconds=seconds)


def show(device: Device) -> str:
    marks = ["mig"] * device.is_mig + ["virtual"] * device.is_virtual
    return " | ".join((device.name, device.capability, device.driver, " ".join(marks)))


@pytest.mark.parametrize("entry", MACHINES, ids=lambda entry: entry["id"])
def test_a_machine_is_read(entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("nvidia-smi", path="/usr/bin:/bin") and not entry["smi"]:
        pytest.skip("this machine has a driver of its own")
    found, expected = read(entry, tmp_path, monkeypatch), entry["expected"]
    lines = [" | ".join(word.strip() for word in line.split("|")) for line in expected.get("devices", [])]
    assert [show(device) for device in found.devices] == lines
    assert (found.fault.id if found.fault else None) == expected.get("fault")
    assert (found.system, found.jetson_release) == (expected.get("system", "linux"), expected.get("release", ""))
    assert found.is_container == expected.get("container", False)
    if found.fault:
        assert found.fault.has_gpu == expected["has_gpu"]
        assert all(word in found.fault.remedy for word in expected["remedy"]), found.fault.remedy
        assert not {"{", "}"} & {*found.fault.remedy, *found.fault.cause}
        named = re.search(r"see `toolkit diagnose --id ([\w-]+)`$", found.fault.remedy)
        assert named
        assert named[1] in diagnosis.load().rows


LIBRARY = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const char *mode(void) { const char *text = getenv("PLAYED_NVML"); return text ? text : ""; }
int nvmlInitWithFlags(unsigned flags) {
  if (!strcmp(mode(), "hangs")) sleep(600);
  return !strcmp(mode(), "differs") ? 18 : 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "GPU is lost"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.95.05", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (index && !strcmp(mode(), "lost")) return 15;
  if (index && !strcmp(mode(), "denied")) return 4;
  *handle = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
  strncpy(text, handle == (void *)1 ? "NVIDIA H200" : "GRID V100D-8C", size); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  if (handle != (void *)1) return 3;
  *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) {
  if (handle != (void *)1) return 3;
  *now = *later = 1; return 0; }
int nvmlDeviceGetVirtualizationMode(void *handle, int *kind) { *kind = handle == (void *)1 ? 0 : 2; return 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a library that plays NVIDIA's."""
    pytest.importorskip("pynvml")
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "libnvidia-ml.so.1", "nvml.c"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("mode", "names", "fault"),
    [
        ("", ["NVIDIA H200 | 9.0 | 580.95.05 | mig", "GRID V100D-8C | 7.0 | 580.95.05 | virtual"], None),
        ("denied", ["NVIDIA H200 | 9.0 | 580.95.05 | mig"], None),
        ("lost", ["NVIDIA H200 | 9.0 | 580.95.05 | mig"], "gpu-lost"),
        ("differs", [], "version-mismatch"),
        ("hangs", [], "hangs"),
    ],
)
def test_nvidias_library_is_asked_first(
    library: Path,
    find_library: Callable[[], bool],
    install: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    names: list[str],
    fault: str | None,
) -> None:
    monkeypatch.setattr(reading, "has_library", find_library)
    install("nvidia-smi", "echo 'Tesla T4, 7.5, 560.35.03'")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("PLAYED_NVML", mode)
    begun = time.monotonic()
    found = reading.read_machine(resolve({}, environment={}), seconds=0.5 if mode == "hangs" else 20)
    assert mode != "hangs" or time.monotonic() - begun < 10
    assert [show(device) for device in found.devices] == names
    assert (found.fault.id if found.fault else None) == fault


def test_wsl_is_told_of_its_memory_and_of_windows_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "c"
    disk.mkdir()
    monkeypatch.chdir(disk)
    mounts = f"C:\\134 {disk} 9p rw 0 0\nnone / ext4 rw 0 0\n"
    root = make_root(tmp_path / "root", {"dev/dxg": "", "proc/mounts": mounts})
    found = {each.id: each for each in hardware.check(resolve({}, environment={}), root)}
    assert ".wslconfig" in found["memory"].evidence
    assert (found["windows-state"].level, "slowly" in found["windows-state"].evidence) == ("warn", True)
    (root / "dev/dxg").unlink()
    assert "windows-state" not in {each.id for each in hardware.check(resolve({}, environment={}), root)}
