"""Train leap's built-in model from nothing: `python scripts/train_builtin.py`.

Generates dialogues, learns a vocabulary from them, trains an LFM2 of a few million parameters and writes it as GGUF.
Needs the `train` extra (torch, numpy, gguf, tokenizers). The same seed gives the same data in the same order; a run
that was interrupted goes on from its last checkpoint. MODEL_CARD.md beside the model says how long it took.
"""

from __future__ import annotations

import argparse
import pickle
import random
import re
import time
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from builtin_data.batches import Batch, stream
from builtin_data.dialogue import render
from builtin_data.export import write_gguf
from builtin_data.muon import Muon
from builtin_data.network import Layer, Network, Shape
from builtin_data.skills import conversation
from builtin_data.tokenizer import SPECIAL, Vocabulary, learn
from builtin_data.values import Values

SEED = 20
TOKENS_PER_STEP = 6144
MATRIX_RATE, OTHER_RATE = 5e-3, 3e-3
RATES = (
    (0, 0.01),
    (99, 1.0),
    (1749, 1.0),
    (1750, 0.974),
    (3249, 0.584),
    (3250, 0.419),
    (4600, 0.0),
    (4640, 0.3),
    (5700, 0.0),
)
"""The learning rate at these steps, as a part of the highest; straight lines between them. The last step is the end.

The two bends are where the first run was given an earlier end; a run from nothing goes through the same rates.
"""
SECOND_PHASE = 4600
"""From this step on the data is drawn from wider lists. Not run yet: the shipped weights are those of this step."""
MODEL = Path(__file__).resolve().parent.parent / "leap_core" / "builtin" / "model.gguf"


def vocabulary_for(shape: Shape) -> Vocabulary:
    values = Values(random.Random(SEED), "train")
    texts = ("".join(text for text, _ in render(conversation(values), True)[1:]) for _ in range(40_000))
    markers = re.compile("|".join(map(re.escape, SPECIAL)))
    return learn((part for text in texts for part in markers.split(text)), shape.vocabulary)


def rate_at(step: int) -> float:
    """The part of the highest learning rate that holds at a step."""
    for (start, low), (end, high) in pairwise(RATES):
        if step <= end:
            return low + (high - low) * (step - start) / (end - start)
    return 0.0


class Trainer:
    """The network with its two optimizers: Muon for the matrices, AdamW for embedding, norms and kernels."""

    def __init__(self, shape: Shape) -> None:
        torch.manual_seed(SEED)
        self.network = Network(shape)
        named = list(self.network.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and "embedding" not in name and "kernel" not in name]
        chosen = {id(p) for p in matrices}
        self.muon = Muon(matrices)
        others = [p for _, p in named if id(p) not in chosen]
        self.adam = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0)
        self.step = 0

    def learn(self, ids: torch.Tensor, learned: torch.Tensor, rate: float) -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.network(ids[:, :-1])
            logits = self.network.logits(hidden[learned])
        loss = F.cross_entropy(logits.float(), ids[:, 1:][learned])
        self.network.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * rate
        self.adam.step()
        self.muon.step(MATRIX_RATE * rate)
        self.step += 1
        return loss.item()

    def save(self, path: Path) -> None:
        state = {
            "network": self.network.state_dict(),
            "adam": self.adam.state_dict(),
            "muon": self.muon.state(),
            "step": self.step,
        }
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def restore(self, path: Path) -> None:
        state = torch.load(path)
        self.network.load_state_dict(state["network"])
        self.adam.load_state_dict(state["adam"])
        self.muon.restore(state["muon"])
        self.step = state["step"]


def lessons(vocabulary: Vocabulary, step: int) -> Iterator[Batch]:
    """The batches from a step on; the second phase draws from wider lists under the next seed."""
    encoder = vocabulary.encoder()
    if step < SECOND_PHASE:
        yield from islice(stream(encoder, SEED, TOKENS_PER_STEP, step), SECOND_PHASE - step)
    yield from stream(encoder, SEED + 1, TOKENS_PER_STEP, max(0, step - SECOND_PHASE), wide=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("builtin-training"), help="where checkpoints go")
    parser.add_argument("--output", type=Path, default=MODEL, help="the GGUF to write at the end")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=250)
    parser.add_argument("--no-compile", action="store_true", help="slower, but needs no C++ compiler")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    shape = Shape()
    words = options.work / "vocabulary.pickle"
    if not words.exists():
        words.write_bytes(pickle.dumps(vocabulary_for(shape)))
    vocabulary: Vocabulary = pickle.loads(words.read_bytes())
    trainer = Trainer(shape)
    checkpoint = options.work / "checkpoint.pt"
    if checkpoint.exists():
        trainer.restore(checkpoint)
    if not options.no_compile:
        torch._dynamo.config.recompile_limit = 64
        Layer.forward = torch.compile(Layer.forward, dynamic=False)  # type: ignore[method-assign]
    print(f"{sum(p.numel() for p in trainer.network.parameters()):,} parameters, from step {trainer.step}", flush=True)
    began, average = time.monotonic(), None
    for ids, learned in lessons(vocabulary, trainer.step):
        if trainer.step >= RATES[-1][0]:
            break
        loss = trainer.learn(torch.from_numpy(ids), torch.from_numpy(learned), rate_at(trainer.step))
        average = loss if average is None else 0.98 * average + 0.02 * loss
        if trainer.step % 25 == 0:
            print(f"step {trainer.step} loss {average:.4f} after {time.monotonic() - began:.0f} s", flush=True)
        if trainer.step % options.save_every == 0:
            trainer.save(checkpoint)
            write_gguf(trainer.network, vocabulary, options.work / "model.gguf")
    write_gguf(trainer.network, vocabulary, options.output)


if __name__ == "__main__":
    main()
