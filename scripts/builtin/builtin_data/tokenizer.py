"""The byte-level BPE vocabulary, in which copying is easy.

llama.cpp splits text for `lfm2` as for Llama 3 and then merges. The merges learned here never join letters with a
space, a quote or a digit, nor two digits, so a word is cut into the same pieces wherever it stands. Frequent small
words with their space are whole tokens without merges: llama.cpp looks a piece up as a whole before it merges.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from builtin_data.phrases import phrases
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = [
    "<|pad|>",
    "<|startoftext|>",
    "<|endoftext|>",
    "<|reserved_3|>",
    "<|reserved_4|>",
    "<|reserved_5|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|tool_list_start|>",
    "<|tool_list_end|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_response_start|>",
    "<|tool_response_end|>",
    "<think>",
    "</think>",
]
PAD, BOS, END_OF_TEXT, END = 0, 1, 2, 7
USER_DEFINED = {"<think>", "</think>"}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MERGEABLE = r"\p{N}|\p{L}+|[\r\n]| ?[^\s\p{L}\p{N}]+|\s"
WHOLE_WORDS = phrases("tokenizer", "whole_words")


@dataclass
class Vocabulary:
    """Tokens in order of their ids, and the merges in order of their rank; the first tokens are the special ones."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    special: list[str] = field(default_factory=lambda: list(SPECIAL))

    def encoder(self) -> Tokenizer:
        ids = {token: i for i, token in enumerate(self.tokens)}
        tokenizer = Tokenizer(models.BPE(vocab=ids, merges=self.merges, ignore_merges=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in self.special])
        return tokenizer


def learn(texts: Iterable[str], size: int) -> Vocabulary:
    """Learn a vocabulary of exactly `size` tokens."""
    words = ["Ġ" + word for word in dict.fromkeys(WHOLE_WORDS) if word.isalpha()]
    vocabulary = _learn(texts, size - len(words), SPECIAL, MERGEABLE)
    assert len(vocabulary.tokens) == size - len(words), len(vocabulary.tokens)
    return Vocabulary(vocabulary.tokens + words, vocabulary.merges)


def learn_closed(texts: Iterable[str], most: int, special: Iterable[str] = (), frequency: int = 20) -> Vocabulary:
    """Learn a vocabulary of at most `most` tokens for few and frequent words, which join with the space before them.

    `special` come after the usual special tokens; what is merged stands in the texts `frequency` times.
    """
    return _learn(texts, most, [*SPECIAL, *special], LLAMA3, frequency)


def _learn(texts: Iterable[str], size: int, special: list[str], split: str, frequency: int = 20) -> Vocabulary:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(special),
        initial_alphabet=alphabet,
        show_progress=False,
        min_frequency=frequency,
        max_token_length=12,
    )
    tokenizer.train_from_iterator(texts, trainer)
    learned = tokenizer.get_vocab(with_added_tokens=False)
    ordered = sorted(learned, key=learned.__getitem__)
    merges = [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
    return Vocabulary(special + ordered, merges, special)
