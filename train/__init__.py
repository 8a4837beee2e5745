"""Trains DenseNet on small images: equal runs give equal bits, and an interrupted run can be resumed."""

from pathlib import Path

# `python -m train.plot`, `train.card` and `train.compare` are short names of modules in packages.
__path__.append(str(Path(__file__).parent / "programs"))
