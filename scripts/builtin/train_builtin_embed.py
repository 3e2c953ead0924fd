"""Make `builtin-embed`: `python scripts/builtin/train_builtin_embed.py`.

Counts which words stand together in the repository's own pages and docstrings, makes a vector of each word from that
(latent semantic analysis, with words that mean nearly the same drawn together), and writes an LFM2 that is not causal
and whose first token looks at all words by how much they tell. Nothing is learned by gradients: a minute is enough.
Needs the `train` extra.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from builtin_data.export import write_gguf
from builtin_data.network import Network, Shape
from builtin_data.passages import common_words, passages
from builtin_data.phrases import phrases
from builtin_data.tokenizer import BOS, Vocabulary, learn_closed
from torch import Tensor

SEED = 43
MOST_TOKENS = 6000
PREFIXES = ("query: ", "document: ")
HEADS, HEAD_WIDTH = 8, 32
WIDTH = HEADS * HEAD_WIDTH
MEANING = WIDTH - HEAD_WIDTH
"""Numbers of a word's vector that say what it means. The last block says how much it tells."""
TELLING, ALWAYS = WIDTH - 2, WIDTH - 1
"""How much a word tells, and what makes the two together as long as for every other word."""
STILL = HEAD_WIDTH // 2 - 1
"""The number of a head that positions turn least: by 0.001 over 512 tokens."""
TOGETHER, ALIKE, OWN = 1.0, 0.5, 0.3
"""Shares of a word's vector: by the words around it, by those that mean nearly the same, and of its own."""
LEAST = 0.02
"""Of the weight of the word that tells most, what one without a sense of its own has."""
SHARP = 5.0
"""Natural logarithms of weights lie between -SHARP and 0."""
OUTPUT = Path(__file__).resolve().parents[2] / "leap_core" / "models" / "builtin" / "builtin-embed.gguf"
NAME = "leap built-in demo, embed"
DESCRIPTION = "A tiny LFM2 encoder for searching in English texts; a demonstration and test model of leap."


def vocabulary() -> Vocabulary:
    texts = [text for passage in passages() for text in (passage.text, passage.text.lower(), f" {passage.heading}")]
    texts += [f" {word}" for word in common_words()] * 3
    texts += [f" {line.replace(',', '')}" for line in phrases("synonyms", "groups")] * 4
    return learn_closed(texts, MOST_TOKENS, frequency=4)


def stem(token: str) -> str:
    """What tokens of one word share: small letters, no space before it, no common ending."""
    word = token.removeprefix("Ġ").lower()
    if not word.isascii() or not word.isalpha() or len(word) < 4:
        return word
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending) + instead
            break
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "ls" else word


def counted(words: Vocabulary) -> tuple[dict[str, int], list[Counter[int]]]:
    """The number of each stem, and how often each stands in every passage."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(map(stem, words.tokens)))}
    of_token = [numbers[stem(token)] for token in words.tokens]
    texts = [f" {passage.heading}\n {passage.text}" for passage in passages()]
    return numbers, [Counter(of_token[token] for token in each.ids) for each in words.encoder().encode_batch(texts)]


def weights(numbers: dict[str, int], counts: list[Counter[int]]) -> np.ndarray:
    """How much each stem tells, from LEAST to 1: the fewer passages it stands in, the more."""
    found = np.zeros(len(numbers))
    for each in counts:
        found[list(each)] += 1
    weight = np.log((len(counts) + 1) / (found + 1)) / math.log(len(counts) + 1)
    for name, number in numbers.items():
        if not name.isalnum() or len(name) == 1:
            weight[number] *= 0.3
    return np.clip(weight, LEAST, 1.0) ** 1.5


def meanings(numbers: dict[str, int], counts: list[Counter[int]], weight: np.ndarray) -> np.ndarray:
    """A vector of length 1 for each stem [stems, MEANING]."""
    generator = np.random.default_rng(SEED)
    table = np.zeros((len(numbers), len(counts)), dtype=np.float32)
    for column, each in enumerate(counts):
        for number, count in each.items():
            table[number, column] = (1 + math.log(count)) * weight[number]
    table /= np.linalg.norm(table, axis=0, keepdims=True) + 1e-9
    torch.manual_seed(SEED)
    left, strength, _ = torch.svd_lowrank(torch.from_numpy(table), MEANING, niter=3)
    together = _unit((left * strength.sqrt()).numpy())
    own = _unit(generator.normal(size=(len(numbers), MEANING)))
    together[np.abs(table).sum(1) == 0] = 0.0
    vectors = TOGETHER * together + OWN * own
    alike: dict[int, list[int]] = defaultdict(list)
    for line in phrases("synonyms", "groups"):
        group = [numbers[stem(word.strip())] for word in line.split(",") if stem(word.strip()) in numbers]
        for number in group:
            alike[number] += [other for other in group if other != number]
    drawn = vectors.copy()
    for number, others in alike.items():
        drawn[number] += ALIKE * vectors[sorted(set(others))].sum(0) / math.sqrt(max(1, len(set(others))))
    return _unit(drawn)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9)


def embedding(words: Vocabulary) -> Tensor:
    """The row of every token: its meaning, and the logarithm of its weight as one of two numbers of length 1."""
    numbers, counts = counted(words)
    weight = weights(numbers, counts)
    vectors = meanings(numbers, counts, weight)
    rows = np.zeros((len(words.tokens), WIDTH), dtype=np.float32)
    silent = {BOS, *words.encoder().encode("".join(PREFIXES)).ids, *range(len(words.special))}
    for token, text in enumerate(words.tokens):
        number = numbers[stem(text)]
        log_weight = -SHARP if token in silent else max(-SHARP, math.log(weight[number]))
        rows[token, TELLING] = log_weight / SHARP
        rows[token, ALWAYS] = math.sqrt(1 - rows[token, TELLING] ** 2)
        if token not in silent:
            rows[token, :MEANING] = vectors[number]
        else:
            rows[token, MEANING] = 1.0  # as long as the others, and left out by the final norm
    return torch.from_numpy(rows)


def make(words: Vocabulary) -> Network:
    """The network whose first token ends as the sum of all meanings by their weights."""
    shape = Shape(len(words.tokens), WIDTH, 2, (1,), HEADS, HEADS, HEAD_WIDTH, 32, 3, 512, causal=False)
    network = Network(shape)
    with torch.no_grad():
        network.embedding.weight.copy_(embedding(words))
        for layer in network.layers:
            layer.be_nothing()
        attention = network.layers[1].mixer
        for matrix in (attention.q, attention.k, attention.v, attention.out):
            matrix.weight.zero_()
        attention.v.weight[range(MEANING), range(MEANING)] = 1.0
        attention.out.weight[range(MEANING), range(MEANING)] = 1.0
        for head in range(HEADS):
            first = head * HEAD_WIDTH
            attention.q.weight[first + STILL, ALWAYS] = 1.0
            attention.k.weight[first + STILL, TELLING] = 1.0
            attention.k.weight[first + STILL - 1, ALWAYS] = 1.0
        attention.q_norm.weight.fill_(SHARP / HEAD_WIDTH**0.5)
        network.norm.weight[MEANING:] = 0.0
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the GGUF to write")
    options = parser.parse_args()
    words = vocabulary()
    network = make(words)
    print(f"{sum(p.numel() for p in network.parameters()):,} parameters, {len(words.tokens)} tokens", flush=True)
    write_gguf(network, words, options.output, NAME, DESCRIPTION, PREFIXES)


if __name__ == "__main__":
    main()
