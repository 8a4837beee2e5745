import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse


class ResultError(Exception):
    """Bazel ended well, but what it left is not one wheel."""


def read_wheel_event(events: Path) -> Path:
    """Return the wheel that the build events name; ``wheel_house`` may hold older ones. Raises ResultError."""
    wheels = sorted(set(_list_wheels(events)))
    if len(wheels) != 1:
        raise ResultError(f"{len(wheels)} wheels where one was expected: {', '.join(map(str, wheels)) or 'none'}")
    return wheels[0]


def write_sums(folder: Path) -> None:
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    lines = [f"{_digest(file)}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def _list_wheels(events: Path) -> Iterator[Path]:
    with events.open() as lines:
        for line in lines:
            for file in json.loads(line).get("namedSetOfFiles", {}).get("files", []):
                path = Path(unquote(urlparse(file.get("uri", "")).path))
                if path.suffix == ".whl":
                    yield path
                elif path.name == "wheel_house":  # TensorFlow up to 2.18 declares the folder only
                    yield from path.glob("*.whl")


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
