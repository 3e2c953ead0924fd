"""Train leap's built-in model from nothing: `python scripts/builtin/train_builtin.py`.

Generates dialogues, learns a vocabulary from them, trains an LFM2 of a few million parameters and writes it as GGUF.
Needs the `train` extra (torch, numpy, gguf, tokenizers). The same seed gives the same data in the same order; a run
that was interrupted goes on from its last checkpoint, with the next pool of dialogues. MODEL_CARD.md beside the model
says how long it took.
"""

from __future__ import annotations

import argparse
import pickle
import random
import re
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from builtin_data.batches import Batch, Row, Rows, batches, pool
from builtin_data.dialogue import render
from builtin_data.export import read_mean, write_gguf
from builtin_data.muon import Muon
from builtin_data.network import Layer, Network, Shape
from builtin_data.skills import conversation
from builtin_data.tokenizer import SPECIAL, Vocabulary, learn
from builtin_data.values import Values

SEED = 21
TOKENS_PER_STEP = 6144
MATRIX_RATE, OTHER_RATE = 3e-3, 1.8e-3
STEPS = 4200
WARM_UP, FALL = 100, 0.06
"""The learning rate rises over the first steps, stays, and falls to nothing from this part of all steps on."""
MODEL = Path(__file__).resolve().parents[2] / "leap_core" / "models" / "builtin" / "model.gguf"


def vocabulary_for(shape: Shape) -> Vocabulary:
    values = Values(random.Random(SEED), "train")
    texts = ("".join(text for text, _ in render(conversation(values), True)[1:]) for _ in range(40_000))
    markers = re.compile("|".join(map(re.escape, SPECIAL)))
    return learn((part for text in texts for part in markers.split(text)), shape.vocabulary)


def kept_vocabulary(path: Path, shape: Shape) -> Vocabulary:
    """Learned once for a run and kept beside its checkpoint."""
    if not path.exists():
        path.write_bytes(pickle.dumps(vocabulary_for(shape)))
    kept: Vocabulary = pickle.loads(path.read_bytes())
    return kept


class Mining(NamedTuple):
    """After so many steps on everything, only the hardest share of each pool is learned, with a part of the others."""

    share: float
    others: float
    passes: int
    after: int


