"""SVHN's cropped digits as their authors publish them: MATLAB files (Netzer et al., NIPS workshop 2011)."""

from pathlib import Path

import numpy as np

from train.data.dataset import Split
from train.errors import DataError


def read(path: Path) -> Split:
    """Read one split; the digit 0 is labelled 10 there and 0 here.

    Raises:
        DataError: the file cannot be read or is no such file.
    """
    from scipy.io import loadmat  # type: ignore[import-untyped]

    try:
        content = loadmat(str(path), variable_names=["X", "y"])
        images, labels = content["X"], content["y"].ravel()
        return Split(np.ascontiguousarray(images.transpose(3, 0, 1, 2), np.uint8), (labels % 10).astype(np.int32))
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise DataError(f"cannot read {path}", why=str(error), remedy="get the file again") from error
