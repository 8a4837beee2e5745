from train.data.dataset import Dataset, Split, describe_oddities
from train.data.sources import load

__all__ = ["Dataset", "Split", "describe_oddities", "load"]
