import sys

from train.__main__ import start

raise SystemExit(start(["plot", *sys.argv[1:]]))
