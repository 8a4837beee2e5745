"""Forward and backward passes in float64, written from their definitions, without TensorFlow.

Each result comes with the number of terms that are summed for one element, and the sum of their absolute values:
what a rounding bound is made of.
"""

from dataclasses import dataclass
from typing import Any

EPSILON = 1e-3


@dataclass(frozen=True)
class Expected:
    """One array of a reference.

    Attributes:
        name: what it is.
        value: the float64 result.
        terms: how many rounded operations lie between the inputs and one element.
        magnitude: the same computation on absolute values; the scale of its rounding error.
    """

    name: str
    value: Any
    terms: int
    magnitude: Any


def matmul(np: Any, a: Any, b: Any, up: Any) -> list[Expected]:
    """C = AB for A (m, k), B (k, n); dA = dC Bᵀ, dB = Aᵀ dC."""
    a, b, up = (x.astype(np.float64) for x in (a, b, up))
    triples = (("result", a, b), ("gradient of left", up, b.T), ("gradient of right", a.T, up))
    return [Expected(name, x @ y, x.shape[1], np.abs(x) @ np.abs(y)) for name, x, y in triples]


def conv2d(np: Any, images: Any, kernel: Any, up: Any) -> list[Expected]:
    """Correlation with odd kernels, stride 1, zero padding that keeps the size.

    Shapes: images (n, h, w, c), kernel (r, s, c, k), up (n, h, w, k).
    """
    images, kernel, up = (x.astype(np.float64) for x in (images, kernel, up))
    terms = (kernel[..., 0].size, kernel[:, :, 0].size, up[..., 0].size)
    names = ("result", "gradient of images", "gradient of kernel")
    values = _conv2d(np, images, kernel, up)
    magnitudes = _conv2d(np, np.abs(images), np.abs(kernel), np.abs(up))
    return [Expected(*parts) for parts in zip(names, values, terms, magnitudes, strict=True)]


def _conv2d(np: Any, images: Any, kernel: Any, up: Any) -> tuple[Any, Any, Any]:
    rows, columns = kernel.shape[:2]
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (rows // 2, rows // 2), (columns // 2, columns // 2), (0, 0)))
    result = np.zeros(up.shape)
    padded_gradient = np.zeros(padded.shape)
    kernel_gradient = np.zeros(kernel.shape)
    for r in range(rows):
        for s in range(columns):
            window = (slice(None), slice(r, r + height), slice(s, s + width))
            result += padded[window] @ kernel[r, s]
            padded_gradient[window] += up @ kernel[r, s].T
            kernel_gradient[r, s] = np.einsum("nhwc,nhwk->ck", padded[window], up)
    inner = (slice(None), slice(rows // 2, rows // 2 + height), slice(columns // 2, columns // 2 + width))
    return result, padded_gradient[inner], kernel_gradient


def batch_norm(np: Any, x: Any, scale: Any, offset: Any, up: Any) -> list[Expected]:
    """y = scale·(x - μ)/√(σ² + ε) + offset, over all axes but the last (S. Ioffe and C. Szegedy, arXiv:1502.03167)."""
    x, scale, offset, up = (value.astype(np.float64) for value in (x, scale, offset, up))
    axes = tuple(range(x.ndim - 1))
    count = x[..., 0].size
    mean = x.mean(axes)
    deviation = np.sqrt(x.var(axes) + EPSILON)
    normal = (x - mean) / deviation
    # The cancellation in x - μ costs |x| + |μ|, not |x - μ|.
    size = (np.abs(x) + np.abs(mean)) / deviation
    up_size = np.abs(up)
    bias = up.mean(axes)
    slope = (up * normal).mean(axes)
    slope_size = (up_size * size).mean(axes)
    return [
        Expected("result", scale * normal + offset, count, np.abs(scale) * size + np.abs(offset)),
        Expected(
            "gradient of images",
            scale / deviation * (up - bias - normal * slope),
            count,
            np.abs(scale) / deviation * (up_size + up_size.mean(axes) + size * slope_size),
        ),
        Expected("gradient of scale", (up * normal).sum(axes), count, (up_size * size).sum(axes)),
        Expected("gradient of offset", up.sum(axes), count, up_size.sum(axes)),
    ]
