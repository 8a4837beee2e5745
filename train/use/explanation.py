"""Draws what a network looked at: Grad-CAM (Selvaraju et al., "Grad-CAM: Visual Explanations", ICCV 2017).

A map's weight is the mean gradient of the class's logit over its pixels. Here the logit is linear in the average of
each map, so that gradient is the weight of the classifier divided by the number of pixels.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from train.system.files import replacing

if TYPE_CHECKING:
    from train.use.network import Network

SIDE: Final = 224
"""Shorter side of a picture, in pixels, at least."""


def compute_heat(network: "Network", image: NDArray[np.uint8], label: int) -> NDArray[np.float64]:
    """Return how much each place of the last maps speaks for a class, from 0 to 1: (height, width) of these maps."""
    from train.step.step import normalize_images

    mean, std = np.asarray(network.inputs.mean), np.asarray(network.inputs.std)
    images = normalize_images(image[None], mean, std, network.model.input.dtype, network.form)
    maps = np.asarray(network.last_maps(images, training=False)[0], np.float64)
    maps = np.moveaxis(maps, 0, -1) if network.form.channels_first else maps
    kernel = np.asarray(network.model.get_layer("classifier").kernel, np.float64)
    heat = np.maximum(maps @ kernel[:, label], 0) / maps[..., 0].size
    return np.asarray(heat / heat.max() if heat.max() else heat)


def render(network: "Network", image: NDArray[np.uint8], label: int) -> bytes:
    """Return a PNG file of the image as the network sees it, red where it speaks for the class."""
    from PIL import Image

    factor = max(1, -(-SIDE // min(image.shape[:2])))
    size = (image.shape[1] * factor, image.shape[0] * factor)
    shown: Any = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).convert("RGB").resize(size)
    heat = compute_heat(network, image, label)
    mask = Image.fromarray(np.rint(160 * heat).astype(np.uint8)).resize(size, Image.Resampling.BILINEAR)
    shown.paste(Image.new("RGB", size, "red"), mask=mask)
    file = io.BytesIO()
    shown.save(file, "PNG")
    return file.getvalue()


def draw(network: "Network", image: NDArray[np.uint8], label: int, path: Path) -> None:
    """Write the picture of `render`."""
    with replacing(path) as file:
        file.write(render(network, image, label))
