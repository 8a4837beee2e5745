from train.data.dataset import Dataset, Split, describe_oddities
from train.data.pictures import Pictures
from train.data.sources import load, load_measured

__all__ = ["Dataset", "Pictures", "Split", "describe_oddities", "load", "load_measured"]
