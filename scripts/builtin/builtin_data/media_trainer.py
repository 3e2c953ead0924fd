"""Learns a tower and a text decoder together, from answers and from what each of the tower's tokens should tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from builtin_data.media_rows import Rows
from builtin_data.muon import Muon
from builtin_data.network import Network, Shape
from torch import Tensor, nn

MATRIX_RATE, OTHER_RATE = 3e-3, 1.8e-3
WARM_UP, STEADY = 50, 0.5
"""The learning rate rises over the first steps, stays, and falls to nothing after this part of all steps."""
EXTRA = 0.5
"""The weight of the loss on the tower's tokens."""


class Lessons(Protocol):
    """Batches of media with rows about them. See `picture_lessons` and `sound_lessons`."""

    def tower(self) -> nn.Module: ...
    def head(self) -> nn.Module: ...
    def batch(self, progress: float) -> Any: ...
    def tokens(self, tower: Any, batch: Any) -> tuple[Tensor, list[int]]: ...
    def extra_loss(self, head: Any, tokens: Tensor, batch: Any) -> Tensor: ...


def decoder_shape(vocabulary: int) -> Shape:
    """The text decoder that both media models have."""
    return Shape(vocabulary, 128, 5, (1, 3, 4), 4, 2, 32, 320, 3, 4096)


def with_media(network: Network, rows: Rows, tokens: Tensor, counts: list[int]) -> Tensor:
    """The rows embedded, the tower's tokens in their places, in half the width: most time goes into moving them."""
    ids = rows.ids[:, :-1]
    x = network.embedding(ids.clamp_min(0)).bfloat16()
    places = ids < 0
    filled = [tokens[index, : counts[index]] for index in rows.media[places.any(1)].tolist()]
    if not filled:
        return x
    return x.masked_scatter(places[..., None], torch.cat(filled).to(x.dtype))


class MediaTrainer:
    """The decoder, the tower and the extra head, with two optimizers: Muon for matrices, AdamW for the rest."""

    def __init__(self, lessons: Lessons, vocabulary: int, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.lessons = lessons
        self.network = Network(decoder_shape(vocabulary))
        self.tower, self.head = lessons.tower(), lessons.head()
        self.modules = nn.ModuleDict({"network": self.network, "tower": self.tower, "head": self.head})
        named = [(name, p) for name, p in self.modules.named_parameters() if p.requires_grad]
        plain = ("embedding", "kernel", "positions", "bias_", "head")
        matrices = [p for name, p in named if p.ndim == 2 and not any(word in name for word in plain)]
        chosen = {id(p) for p in matrices}
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(
            [p for _, p in named if id(p) not in chosen], lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.step, self.steps = 0, steps

    @property
    def rate(self) -> float:
        """The part of the highest learning rate that holds at this step."""
        falling = (self.steps - self.step) / (self.steps * (1 - STEADY))
        return min(1.0, (self.step + 1) / WARM_UP, falling)

    def learn(self) -> tuple[float, float]:
        """One step; returns the loss over the answers and the extra loss."""
        batch = self.lessons.batch(self.step / self.steps)
        parts: list[Rows] = batch.rows
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tokens, counts = self.lessons.tokens(self.tower, batch)
            logits = torch.cat([self._logits(rows, tokens, counts) for rows in parts])
            extra = self.lessons.extra_loss(self.head, tokens, batch)
        targets = torch.cat([rows.ids[:, 1:][rows.learned] for rows in parts])
        loss = F.cross_entropy(logits.float(), targets)
        self.modules.zero_grad(set_to_none=True)
        (loss + EXTRA * extra).backward()
        torch.nn.utils.clip_grad_norm_(self.modules.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * self.rate
        self.adam.step()
        self.muon.step(MATRIX_RATE * self.rate)
        self.step += 1
        return loss.item(), extra.item()

    def _logits(self, rows: Rows, tokens: Tensor, counts: list[int]) -> Tensor:
        hidden = self.network.run(with_media(self.network, rows, tokens, counts))
        return self.network.logits(hidden[rows.learned])

    def save(self, path: Path) -> None:
        state = {"modules": self.modules.state_dict(), "adam": self.adam.state_dict(), "muon": self.muon.state()}
        torch.save({**state, "step": self.step}, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def restore(self, path: Path) -> None:
        state = torch.load(path)
        self.modules.load_state_dict(state["modules"])
        self.adam.load_state_dict(state["adam"])
        self.muon.restore(state["muon"])
        self.step = state["step"]

    def start_from(self, path: Path) -> None:
        """Take the decoder's and the tower's weights of another run's checkpoint."""
        weights = torch.load(path)["modules"]
        for name in ("network", "tower"):
            part = {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}
            self.modules[name].load_state_dict(part)
