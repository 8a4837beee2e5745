"""Trains DenseNet-BC on digits by the operations of RepDL (Xie et al., arXiv 2510.09180), which must be installed.

Convolutions, norms, the classifier and the loss are RepDL's. It has no pooling and no momentum, so these are made of
operations that IEEE 754 rounds correctly, in one order: slices are added, and no product is fused with a sum.
"""

from typing import Any

import repdl
import torch
from torch import nn

from benchmarks.training.peers import Training, iterate
from benchmarks.training.peers.torch_reference import DenseNet, load, read, start

__all__ = ["load", "make"]

RATE, MOMENTUM, DECAY = 0.1, 0.9, 1e-4


class Pool(nn.Module):  # type: ignore[misc]  # torch is not installed here
    """Takes the means of squares of 2x2 pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[:, :, ::2] + x[:, :, 1::2]
        means: torch.Tensor = (rows[..., ::2] + rows[..., 1::2]) * 0.25
        return means


class Network(nn.Module):  # type: ignore[misc]  # torch is not installed here
    """The reference's DenseNet with each of its layers as RepDL has it."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        model = DenseNet(depth, colors=1)
        start(model)
        for parts in model.transitions:
            parts[-1] = Pool()
        self.model, self.pool = repdl.from_torch_module(model), Pool()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.model.extract(x)
        while x.shape[-1] > 1:
            x = self.pool(x)
        logits: torch.Tensor = self.model.classifier(x.flatten(1))
        return logits


def make(job: dict[str, Any]) -> Training:
    torch.use_deterministic_algorithms(True)
    model, batches = Network(job["depth"]), iterate(job)
    weights = list(model.parameters())
    slots = [torch.zeros_like(weight) for weight in weights]

    def step() -> float:
        images, labels = map(torch.from_numpy, next(batches))
        model.zero_grad(set_to_none=True)
        loss = repdl.nn.functional.cross_entropy(model(images.permute(0, 3, 1, 2).contiguous()), labels)
        loss.backward()
        with torch.no_grad():
            for weight, slot in zip(weights, slots, strict=True):
                decayed = weight.grad + weight * DECAY
                slot.mul_(MOMENTUM).add_(decayed)
                weight.sub_((slot * MOMENTUM + decayed) * RATE)
        return float(loss.detach())

    return Training(step, lambda: read(model))
