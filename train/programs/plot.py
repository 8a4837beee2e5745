import sys

from train.__main__ import lead, start

lead(lambda: start(["plot", *sys.argv[1:]]))
