"""The reader of run folders under its earlier name."""

from train.reader import Run, read_run

__all__ = ["Run", "read_run"]
