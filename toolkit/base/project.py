from pathlib import Path

from toolkit.base.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]

DIST = Path("dist")
"""Default folder of finished wheels."""


def locate(name: str) -> Path:
    """Return the path of a file of the project, such as ``docker/Dockerfile``, or raise UsageError."""
    path = ROOT / name
    if not path.exists():
        raise UsageError(
            f"{name} is missing beside the toolkit package",
            why="toolkit builds from its own files: the Dockerfile, the locked sets and the training job are there",
            remedy="install the package again, or run it from a whole clone of the repository",
        )
    return path


def shorten(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
