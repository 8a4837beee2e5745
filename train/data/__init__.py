"""Data sets: one module a source, one function to load any of them."""

from train.data.dataset import Dataset, Split
from train.data.oddities import describe_oddities
from train.data.registry import load

__all__ = ["Dataset", "Split", "describe_oddities", "load"]
