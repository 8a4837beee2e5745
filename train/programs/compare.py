import sys

from train.__main__ import lead, start

lead(lambda: start(["compare", *sys.argv[1:]]))
