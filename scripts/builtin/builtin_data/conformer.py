"""The audio tower of `builtin-audio` in PyTorch: what llama.cpp's mtmd computes for the projector "lfm2a".

A log-mel spectrogram, three halving convolutions, conformer layers with relative positions, then a projection to the
text model's width: 12.5 tokens a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

RATE, HOP, WINDOW, FFT, MELS = 16_000, 160, 400, 512, 128
POSITIONS = 512
"""The width of the sinusoids of relative positions, whatever the model's width."""


@dataclass(frozen=True)
class AudioShape:
    width: int = 64
    layers: int = 2
    heads: int = 2
    channels: int = 16
    feed_forward: int = 128
    hidden: int = 128
    out: int = 128
    kernel: int = 9


def _mel_scale(hertz: np.ndarray) -> np.ndarray:
    """Slaney's: linear below 1 kHz."""
    high = 15.0 + np.log(np.maximum(hertz, 1000.0) / 1000.0) / (np.log(6.4) / 27.0)
    return np.where(hertz < 1000.0, hertz * 3 / 200, high)


def _hertz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < 15.0, mel * 200 / 3, 1000.0 * np.exp((mel - 15.0) * (np.log(6.4) / 27.0)))


def _filters() -> np.ndarray:
    """Triangles of equal area [mels, bins]."""
    edges = _hertz(np.linspace(0.0, _mel_scale(np.array(RATE / 2)), MELS + 2))
    bins = np.arange(FFT // 2 + 1) * RATE / FFT
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))[:, None]


FILTERS = _filters()
HANN = np.pad(np.hanning(WINDOW), (FFT - WINDOW) // 2)


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Samples at 16 kHz to [frames, mels]: every mel band has mean 0 and deviation 1 over the clip."""
    emphasised = np.concatenate([samples[:1], samples[1:] - 0.97 * samples[:-1]])
    padded = np.pad(emphasised.astype(np.float64), FFT // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP]
    power = np.abs(np.fft.rfft(frames * HANN)) ** 2
    mels = np.log(power @ FILTERS.T + 2.0**-24)
    whole = len(samples) // HOP
    mean, deviation = mels[:whole].mean(0), mels[:whole].std(0, ddof=1)
    mels = (mels - mean) / (deviation + 1e-5)
    mels[whole:] = 0.0
    return mels.astype(np.float32)


def relative_positions(length: int) -> Tensor:
    """Sinusoids [2 length - 1, 512], from length - 1 behind to as many ahead."""
    frequencies = torch.exp(-(math.log(10_000.0) / POSITIONS) * 2.0 * torch.arange(POSITIONS // 2))
    angles = torch.outer(torch.arange(length - 1, -length, -1.0), frequencies)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


class RelativeAttention(nn.Module):
    def __init__(self, shape: AudioShape) -> None:
        super().__init__()
        self.heads, self.head_width = shape.heads, shape.width // shape.heads
        self.q, self.k, self.v, self.out = (nn.Linear(shape.width, shape.width) for _ in range(4))
        self.position = nn.Linear(POSITIONS, shape.width, bias=False)
        self.bias_u = nn.Parameter(torch.zeros(shape.heads, self.head_width))
        self.bias_v = nn.Parameter(torch.zeros(shape.heads, self.head_width))

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        length = x.shape[1]
        heads = (self.heads, self.head_width)
        q, k, v = (part(x).unflatten(-1, heads) for part in (self.q, self.k, self.v))
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        p = self.position(positions.to(x.dtype)).unflatten(-1, heads).transpose(0, 1)
        content = (q + self.bias_u.to(q.dtype)).transpose(1, 2) @ k.mT
        place = (q + self.bias_v.to(q.dtype)).transpose(1, 2) @ p.mT
        index = torch.arange(length)[None, :] - torch.arange(length)[:, None] + length - 1
        place = place.gather(-1, index.expand(*place.shape[:2], -1, -1))
        scores = (content + place).float() * self.head_width**-0.5
        mixed = scores.masked_fill(padding[:, None, None, :], -torch.inf).softmax(-1).to(v.dtype) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class ConformerLayer(nn.Module):
    def __init__(self, shape: AudioShape) -> None:
        super().__init__()
        width, wide = shape.width, shape.feed_forward
        self.feed_norm1, self.attention_norm, self.conv_norm, self.feed_norm2, self.out_norm = (
            nn.LayerNorm(width, 1e-5) for _ in range(5)
        )
        self.up1, self.down1, self.up2, self.down2 = (
            nn.Linear(*sizes) for sizes in ((width, wide), (wide, width), (width, wide), (wide, width))
        )
        self.attention = RelativeAttention(shape)
        self.point1, self.point2 = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depth = nn.Conv1d(width, width, shape.kernel, padding=shape.kernel // 2, groups=width)
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        x = x + 0.5 * self.down1(F.silu(self.up1(self.feed_norm1(x))))
        x = x + self.attention(self.attention_norm(x), positions, padding)
        value, gate = self.point1(self.conv_norm(x)).chunk(2, -1)
        signal = (value * gate.sigmoid()).masked_fill(padding[..., None], 0.0)
        mixed = self.depth(signal.transpose(1, 2)).transpose(1, 2)
        x = x + self.point2(F.silu(mixed * self.scale.to(mixed.dtype) + self.shift.to(mixed.dtype)))
        x = x + 0.5 * self.down2(F.silu(self.up2(self.feed_norm2(x))))
        return self.out_norm(x)


def tokens_of(frames: int) -> int:
    """How many tokens a clip of so many frames becomes."""
    for _ in range(3):
        frames = (frames + 1) // 2
    return frames


class Conformer(nn.Module):
    """Log-mels [batch, frames, mels], zeros after the end of each, to tokens [batch, count, out]."""

    def __init__(self, shape: AudioShape) -> None:
        super().__init__()
        self.shape = shape
        channels = shape.channels
        self.first = nn.Conv2d(1, channels, 3, 2, 1)
        self.depth1, self.depth2 = (nn.Conv2d(channels, channels, 3, 2, 1, groups=channels) for _ in range(2))
        self.point1, self.point2 = (nn.Conv2d(channels, channels, 1) for _ in range(2))
        self.enter = nn.Linear(channels * tokens_of(MELS), shape.width)
        self.layers = nn.ModuleList(ConformerLayer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, 1e-5)
        self.project = nn.Linear(shape.width, shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.out)

    def forward(self, mels: Tensor, frames: list[int]) -> Tensor:
        """`frames` are the true lengths; tokens after them mean nothing."""
        x = mels[:, None]
        lengths = torch.tensor(frames)
        for convolutions in ((self.first,), (self.depth1, self.point1), (self.depth2, self.point2)):
            for convolution in convolutions:
                x = convolution(x)
            lengths = (lengths + 1) // 2
            ended = torch.arange(x.shape[2]) >= lengths[:, None]
            x = F.relu(x).masked_fill(ended[:, None, :, None], 0.0)
        x = self.enter(x.transpose(1, 2).flatten(2))
        positions = relative_positions(x.shape[1])
        for layer in self.layers:
            x = layer(x, positions, ended)
        return self.out(F.gelu(self.project(self.norm(x))))
