"""The network: LFM2's architecture (gated short convolutions and grouped-query attention) in PyTorch.

It computes exactly what llama.cpp computes for `general.architecture = lfm2`, and knows nothing of tokens or data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHORT = 200
Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Shape:
    """The sizes of a network; every width is a multiple of 32, as Q8_0 needs."""

    vocabulary: int = 2048
    width: int = 192
    layers: int = 12
    attention_layers: tuple[int, ...] = (2, 4, 5, 7, 8, 9, 11)
    heads: int = 6
    kv_heads: int = 3
    head_width: int = 32
    feed_forward: int = 512
    kernel: int = 3
    context: int = 2048
    theta: float = 1e6
    epsilon: float = 1e-5
    causal: bool = True
    """Without it only written, as an encoder; it is not computed here."""


class Norm(nn.Module):
    """Root-mean-square norm over the last axis with a learned scale."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        scale = torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.epsilon)
        return (x32 * scale * self.weight).to(x.dtype)


class ShortConvolution(nn.Module):
    """Gated causal depthwise convolution over the last `kernel` positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.in_proj = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.kernel = nn.Parameter(torch.randn(shape.width, shape.kernel) * shape.kernel**-0.5)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        gate_in, gate_out, value = self.in_proj(x).chunk(3, dim=-1)
        signal = gate_in * value
        taps = self.kernel.to(x.dtype)
        size = taps.shape[1]
        padded = F.pad(signal, (0, 0, size - 1, 0))
        length = x.shape[1]
        mixed = sum(padded[:, tap : tap + length] * taps[:, tap] for tap in range(size))
        return self.out_proj(gate_out * mixed)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotary position embedding, the NEOX layout: first half paired with second half."""
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention; for short rows the plain product is the faster one on a processor."""
    length = q.shape[-2]
    if length > SHORT:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
    seen = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~seen, -torch.inf).softmax(-1).to(v.dtype) @ v


class Attention(nn.Module):
    """Causal grouped-query attention with normed queries and keys."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q = nn.Linear(shape.width, shape.heads * shape.head_width, bias=False)
        self.k = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=False)
        self.v = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=False)
        self.out = nn.Linear(shape.heads * shape.head_width, shape.width, bias=False)
        self.q_norm = Norm(shape.head_width, shape.epsilon)
        self.k_norm = Norm(shape.head_width, shape.epsilon)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        batch, length, _ = x.shape
        heads = (batch, length, -1, self.shape.head_width)
        q = rotate(self.q_norm(self.q(x).view(heads)).transpose(1, 2), rotation)
        k = rotate(self.k_norm(self.k(x).view(heads)).transpose(1, 2), rotation)
        v = self.v(x).view(heads).transpose(1, 2)
        group = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = _attend(q, k, v.to(q.dtype))
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    """Convolution or attention, then a gated feed-forward, each with its norm and residual."""

    def __init__(self, shape: Shape, attention: bool) -> None:
        super().__init__()
        self.mixer = Attention(shape) if attention else ShortConvolution(shape)
        self.mixer_norm = Norm(shape.width, shape.epsilon)
        self.feed_norm = Norm(shape.width, shape.epsilon)
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    @property
    def outputs(self) -> tuple[nn.Linear, nn.Linear]:
        """The matrices whose products are added to what comes in."""
        return (self.mixer.out if isinstance(self.mixer, Attention) else self.mixer.out_proj), self.down

    def be_nothing(self) -> None:
        """Pass on what comes in."""
        for matrix in self.outputs:
            nn.init.zeros_(matrix.weight)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        x = x + self.mixer(self.mixer_norm(x), rotation)
        normed = self.feed_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Network(nn.Module):
    """Token ids [batch, length] to hidden states [batch, length, width]; `logits` maps those to the vocabulary."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape, i in shape.attention_layers) for i in range(shape.layers))
        self.norm = Norm(shape.width, shape.epsilon)
        self._initialise()
        half = shape.head_width // 2
        frequencies = shape.theta ** -(torch.arange(half).float() / half)
        angles = torch.outer(torch.arange(shape.context).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def _initialise(self) -> None:
        nn.init.normal_(self.embedding.weight, std=0.02)
        residual = (2 * self.shape.layers) ** -0.5
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
        for layer in self.layers:
            for matrix in layer.outputs:
                matrix.weight.data *= residual

    def forward(self, tokens: Tensor) -> Tensor:
        return self.run(self.embedding(tokens))

    def run(self, x: Tensor) -> Tensor:
        """Embedded tokens or media [batch, length, width] to hidden states."""
        length = x.shape[1]
        rotation = (self.cos[:length], self.sin[:length])
        for layer in self.layers:
            x = layer(x, rotation)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding.weight.to(hidden.dtype))
