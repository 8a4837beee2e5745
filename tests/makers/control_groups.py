from pathlib import Path


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def make(folder: Path, cgroup: str, mount: str, files: dict[str, str]) -> Path:
    groups = write(folder / "control groups", files)
    escaped = str(groups).replace(" ", "\\040")
    mountinfo = f"23 1 8:1 / / rw - ext4 /dev/sda1 rw\n{mount.format(escaped)}\n"
    return write(folder / "proc", {"cgroup": cgroup, "mountinfo": mountinfo})


V2 = "32 31 0:29 / {} rw,relatime shared:4 - cgroup2 cgroup2 rw"
