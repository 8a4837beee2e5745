import sys

from train.__main__ import start

raise SystemExit(start(["compare", *sys.argv[1:]]))
