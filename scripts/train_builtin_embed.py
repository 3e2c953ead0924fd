"""Train `builtin-embed` from nothing: `python scripts/train_builtin_embed.py`.

Pairs queries with passages of the repository's own pages and docstrings, and of invented words, and learns vectors in
which a query is nearest to its passage: an LFM2 that is not causal, its vector that of the first token, as in
LFM2.5-Embedding. Needs the `train` extra. An interrupted run goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import pickle
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from builtin_data.export import write_gguf
from builtin_data.muon import Muon
from builtin_data.network import Network, Shape
from builtin_data.passages import common_words, passages
from builtin_data.retrieval_pairs import make_pair
from builtin_data.tokenizer import BOS, Vocabulary, learn_closed
from tokenizers import Tokenizer
from torch import Tensor

SEED = 43
MOST_TOKENS = 6000
BATCH, LONGEST = 80, 128
"""Pairs of a step, and tokens of a text."""
MATRIX_RATE, OTHER_RATE = 2e-3, 2e-3
WARM_UP, STEADY = 30, 0.4
SHARPNESS = 20.0
"""Cosines are multiplied by it before the softmax over all passages of a batch."""
QUERY, DOCUMENT = "query: ", "document: "
OUTPUT = Path(__file__).resolve().parent.parent / "leap_core" / "builtin" / "builtin-embed.gguf"
NAME = "leap built-in demo, embed"
DESCRIPTION = "A tiny LFM2 encoder for searching in English texts; a demonstration and test model of leap."


def vocabulary(rng: random.Random) -> Vocabulary:
    texts = [text for passage in passages() for text in (passage.text, passage.text.lower(), f" {passage.heading}")]
    texts += [f" {word}" for word in common_words()] * 3
    texts += [make_pair(rng).query for _ in range(5000)]
    return learn_closed(texts, MOST_TOKENS, frequency=4)


def kept_vocabulary(path: Path) -> Vocabulary:
    """Learned once for a run and kept beside its checkpoint."""
    if not path.exists():
        path.write_bytes(pickle.dumps(vocabulary(random.Random(SEED))))
    kept: Vocabulary = pickle.loads(path.read_bytes())
    return kept


def embedder_shape(size: int) -> Shape:
    return Shape(size, 256, 2, (1,), 8, 4, 32, 320, 3, 512, causal=False)


def padded(encoder: Tokenizer, texts: list[str]) -> tuple[Tensor, Tensor]:
    """Token ids [texts, length], the first being the start of text, and where a text has ended."""
    rows = [[BOS, *encoding.ids][:LONGEST] for encoding in encoder.encode_batch(texts)]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    ended = torch.ones_like(ids, dtype=torch.bool)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
        ended[index, : len(row)] = False
    return ids, ended


def vectors(network: Network, ids: Tensor, ended: Tensor) -> Tensor:
    """One vector of length 1 for each text."""
    x = network.embedding(ids).masked_fill(ended[..., None], 0.0).bfloat16()
    return F.normalize(network.run(x, ended)[:, 0].float(), dim=-1)


class Trainer:
    """The encoder with its two optimizers: Muon for the matrices, AdamW for embedding, norms and kernels."""

    def __init__(self, words: Vocabulary, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.encoder, self.rng = words.encoder(), random.Random(seed)
        self.network = Network(embedder_shape(len(words.tokens)))
        torch.nn.init.normal_(self.network.embedding.weight, std=0.3)
        named = list(self.network.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and "embedding" not in name and "kernel" not in name]
        chosen = {id(p) for p in matrices}
        self.muon = Muon(matrices)
        others = [p for _, p in named if id(p) not in chosen]
        self.adam = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0)
        self.step, self.steps = 0, steps

    @property
    def rate(self) -> float:
        falling = (self.steps - self.step) / (self.steps * (1 - STEADY))
        return min(1.0, (self.step + 1) / WARM_UP, falling)

    def learn(self) -> tuple[float, float]:
        """One step over a batch of pairs; returns the loss and how many passages were nearest to their query."""
        pairs = [make_pair(self.rng) for _ in range(BATCH)]
        keys = torch.tensor([pair.key for pair in pairs])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            queries = vectors(self.network, *padded(self.encoder, [QUERY + pair.query for pair in pairs]))
            documents = vectors(self.network, *padded(self.encoder, [DOCUMENT + pair.passage for pair in pairs]))
        same = (keys[:, None] == keys[None, :]) & ~torch.eye(BATCH, dtype=torch.bool)
        scores = (SHARPNESS * queries @ documents.T).masked_fill(same, -torch.inf)
        right = torch.arange(BATCH)
        loss = (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2
        self.network.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * self.rate
        self.adam.step()
        self.muon.step(MATRIX_RATE * self.rate)
        self.step += 1
        return loss.item(), (scores.argmax(1) == right).float().mean().item()

    def save(self, path: Path) -> None:
        state = {"network": self.network.state_dict(), "adam": self.adam.state_dict(), "muon": self.muon.state()}
        torch.save({**state, "step": self.step}, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)

    def restore(self, path: Path) -> None:
        state = torch.load(path)
        self.network.load_state_dict(state["network"])
        self.adam.load_state_dict(state["adam"])
        self.muon.restore(state["muon"])
        self.step = state["step"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("builtin-embed-training"), help="where checkpoints go")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the GGUF to write at the end")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    words = kept_vocabulary(options.work / "vocabulary.pickle")
    trainer = Trainer(words, options.steps, options.seed)
    checkpoint = options.work / "checkpoint.pt"
    if checkpoint.exists():
        trainer.restore(checkpoint)
        trainer.rng.seed(f"{options.seed}/{trainer.step}")
    size = sum(p.numel() for p in trainer.network.parameters())
    print(f"{size:,} parameters, {len(words.tokens)} tokens", flush=True)
    began, average, nearest = time.monotonic(), None, 0.0
    while trainer.step < trainer.steps:
        loss, part = trainer.learn()
        average = loss if average is None else 0.95 * average + 0.05 * loss
        nearest += 0.05 * (part - nearest)
        if trainer.step % 20 == 0:
            spent = f"{time.monotonic() - began:.0f} s, {time.process_time():.0f} s of a core"
            print(f"step {trainer.step} loss {average:.4f}, nearest {nearest:.3f}, {spent}", flush=True)
        if trainer.step % options.save_every == 0:
            trainer.save(checkpoint)
            write_gguf(trainer.network, words, options.work / "model.gguf", NAME, DESCRIPTION)
    write_gguf(trainer.network, words, options.output, NAME, DESCRIPTION)


if __name__ == "__main__":
    main()
