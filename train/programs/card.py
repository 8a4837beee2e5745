import sys

from train.report.card import main

raise SystemExit(main(sys.argv[1:]))
