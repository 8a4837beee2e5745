"""DenseNet-BC in PyTorch, written from the paper alone, as an oracle; run by a Python that has PyTorch.

    python torch_reference.py IN.npz OUT.npz

It reads weights by our names, batches of normalised images and labels, taken in turn, and hyperparameters, and writes
hidden states and gradients of the first step, and losses, weights and running averages after all. It computes in the
dtype of the weights; layouts are turned at this border.
"""

import json
import sys
from typing import Any

import numpy as np
import torch
from torch.nn import functional

EPSILON = 1e-5


class Network:
    """The network as a function of a dictionary of parameters."""

    def __init__(self, arrays: dict[str, Any], layers: list[int]) -> None:
        self.layers = layers
        self.parameters = {
            name: torch.tensor(self.turn(value)).requires_grad_("mean" not in name and "variance" not in name)
            for name, value in arrays.items()
        }
        self.hidden: dict[str, torch.Tensor] = {}

    @staticmethod
    def turn(value: Any) -> Any:
        """Kernels from (height, width, in, out) to (out, in, height, width), matrices transposed."""
        order = {4: (3, 2, 0, 1), 2: (1, 0)}.get(value.ndim)
        return np.ascontiguousarray(value.transpose(order)) if order else value

    @staticmethod
    def turn_back(value: Any) -> Any:
        """The inverse of `turn`."""
        order = {4: (2, 3, 1, 0), 2: (1, 0)}.get(value.ndim)
        return value.transpose(order) if order else value

    def norm(self, x: torch.Tensor, name: str, running: str, start: int = 0) -> torch.Tensor:
        """Batch norm in training; it moves the part of the running averages that nobody before it has moved."""
        p = self.parameters
        variance, mean = torch.var_mean(x.detach(), dim=(0, 2, 3))
        with torch.no_grad():
            part = slice(start, x.shape[1])
            p[f"{running}_mean"][part].mul_(0.9).add_(0.1 * mean[start:])
            p[f"{running}_variance"][part].mul_(0.9).add_(0.1 * variance[start:])
        return functional.batch_norm(x, None, None, p[f"{name}gamma"], p[f"{name}beta"], training=True, eps=EPSILON)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        p = self.parameters
        x = self.hidden["stem"] = functional.conv2d(x, p["stem/kernel"], padding=1)
        for block, count in enumerate(self.layers, start=1):
            seen = 0
            for layer in range(1, count + 1):
                first, second = (f"block{block}/layer{layer}_{size}_" for size in ("1x1", "3x3"))
                made = functional.relu(self.norm(x, first, f"block{block}/maps", seen))
                seen = x.shape[1]
                made = functional.conv2d(made, p[f"{first}kernel"])
                made = functional.relu(self.norm(made, second, second[:-1]))
                x = torch.cat([x, functional.conv2d(made, p[f"{second}kernel"], padding=1)], 1)
            self.hidden[f"block{block}"] = functional.batch_norm(x, None, None, training=True, eps=EPSILON)
            x = functional.relu(self.norm(x, f"scale{block}/", f"block{block}/maps", seen))
            self.hidden[f"scale{block}"] = x
            if block < len(self.layers):
                x = functional.avg_pool2d(functional.conv2d(x, p[f"transition{block}/kernel"]), 2)
                self.hidden[f"transition{block}"] = x
        x = functional.linear(x.mean((2, 3)), p["classifier/kernel"], p["classifier/bias"])
        self.hidden["classifier"] = x
        return x


def main() -> None:
    """Read, run, write."""
    with np.load(sys.argv[1]) as file:
        facts = json.loads(str(file["facts"]))
        images = torch.tensor(file["images"].transpose(0, 1, 4, 2, 3))
        labels = torch.tensor(file["labels"]).long()
        network = Network({name[2:]: file[name] for name in file.files if name.startswith("w:")}, facts["layers"])
    weights = {name: value for name, value in network.parameters.items() if value.requires_grad}
    optimizer = torch.optim.SGD(
        weights.values(), facts["rate"], momentum=0.9, nesterov=True, weight_decay=facts["decay"]
    )
    out: dict[str, Any] = {}
    losses = []
    for step in range(facts["steps"]):
        optimizer.zero_grad()
        batch = step % len(images)
        loss = functional.cross_entropy(network(images[batch]), labels[batch])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out |= {f"h:{name}": value.movedim(1, -1).detach().numpy() for name, value in network.hidden.items()}
            out |= {
                f"g:{name}": network.turn_back(value.grad.numpy())
                for name, value in weights.items()
                if value.grad is not None
            }
        optimizer.step()
    out |= {f"w:{name}": network.turn_back(value.detach().numpy()) for name, value in network.parameters.items()}
    np.savez(sys.argv[2], losses=losses, **out)


if __name__ == "__main__":
    main()
