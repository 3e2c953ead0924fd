"""llguidance's view of a model's vocabulary, and matchers over it. Both are costly to make and are kept."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

GRAMMARS_KEPT = 64
REASONING_TAGS = (
    ("<think>", "</think>"),
    ("<|cot_start|>", "<|cot_end|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
)
"""What opens and closes reasoning: in most models, in Liquid's first ones (LFM2-350M-Math), Magistral, Seed-OSS,
Command R7B and Apertus."""
SOURCE_LINE = re.compile(r"(?m)^[ \t]*\d+ \| ")


class Vocabulary(Protocol):
    """What a constraint, and the reading of a reply, need of a model."""

    @property
    def llama_vocab(self) -> Any:
        """llama.cpp's pointer to the vocabulary."""
        ...

    @property
    def tokenize_address(self) -> int:
        """The address of llama.cpp's function that cuts a text into tokens."""
        ...

    @property
    def eos_token(self) -> int: ...
    @property
    def n_tokens(self) -> int: ...
    @property
    def eog_tokens(self) -> Collection[int]: ...
    @property
    def control_tokens(self) -> frozenset[int]: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...
    def piece(self, token: int) -> bytes:
        """The bytes of a token, special ones spelled out."""
        ...


def reasoning_tags(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The pairs of REASONING_TAGS that are tokens of a model."""
    tokens = vocabulary.special_tokens
    return [(start, end) for start, end in REASONING_TAGS if start in tokens and end in tokens]


class GrammarError(ValueError):
    """llguidance cannot use a grammar; the message is its own."""


class ConstraintTokenizer:
    """The tokenizer of one vocabulary, with the grammars that were lately compiled for it."""

    def __init__(self, tokenizer: LLTokenizer, n_tokens: int, eog_tokens: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self.n_tokens = n_tokens
        self.eog_tokens = eog_tokens
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._single_tokens: dict[tuple[str, ...], list[int]] = {}
        self._guard = threading.Lock()

    def bytes_of(self, token: int) -> bytes:
        """What a token spells."""
        return bytes(self.tokenizer.decode_bytes([token]))

    def single_tokens(self, texts: tuple[str, ...]) -> list[int]:
        """The tokens that spell one of the texts each, in their order; texts that take more are left out."""
        known = self._single_tokens.get(texts)
        if known is None:
            spelled = [(text, self.tokenizer.tokenize_str(text)) for text in texts]
            known = [ids[0] for text, ids in spelled if len(ids) == 1 and self.bytes_of(ids[0]) == text.encode()]
            self._single_tokens[texts] = known
        return known

    def forget(self) -> None:
        """Compile every grammar anew when it is next asked for: copies of a matcher share its lexer, and where that has
        become too complex for one of them it fails for all."""
        with self._guard:
            self._compiled.clear()

    def matcher(self, grammar: str) -> LLMatcher:
        """A matcher at the grammar's beginning. Raises GrammarError."""
        with self._guard:
            compiled = self._compiled.get(grammar)
            if compiled is not None:
                self._compiled.move_to_end(grammar)
                return compiled.deep_copy()
        from llguidance import LLMatcher

        matcher = LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise GrammarError(_first_lines(matcher.get_error()))
        with self._guard:
            self._compiled[grammar] = matcher
            if len(self._compiled) > GRAMMARS_KEPT:
                self._compiled.popitem(last=False)
        return matcher.deep_copy()


def tokenizer_of(vocabulary: Vocabulary) -> ConstraintTokenizer:
    """The tokenizer of a vocabulary, made when it is first asked for and kept as long as the vocabulary lives."""
    with _guard:
        tokenizer = _tokenizers.get(vocabulary)
        if tokenizer is None:
            eog = frozenset(vocabulary.eog_tokens)
            tokenizer = ConstraintTokenizer(_llguidance_tokenizer(vocabulary, sorted(eog)), vocabulary.n_tokens, eog)
            _tokenizers[vocabulary] = tokenizer
        return tokenizer


SPECIAL = b"\xff"
"""What llguidance wants before the bytes of a token that is not text."""


def _llguidance_tokenizer(vocabulary: Vocabulary, eog_tokens: list[int]) -> LLTokenizer:
    """llguidance's own, over llama.cpp's tokenizer: what its module ``llamacpp`` makes, which imports llama_cpp."""
    from llguidance import LLTokenizer

    control = vocabulary.control_tokens
    user_defined = set(vocabulary.special_tokens.values()) - control
    tokens = []
    for token in range(vocabulary.n_tokens):
        text = vocabulary.piece(token)
        is_special = token in control or (token in user_defined and text.startswith(b"<") and text.endswith(b">"))
        tokens.append(SPECIAL + text if is_special else text)
    return LLTokenizer.from_llamacpp(
        tokens=tokens,
        vocab_ptr=vocabulary.llama_vocab,
        tokenize_fptr=vocabulary.tokenize_address,
        eos_token=eog_tokens or vocabulary.eos_token,
        slices=None,
    )


@cache
def byte_tokenizer() -> ConstraintTokenizer:
    """A vocabulary of single bytes: compiles and follows grammars without any model."""
    from llguidance import LLTokenizer

    tokenizer = LLTokenizer("byte")
    return ConstraintTokenizer(tokenizer, tokenizer.vocab_size, frozenset([tokenizer.eos_token]))


_tokenizers: WeakKeyDictionary[Vocabulary, ConstraintTokenizer] = WeakKeyDictionary()
_guard = threading.Lock()


def _first_lines(message: str) -> str:
    """What is wrong, without the grammar in which it is."""
    return " ".join(SOURCE_LINE.split(message, maxsplit=1)[0].split())[:500]
