"""Runs as ``python -m checks`` from the folder above, or as ``python PATH/checks`` from anywhere."""

import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

if not __package__:
    # Python put this folder itself on the path, where these modules would hide others of the same name.
    sys.path[0] = str(FOLDER.parent)

if __name__ == "__main__":
    sys.exit(import_module(f"{__package__ or FOLDER.name}.cli").main())
