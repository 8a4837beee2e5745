"""Trains DenseNet on small images: equal runs give equal bits, and an interrupted run can be resumed."""

# `python -m train.plot`, `train.card` and `train.compare` are short names of modules in packages.
__path__.append(f"{__path__[0]}/programs")
