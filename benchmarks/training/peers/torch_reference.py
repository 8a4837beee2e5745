"""Trains DenseNet-BC in PyTorch: all maps ``stored`` (Huang et al., arXiv 1608.06993), or ``efficient`` (Pleiss et al.,
arXiv 1707.06990).
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.training.peers import Training, draw, iterate


def load(job: dict[str, Any]) -> None:
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)


class Layer(nn.Module):  # type: ignore[misc]  # torch is not installed here
    def __init__(self, channels: int, growth: int, *, efficient: bool) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.efficient = efficient

    def narrow(self, *maps: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.conv1(functional.relu(self.norm1(torch.cat(maps, 1))))
        return made

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        made = checkpoint(self.narrow, *maps, use_reentrant=False) if self.efficient else self.narrow(*maps)
        new: torch.Tensor = self.conv2(functional.relu(self.norm2(made)))
        return new


class DenseNet(nn.Module):  # type: ignore[misc]  # torch is not installed here
    def __init__(
        self, depth: int, growth: int = 12, classes: int = 10, *, colors: int = 3, efficient: bool = False
    ) -> None:
        super().__init__()
        channels = 2 * growth
        self.stem = nn.Conv2d(colors, channels, 3, padding=1, bias=False)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for block in range(3):
            layers = nn.ModuleList()
            for _ in range((depth - 4) // 6):
                layers.append(Layer(channels, growth, efficient=efficient))
                channels += growth
            self.blocks.append(layers)
            if block < 2:
                half = channels // 2
                parts = (nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, half, 1, bias=False), nn.AvgPool2d(2))
                self.transitions.append(nn.Sequential(*parts))
                channels = half
        self.norm, self.classifier = nn.BatchNorm2d(channels), nn.Linear(channels, classes)

    def extract(self, x: torch.Tensor) -> torch.Tensor:
        """Return the maps that are averaged for the classifier."""
        x = self.stem(x)
        for number, layers in enumerate(self.blocks):
            maps = [x]
            for layer in layers:
                maps.append(layer(maps))
            x = torch.cat(maps, 1)
            if number < 2:
                x = self.transitions[number](x)
        last: torch.Tensor = functional.relu(self.norm(x))
        return last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.extract(x).mean((2, 3)))
        return logits


def build(job: dict[str, Any]) -> nn.Module:
    efficient = job["structure"] == "efficient"
    if job.get("data") == "digits":
        model: nn.Module = DenseNet(job["depth"], colors=1, efficient=efficient)
    elif job.get("model") == "121":
        from torchvision.models import densenet121

        model = densenet121(num_classes=10, memory_efficient=efficient)
    else:
        model = DenseNet(job.get("depth", 100), efficient=efficient)
    start(model)
    return model


def start(model: nn.Module) -> None:
    """Give a network kernels that do not depend on the machine: PyTorch's own random numbers do."""
    kernels = [weight for weight in model.parameters() if weight.dim() > 1]
    for weight, values in zip(kernels, draw(tuple(weight.shape) for weight in kernels), strict=True):
        weight.data = torch.from_numpy(values)


def read(model: nn.Module) -> list[Any]:
    return [weight.detach().numpy() for weight in model.parameters()]


def make(job: dict[str, Any]) -> Training:
    torch.use_deterministic_algorithms(job.get("deterministic", False))
    torch.backends.mkldnn.enabled = job.get("onednn", True)
    model = build(job)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    batches, run = iterate(job), torch.compile(model) if job.get("compile") else model

    def step() -> float:
        images, labels = map(torch.from_numpy, next(batches))
        x = images.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(run(x), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return Training(step, lambda: read(model))
