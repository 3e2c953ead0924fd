"""The vision tower of `builtin-vl` in PyTorch: what llama.cpp's mtmd computes for the projector "lfm2".

Patches with learned positions, a pre-norm transformer over all of them, then 2 x 2 patches to one token of the text
model's width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class VisionShape:
    """`grid`: positions are learned for so many patches a side and interpolated for other pictures."""

    width: int = 96
    layers: int = 3
    heads: int = 3
    feed_forward: int = 256
    patch: int = 16
    grid: int = 16
    hidden: int = 256
    out: int = 128
    merge: int = 2
    epsilon: float = 1e-6

    @property
    def token_side(self) -> int:
        """Pixels."""
        return self.patch * self.merge


class VisionLayer(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.LayerNorm(shape.width, shape.epsilon)
        self.norm2 = nn.LayerNorm(shape.width, shape.epsilon)
        self.q, self.k, self.v, self.out = (nn.Linear(shape.width, shape.width) for _ in range(4))
        self.up = nn.Linear(shape.width, shape.feed_forward)
        self.down = nn.Linear(shape.feed_forward, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        q, k, v = (part(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Vision(nn.Module):
    """Pictures [batch, 3, height, width], values from -1 to 1, to tokens [batch, count, out], row by row."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.shape = shape
        self.patches = nn.Conv2d(3, shape.width, shape.patch, stride=shape.patch)
        self.positions = nn.Parameter(torch.randn(shape.grid * shape.grid, shape.width) * 0.02)
        self.layers = nn.ModuleList(VisionLayer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, shape.epsilon)
        merged = shape.width * shape.merge**2
        self.merged_norm = nn.LayerNorm(merged, 1e-5)
        self.project = nn.Linear(merged, shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.out)
        for layer in self.layers:
            for matrix in (layer.out, layer.down):
                matrix.weight.data *= (2 * shape.layers) ** -0.5

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patches(pictures)
        rows, columns = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2) + self._positions(rows, columns).to(x.dtype)
        for layer in self.layers:
            x = layer(x)
        x = self._merge(self.norm(x), rows, columns)
        return self.out(F.gelu(self.project(self.merged_norm(x)), approximate="tanh"))

    def _positions(self, rows: int, columns: int) -> Tensor:
        grid = self.shape.grid
        if (rows, columns) == (grid, grid):
            return self.positions
        table = self.positions.T.reshape(1, -1, grid, grid)
        table = F.interpolate(table, (rows, columns), mode="bilinear", align_corners=False, antialias=True)
        return table.flatten(2)[0].T

    def _merge(self, x: Tensor, rows: int, columns: int) -> Tensor:
        """Neighbouring patches beside each other: channels in the order (row, column, channel)."""
        merge = self.shape.merge
        x = x.unflatten(1, (rows // merge, merge, columns // merge, merge))
        return x.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)
