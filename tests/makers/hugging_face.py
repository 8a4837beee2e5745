import datasets

from train.data import Split


def make_saved(split: Split) -> datasets.Dataset:
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})
    return datasets.Dataset.from_dict({"img": list(split.images), "label": split.labels.tolist()}, features=features)
