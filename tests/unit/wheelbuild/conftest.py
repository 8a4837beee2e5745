import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "docker" / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "proof")]
# The build stage gets one file of this folder. It comes last here, so that it hides no module of the same name.
sys.path.append(str(ROOT / "toolkit/checks"))
