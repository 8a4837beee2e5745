"""The scripts of the image are no part of the installed package: they are found by their folder."""

import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "docker" / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "proof")]
