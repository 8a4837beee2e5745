import pytest

from tests.tiers import slow
from train.config.presets import read_table
from train.config.resolution import resolve
from train.model.densenet import build, count_parameters

# Trainable parameters with 10 classes (CIFAR) and 1,000 (ImageNet). Sources: 769162, 15324406 and 25624430 are printed
# by several independent PyTorch implementations; the paper's table 2 rounds them to 0.8M, 15.3M and 25.6M. 1019722 is
# from the Keras ports of DenseNet-40-12, 1.0M in the paper. 121, 169 and 201 are in torchvision's model documentation.
# 264 is in the documentation of Lucid, a library with independent code; some Keras ports count 33,736,232, with the
# running averages. 100-12 and 100-24 are checked by the paper's table below.
PUBLISHED = {
    "bc-100-12": 769_162,
    "bc-250-24": 15_324_406,
    "bc-190-40": 25_624_430,
    "40-12": 1_019_722,
    "121": 7_978_856,
    "169": 14_149_480,
    "201": 20_013_928,
    "264": 33_337_704,
}


def count(preset: str, classes: int) -> int:
    config = resolve("cifar10", model=preset)
    imagenet = config.stem == "imagenet"
    channels = 2 * config.growth if config.bottleneck else 16
    total = 3 * channels * (49 if imagenet else 9) + (2 * channels if imagenet else 0)
    for block, layers in enumerate(config.layers):
        for _ in range(layers):
            width = 4 * config.growth if config.bottleneck else channels
            total += 2 * channels + (channels * width + 2 * width if config.bottleneck else 0)
            total += 9 * width * config.growth
            channels += config.growth
        total += 2 * channels
        if block < len(config.layers) - 1:
            total += channels * int(channels * config.compression)
            channels = int(channels * config.compression)
    return total + (channels + 1) * classes


@pytest.mark.parametrize(("preset", "published"), PUBLISHED.items())
def test_the_formula_gives_the_published_counts(preset: str, published: int) -> None:
    assert count(preset, 1000 if preset.isdigit() else 10) == published


LARGE = ("bc-100-12", "100-12", "100-24", "bc-190-40", "bc-250-24", "169", "201", "264")


@pytest.mark.parametrize("preset", [slow(name) if name in LARGE else name for name in read_table("presets")])
def test_models_have_the_counts_of_the_formula(preset: str) -> None:
    assert count_parameters(build(resolve("cifar10", model=preset))) == count(preset, 10)
