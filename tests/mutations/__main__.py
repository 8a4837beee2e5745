import sys
import tempfile
from pathlib import Path

from tests.mutations import run

if __name__ == "__main__":
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [mutation for mutation in run.read() if word in mutation.name]
    with tempfile.TemporaryDirectory() as folder:
        problems = run.run(chosen, Path(folder) / "copy")
    print(*problems, f"{len(chosen) - len(problems)} of {len(chosen)} defects were noticed", sep="\n")
    raise SystemExit(1 if problems or not chosen else 0)
