"""Trains DenseNet-BC in PyTorch: all maps ``stored`` (Huang et al., arXiv 1608.06993), or ``efficient`` (Pleiss et al.,
arXiv 1707.06990).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.training.peers import make_batch


def load(threads: int) -> None:
    torch.set_num_threads(threads)
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
    def __init__(self, depth: int, growth: int = 12, classes: int = 10, *, efficient: bool = False) -> None:
        super().__init__()
        channels = 2 * growth
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for number, layers in enumerate(self.blocks):
            maps = [x]
            for layer in layers:
                maps.append(layer(maps))
            x = torch.cat(maps, 1)
            if number < 2:
                x = self.transitions[number](x)
        logits: torch.Tensor = self.classifier(functional.relu(self.norm(x)).mean((2, 3)))
        return logits


def build(job: dict[str, Any]) -> nn.Module:
    efficient = job["structure"] == "efficient"
    if job.get("model") != "121":
        return DenseNet(job.get("depth", 100), efficient=efficient)
    from torchvision.models import densenet121

    model: nn.Module = densenet121(num_classes=10, memory_efficient=efficient)
    return model


def make_step(job: dict[str, Any]) -> Callable[[], float]:
    model = build(job)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    images, labels = make_batch(job)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(labels)
    run = torch.compile(model) if job.get("compile") else model

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step
