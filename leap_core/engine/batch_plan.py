"""What goes into one decode: the next token of every live request, then chunks of prompts by age."""

from __future__ import annotations

from dataclasses import dataclass

from ..llama.context import LlamaContext
from .request import Request
from .slots import Slot

FEW = 16
"""Positions that count as decoding: the next token, and those that a constraint forced before it."""
CHUNK_BESIDE_ANSWERS = 128
"""Most prompt positions of a step while answers are running, so that none of them waits longer than that."""


@dataclass(eq=False)
class Part:
    """A run of positions of one request within a step: ``target[start : start + count]``.

    ``wants_logits`` when it reaches the end of the target; ``output`` is then the index to read them at.
    """

    slot: Slot
    request: Request
    start: int
    count: int
    wants_logits: bool
    output: int | None = None

    def add_to(self, context: LlamaContext) -> None:
        """Append the run to the context's batch."""
        end = self.start + self.count
        for start, stop, segment in self.request.prompt.embedding_ranges:
            if start <= self.start < stop:
                rows = segment.rows[self.start - start : end - start]
                index = context.add_embeddings(self.slot.index, self.start, rows, output=self.wants_logits)
                break
        else:
            tokens = self.request.target[self.start : end]
            index = context.add(self.slot.index, self.start, tokens, output=self.wants_logits)
        self.output = index if self.wants_logits else None

    @property
    def is_embeddings(self) -> bool:
        """Whether the run is made of embeddings, which cannot share a batch with tokens."""
        return any(start <= self.start < stop for start, stop, _ in self.request.prompt.embedding_ranges)


def plan_step(running: list[Slot], batch_size: int) -> list[Part]:
    """The parts of the next decode, at most ``batch_size`` positions together."""
    answering: list[Slot] = []
    reading: list[Slot] = []
    for slot in sorted(running, key=lambda slot: slot.last_used):
        request = slot.request
        assert request is not None
        few = len(request.target) - len(slot.keys) <= FEW and not _next_stop(request, len(slot.keys))
        (answering if few else reading).append(slot)
    parts: list[Part] = []
    room = batch_size
    for slot in answering:
        room -= _append(parts, slot, room)
    if parts:
        room = min(room, CHUNK_BESIDE_ANSWERS)
    for slot in reading:
        room -= _append(parts, slot, room)
    return _of_one_kind(parts)


def _append(parts: list[Part], slot: Slot, room: int) -> int:
    """Add the next run of a slot, up to its next stop and the room that is left; returns its length."""
    request = slot.request
    assert request is not None
    start = len(slot.keys)
    end = min(_next_stop(request, start) or len(request.target), start + room)
    if end > start:
        parts.append(Part(slot, request, start, end - start, wants_logits=end == len(request.target)))
    return max(0, end - start)


def _next_stop(request: Request, start: int) -> int | None:
    """The next position inside the target at which a run must end: a checkpoint, or the edge of embeddings."""
    stops = [position for position in request.checkpoints_due if position > start][:1]
    for first, last, _ in request.prompt.embedding_ranges:
        stops += [edge for edge in (first, last) if edge > start]
    return min(stops, default=None)


def _of_one_kind(parts: list[Part]) -> list[Part]:
    """Tokens and embeddings take turns: the kind of the oldest reading slot's run is decoded now."""
    embeddings = [part for part in parts if part.is_embeddings]
    if not embeddings:
        return parts
    tokens = [part for part in parts if not part.is_embeddings]
    return embeddings[:1] if len(embeddings) == len(parts) or parts[0].is_embeddings else tokens or embeddings[:1]
