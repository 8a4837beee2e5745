import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutations import run


def main(argv: list[str]) -> int:
    """Run the chosen mutations and return 0 if a test noticed each of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Break the code, entry by entry.")
    parser.add_argument("word", nargs="?", default="", help="only entries with this text in their name or path")
    word = parser.parse_args(argv).word
    chosen = [mutation for mutation in run.read() if word in mutation.name or word in mutation.file]
    if not chosen:
        parser.error(f"no entry has {word!r} in its name or path")
    with tempfile.TemporaryDirectory() as folder:
        problems = run.run(chosen, Path(folder) / "copy")
    print(*problems, f"{len(chosen) - len(problems)} of {len(chosen)} defects were noticed", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
