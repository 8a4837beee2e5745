"""The scripts of the image are no part of the installed package: they are found by their folder."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "docker" / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "proof")]
# The build stage gets one file of this folder; it must not hide modules of other names here.
sys.path.append(str(ROOT / "toolkit/smoke/inside"))
