import sys

from train.report.plot import main

raise SystemExit(main(sys.argv[1:]))
