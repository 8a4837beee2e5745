import time
import uuid
from pathlib import Path

WHEEL = "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def change(mini: Path) -> None:
    with (mini / "tensorflow/core/kernels/host.cc").open("a") as source:
        source.write(f'extern "C" const char *standin_note() {{ return "{uuid.uuid4()}"; }}\n')


def find_process(marker: bytes, seconds: float = 120) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker in command:
                return int(folder.name)
        time.sleep(0.1)
    raise TimeoutError(f"no process with {marker!r}")