class Trainer:
    """The network with its two optimizers: Muon for the matrices, AdamW for embedding, norms and kernels."""

    def __init__(self, shape: Shape, steps: int, highest: float = 1.0) -> None:
        torch.manual_seed(SEED)
        self.network = Network(shape)
        named = list(self.network.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and "embedding" not in name and "kernel" not in name]
        chosen = {id(p) for p in matrices}
        self.muon = Muon(matrices)
        others = [p for _, p in named if id(p) not in chosen]
        self.adam = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0)
        self.step = 0
        self.pool = 0
        self.steps = steps
        self.highest = highest

    @property
    def rate(self) -> float:
        """The part of the highest learning rate that holds at this step."""
        falling = (self.steps - self.step) / (self.steps * (1 - FALL))
        return self.highest * min(1.0, (self.step + 1) / WARM_UP, falling)

    def learn(self, ids: torch.Tensor, learned: torch.Tensor) -> float:
        """One step over rows of tokens; returns the loss over those to be learned."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.network(ids[:, :-1])
            logits = self.network.logits(hidden[learned])
        loss = F.cross_entropy(logits.float(), ids[:, 1:][learned])
        self.network.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * self.rate
        self.adam.step()
        self.muon.step(MATRIX_RATE * self.rate)
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def losses(self, batch: Batch) -> list[float]:
        """The loss of each row, summed over what is to be learned of it."""
        ids, learned = torch.from_numpy(batch.ids), torch.from_numpy(batch.learned)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.network.logits(self.network(ids[:, :-1])[learned])
        each = F.cross_entropy(logits.float(), ids[:, 1:][learned], reduction="none")
        return torch.zeros(len(ids)).index_add_(0, learned.nonzero()[:, 0], each).tolist()

    def hardest(self, candidates: list[Batch], mining: Mining, rng: random.Random) -> Rows:
        """The rows of most loss for their length, until they make up a share of all positions, and a few others."""
        scored: list[tuple[float, int, Row]] = []
        for batch in candidates:
            length = batch.learned.shape[1]
            scored += [(loss / length, length, row) for loss, row in zip(self.losses(batch), batch.rows, strict=False)]
        scored.sort(key=lambda item: item[0], reverse=True)
        left = mining.share * sum(length for _, length, _ in scored)
        ends = accumulate(length for _, length, _ in scored)
        loss = sum(loss * length for loss, length, _ in scored)
        learned = sum(sum(learned) for _, _, (_, learned) in scored)
        print(f"pool {self.pool} of {len(scored)} conversations, loss {loss / learned:.4f}", flush=True)
        ranked = zip((row for _, _, row in scored), ends, strict=True)
        return [row for row, end in ranked if end <= left or rng.random() < mining.others]

    def save(self, path: Path) -> None:
        state = {
            "network": self.network.state_dict(),
            "adam": self.adam.state_dict(),
            "muon": self.muon.state(),
            "step": self.step,
            "pool": self.pool,
        }
        torch.save(state, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def restore(self, path: Path) -> None:
        state = torch.load(path)
        self.network.load_state_dict(state["network"])
        self.adam.load_state_dict(state["adam"])
        self.muon.restore(state["muon"])
        self.step, self.pool = state["step"], state["pool"]


def lessons(trainer: Trainer, vocabulary: Vocabulary, seed: int, mining: Mining) -> Iterator[Batch]:
    """Batches in random order until all steps are done."""
    encoder, rng = vocabulary.encoder(), random.Random(seed)
    while True:
        made = batches(pool(encoder, seed, trainer.pool), TOKENS_PER_STEP)
        mined = mining.share < 1 and trainer.step >= mining.after
        if mined:
            made = batches(trainer.hardest(made, mining, rng), TOKENS_PER_STEP)
        trainer.pool += 1
        for _ in range(mining.passes if mined else 1):
            rng.shuffle(made)
            for batch in made:
                if trainer.step == trainer.steps:
                    return
                yield batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("builtin-training"), help="where checkpoints go")
    parser.add_argument("--output", type=Path, default=MODEL, help="the GGUF to write at the end")
    parser.add_argument(
        "--start-from",
        type=Path,
        nargs="+",
        metavar="GGUF",
        help="go on from these weights and their vocabulary; of several that share one, from their mean",
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rate", type=float, default=1.0, help="a part of the usual learning rates")
    parser.add_argument("--hardest", type=float, default=1.0, metavar="SHARE", help="learn only this share of the data")
    parser.add_argument("--hardest-after", type=int, default=0, metavar="STEPS", help="until then learn all of it")
    parser.add_argument("--others", type=float, default=0.0, metavar="SHARE", help="and this part of the rest")
    parser.add_argument("--passes", type=int, default=1, help="how often what --hardest chose of a pool is learned")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=250)
    parser.add_argument("--no-compile", action="store_true", help="slower, but needs no C++ compiler")
    options = parser.parse_args()
    if not 0 < options.hardest <= 1:
        parser.error("--hardest is a share above 0, at most 1")
    if not 0 <= options.others <= 1:
        parser.error("--others is a share from 0 to 1")
    if options.passes < 1:
        parser.error("--passes is 1 or more")
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(Shape(), options.steps, options.rate)
    if options.start_from:
        try:
            vocabulary = read_mean(trainer.network, options.start_from)
        except ValueError as error:
            parser.error(str(error))
    else:
        vocabulary = kept_vocabulary(options.work / "vocabulary.pickle", trainer.network.shape)
    checkpoint = options.work / "checkpoint.pt"
    if checkpoint.exists():
        trainer.restore(checkpoint)
    if not options.no_compile:
        torch._dynamo.config.recompile_limit = 64
        Layer.forward = torch.compile(Layer.forward, dynamic=False)  # type: ignore[method-assign]
    print(f"{sum(p.numel() for p in trainer.network.parameters()):,} parameters, from step {trainer.step}", flush=True)
    began, average = time.monotonic(), None
    mining = Mining(options.hardest, options.others, options.passes, options.hardest_after)
    for batch in lessons(trainer, vocabulary, options.seed, mining):
        loss = trainer.learn(torch.from_numpy(batch.ids), torch.from_numpy(batch.learned))
        average = loss if average is None else 0.98 * average + 0.02 * loss
        if trainer.step % 25 == 0:
            print(f"step {trainer.step} loss {average:.4f} after {time.monotonic() - began:.0f} s", flush=True)
        if trainer.step % options.save_every == 0:
            trainer.save(checkpoint)
            write_gguf(trainer.network, vocabulary, options.work / "model.gguf")
    write_gguf(trainer.network, vocabulary, options.output)


if __name__ == "__main__":
    main()
