"""Finds the module of a data set."""

from train.config import TrainConfig
from train.data import digits
from train.data.dataset import Dataset, check
from train.errors import UsageError


def load(config: TrainConfig) -> Dataset:
    """Load the data of a run: from ``--data-dir``, else from the cache, else from its source.

    Raises:
        DataError: it is missing, unreadable, or not what it says it is.
        IntegrityError: a file's digest is not the known one.
        UsageError: ``--data-dir`` is given for a data set that needs none.
    """
    if config.dataset == "digits":
        if config.data_dir:
            raise UsageError("--data-dir has no meaning for digits", why="they come with scikit-learn")
        dataset = digits.load()
    else:
        from train.data.sources import load as load_files

        dataset = load_files(config)
    dataset = check(dataset, config.shape, config.classes)
    return dataset.hold_out(config.validation, config.seed) if config.validation else dataset
