"""DenseNet-BC in PyTorch, written from the paper alone, as an oracle; run by a Python that has PyTorch.

    python torch_reference.py IN.npz OUT.npz [IN.npz OUT.npz ...]

Output: hidden states and gradients of the first step (``h:``, ``g:``), losses, and weights and running averages after
all steps (``w:``). With ``evaluate`` images: hidden states by the final running averages (``e:``). Arrays have
the axes of ``train``.
"""

import json
import sys
from typing import Any

import numpy as np
import torch
from torch.nn import functional

EPSILON = 1e-5


class Network:
    def __init__(self, arrays: dict[str, Any], layers: list[int]) -> None:
        self.layers, self.training = layers, True
        self.parameters = {
            name: torch.tensor(self.turn(value)).requires_grad_("mean" not in name and "variance" not in name)
            for name, value in arrays.items()
        }
        self.hidden: dict[str, torch.Tensor] = {}

    @staticmethod
    def turn(value: Any) -> Any:
        order = {4: (3, 2, 0, 1), 2: (1, 0)}.get(value.ndim)
        return np.ascontiguousarray(value.transpose(order)) if order else value

    @staticmethod
    def turn_back(value: Any) -> Any:
        order = {4: (2, 3, 1, 0), 2: (1, 0)}.get(value.ndim)
        return value.transpose(order) if order else value

    def norm(self, x: torch.Tensor, name: str, running: str, start: int = 0) -> torch.Tensor:
        p = self.parameters
        averages = [p[f"{running}_{kind}"] for kind in ("mean", "variance")]
        if self.training:
            variance, mean = torch.var_mean(x.detach(), dim=(0, 2, 3))
            with torch.no_grad():
                for average, value in zip(averages, (mean, variance), strict=True):
                    average[start : x.shape[1]].mul_(0.9).add_(0.1 * value[start:])
        return self.normalize(x, averages, p[f"{name}gamma"], p[f"{name}beta"])

    def normalize(self, x: torch.Tensor, averages: list[torch.Tensor], *affine: torch.Tensor) -> torch.Tensor:
        mean, variance = [None, None] if self.training else [average[: x.shape[1]] for average in averages]
        return functional.batch_norm(x, mean, variance, *affine, training=self.training, eps=EPSILON)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
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
            averages = [p[f"block{block}/maps_{kind}"] for kind in ("mean", "variance")]
            self.hidden[f"block{block}"] = self.normalize(x, averages)
            x = functional.relu(self.norm(x, f"scale{block}/", f"block{block}/maps", seen))
            self.hidden[f"scale{block}"] = x
            if block < len(self.layers):
                x = functional.avg_pool2d(functional.conv2d(x, p[f"transition{block}/kernel"]), 2)
                self.hidden[f"transition{block}"] = x
        x = functional.linear(x.mean((2, 3)), p["classifier/kernel"], p["classifier/bias"])
        self.hidden["classifier"] = x
        return x

    def list_hidden(self, prefix: str) -> dict[str, Any]:
        return {f"{prefix}{name}": value.movedim(1, -1).detach().numpy() for name, value in self.hidden.items()}

    def list_gradients(self, prefix: str) -> dict[str, Any]:
        gradients = {name: value.grad for name, value in self.parameters.items() if value.grad is not None}
        return {f"{prefix}{name}": self.turn_back(value.numpy()) for name, value in gradients.items()}


def train(file: Any) -> dict[str, Any]:
    facts = json.loads(str(file["facts"]))
    images, labels = torch.tensor(file["images"].transpose(0, 1, 4, 2, 3)), torch.tensor(file["labels"]).long()
    network = Network({name[2:]: file[name] for name in file.files if name.startswith("w:")}, facts["layers"])
    weights = [value for value in network.parameters.values() if value.requires_grad]
    optimizer = torch.optim.SGD(weights, facts["rate"], momentum=0.9, nesterov=True, weight_decay=facts["decay"])
    out: dict[str, Any] = {}
    losses = []
    for step in range(facts["steps"]):
        optimizer.zero_grad()
        batch = step % len(images)
        loss = functional.cross_entropy(network(images[batch]), labels[batch])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out |= network.list_hidden("h:") | network.list_gradients("g:")
        optimizer.step()
    out |= {f"w:{name}": network.turn_back(value.detach().numpy()) for name, value in network.parameters.items()}
    if "evaluate" in file:
        network.training = False
        network(torch.tensor(file["evaluate"].transpose(0, 3, 1, 2)))
        out |= network.list_hidden("e:")
    return {"losses": losses} | out


def main() -> None:
    for source, target in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        with np.load(source) as file:
            out = train(file)
        np.savez(target, **out)


if __name__ == "__main__":
    main()
