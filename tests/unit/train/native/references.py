from typing import Any

import numpy as np

Array = Any


def convolve(x: Array, kernel: Array) -> Array:
    size = kernel.shape[0]
    return sum(
        np.einsum("nchw,cd->ndhw", shift(x, i - (size - 1) // 2, j - (size - 1) // 2), kernel[i, j])
        for i in range(size)
        for j in range(size)
    )


def convolve_gradient(dy: Array, x: Array, kernel: Array) -> list[Array]:
    size, dx, d_kernel = kernel.shape[0], np.zeros_like(x), np.zeros_like(kernel)
    for i in range(size):
        for j in range(size):
            down, right = i - (size - 1) // 2, j - (size - 1) // 2
            d_kernel[i, j] = np.einsum("nchw,ndhw->cd", shift(x, down, right), dy)
            dx += shift(np.einsum("ndhw,cd->nchw", dy, kernel[i, j]), -down, -right)
    return [dx, d_kernel]


def shift(x: Array, down: int, right: int) -> Array:
    height, width = x.shape[2:]
    margin = max(abs(down), abs(right))
    padded = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    return padded[:, :, margin + down : margin + down + height, margin + right : margin + right + width]


def spread(values: Array) -> Array:
    return values[:, None, None]


def scale_rectify(x: Array, gamma: Array, beta: Array) -> Array:
    return np.maximum(x * spread(gamma) + spread(beta), 0)


def scale_rectify_gradient(dy: Array, x: Array, gamma: Array, beta: Array) -> list[Array]:
    passed = dy * (x * spread(gamma) + spread(beta) > 0)
    return [passed * spread(gamma), (passed * x).sum((0, 2, 3)), passed.sum((0, 2, 3))]


def rectify_average(x: Array, gamma: Array, beta: Array) -> Array:
    y = scale_rectify(x, gamma, beta)
    height, width = (size // 2 * 2 for size in x.shape[2:])
    y = y[:, :, :height, :width]
    return (y[:, :, ::2, ::2] + y[:, :, ::2, 1::2] + y[:, :, 1::2, ::2] + y[:, :, 1::2, 1::2]) / 4


def rectify_average_gradient(dy: Array, x: Array, gamma: Array, beta: Array) -> list[Array]:
    upstream = np.zeros_like(x)
    height, width = (size // 2 * 2 for size in x.shape[2:])
    upstream[:, :, :height, :width] = np.repeat(np.repeat(dy, 2, 2), 2, 3) / 4
    return scale_rectify_gradient(upstream, x, gamma, beta)


def run_transition(x: Array, gamma: Array, beta: Array, kernel: Array) -> Array:
    return convolve(rectify_average(x, gamma, beta), kernel)


def run_transition_gradient(dy: Array, x: Array, gamma: Array, beta: Array, kernel: Array) -> list[Array]:
    d_averages, d_kernel = convolve_gradient(dy, rectify_average(x, gamma, beta), kernel)
    return [*rectify_average_gradient(d_averages, x, gamma, beta), d_kernel]


def list_windows(x: Array) -> Array:
    before = [size % 2 for size in x.shape[2:]]
    padded = np.pad(x, ((0, 0), (0, 0), (before[0], 1), (before[1], 1)), constant_values=-1)
    sizes = [(size + 1) // 2 for size in x.shape[2:]]
    parts = [padded[:, :, i : i + 2 * sizes[0] : 2, j : j + 2 * sizes[1] : 2] for i in range(3) for j in range(3)]
    return np.stack(parts, axis=-1)


def rectify_maximum(x: Array, gamma: Array, beta: Array) -> Array:
    return list_windows(scale_rectify(x, gamma, beta)).max(-1)


def rectify_maximum_gradient(dy: Array, x: Array, gamma: Array, beta: Array) -> list[Array]:
    places = list_windows(np.arange(x.size, dtype=float).reshape(x.shape))
    first = list_windows(scale_rectify(x, gamma, beta)).argmax(-1)[..., None]
    upstream = np.zeros(x.size)
    np.add.at(upstream, np.take_along_axis(places, first, -1).astype(int).ravel(), dy.ravel())
    return scale_rectify_gradient(upstream.reshape(x.shape), x, gamma, beta)


def average_pixels(x: Array) -> Array:
    return x.mean((2, 3))


def average_pixels_gradient(dy: Array, x: Array) -> list[Array]:
    return [np.broadcast_to(dy[:, :, None, None], x.shape) / np.prod(x.shape[2:])]


def apply_dense(x: Array, kernel: Array, bias: Array) -> Array:
    return x @ kernel + bias


def apply_dense_gradient(dy: Array, x: Array, kernel: Array, bias: Array) -> list[Array]:
    return [dy @ kernel.T, x.T @ dy, dy.sum(0)]


def measure_loss(logits: Array, targets: Array) -> Array:
    shifted = logits - logits.max(1, keepdims=True)
    return np.mean(np.sum(targets * (np.log(np.exp(shifted).sum(1, keepdims=True)) - shifted), axis=1))


def measure_loss_gradient(logits: Array, targets: Array) -> Array:
    likelihoods = np.exp(logits - logits.max(1, keepdims=True))
    likelihoods /= likelihoods.sum(1, keepdims=True)
    return (targets.sum(1, keepdims=True) * likelihoods - targets) / len(targets)
