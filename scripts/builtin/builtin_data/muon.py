"""Muon for the matrices: momentum, then the nearest orthogonal matrix by Newton-Schulz steps.

Matrices of one shape are stacked and worked on together, which is what makes it cheap for a small network.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor


def orthogonalise(stack: Tensor, steps: int = 5) -> Tensor:
    """Push the singular values of every matrix in [count, rows, columns] towards one."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = stack.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon:
    """Keeps one momentum stack per matrix shape; `step` updates the parameters in place."""

    def __init__(self, parameters: list[Tensor], momentum: float = 0.95, weight_decay: float = 0.05) -> None:
        groups: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            groups[tuple(parameter.shape)].append(parameter)
        self.groups = list(groups.values())
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.velocity = [torch.zeros(len(group), *group[0].shape) for group in self.groups]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for group, velocity in zip(self.groups, self.velocity, strict=True):
            gradient = torch.stack([p.grad for p in group])
            velocity.lerp_(gradient, 1 - self.momentum)
            update = orthogonalise(gradient.lerp(velocity, self.momentum))
            scale = rate * 0.2 * max(update.shape[-2:]) ** 0.5
            for parameter, delta in zip(group, update, strict=True):
                parameter.mul_(1 - rate * self.weight_decay).add_(delta, alpha=-scale)

    def state(self) -> list[Tensor]:
        return self.velocity

    def restore(self, state: list[Tensor]) -> None:
        self.velocity = state
