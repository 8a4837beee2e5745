"""A stranger, and a file that each program of one writes."""

from dataclasses import dataclass
from pathlib import Path

STRANGER = 12345


@dataclass(frozen=True)
class Canary:
    """A file that each program of a stranger writes. It must stay unwritten."""

    path: Path

    @property
    def python(self) -> str:
        return f"import os; open({str(self.path)!r}, 'a').write('ran as ' + str(os.geteuid()))\n"

    @property
    def shell(self) -> str:
        return f"echo ran >>{self.path}"

    def has_sung(self) -> bool:
        return self.path.exists()
