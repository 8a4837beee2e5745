import sys

from train.__main__ import lead, start

lead(lambda: start(["card", *sys.argv[1:]]))
