import sys

from train.use.compare import main

raise SystemExit(main(sys.argv[1:]))
