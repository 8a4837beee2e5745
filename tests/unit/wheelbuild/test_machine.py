from pathlib import Path

import pytest
from wheelbuild import machine


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        ({}, 16384),
        ({"memory.max": "max\n"}, 16384),
        ({"memory.max": f"{4 << 30}\n"}, 4096),
        ({"memory/memory.limit_in_bytes": f"{3 << 30}\n"}, 3072),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16384),
    ],
)
def test_the_lower_of_machine_and_container_counts(files: dict[str, str], memory: int, tmp_path: Path) -> None:
    meminfo = write(tmp_path, {"meminfo": f"MemTotal:       {16 << 20} kB\nMemFree: 1 kB\n"}) / "meminfo"
    assert machine.read_memory(meminfo, write(tmp_path / "cgroup", files)) == memory


@pytest.mark.parametrize(
    ("files", "peak"),
    [({}, None), ({"memory.peak": f"{5 << 20}\n"}, 5), ({"memory/memory.max_usage_in_bytes": f"{7 << 20}\n"}, 7)],
)
def test_the_peak_is_read_where_there_is_one(files: dict[str, str], peak: int | None, tmp_path: Path) -> None:
    assert machine.read_peak(write(tmp_path, files)) == peak


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, 0),
        ({"memory.events": "low 0\noom 2\noom_kill 1\n"}, 1),
        ({"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"}, 4),
    ],
)
def test_kills_are_counted(files: dict[str, str], kills: int, tmp_path: Path) -> None:
    assert machine.count_kills(write(tmp_path, files)) == kills
