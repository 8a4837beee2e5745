import sys

from train.__main__ import start

raise SystemExit(start(["card", *sys.argv[1:]]))
