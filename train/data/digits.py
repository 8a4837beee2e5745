"""The 1,797 handwritten digits of 8x8 pixels that come with scikit-learn: real data without a download.

Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI (1998). scikit-learn brings no split; ours is
fixed, stratified, and the same for every seed: 1,437 to train on and 360 to test on.
"""

import numpy as np

from train.data.dataset import Dataset, Split


def load() -> Dataset:
    """Load the digits; pixel values are 0 to 16."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images.reshape(-1, 8, 8, 1).astype(np.uint8),
        labels.astype(np.int32),
        test_size=360,
        stratify=labels,
        random_state=0,
    )
    train_images, test_images, train_labels, test_labels = parts
    names = tuple(str(digit) for digit in range(10))
    return Dataset(Split(train_images, train_labels), Split(test_images, test_labels), names, "scikit-learn's digits")
