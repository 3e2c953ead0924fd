"""TokenConstraints: a grammar, reasoning before it, calls within free text, tokens that must not come."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from typing import TYPE_CHECKING

from ..errors import LeapGenerationError
from .contract import TokenConstraint
from .number_length import LOOKED_AT, JsonPlace, NumberLength
from .shortest_end import shortest_end

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from numpy import bool_, float32
    from numpy.typing import NDArray

    from ..schemas.grammar_matcher import ConstraintTokenizer


WILLING = 1.0
"""How far below the best logit the think tag may be to count as what the model would do: a third as likely."""


class GrammarConstraint:
    """Every token follows a grammar, from the first on. ``numbers``: for a grammar of JSON, how long a number in it may
    become."""

    def __init__(
        self, matcher: LLMatcher, tokenizer: ConstraintTokenizer, *, numbers: NumberLength | None = None
    ) -> None:
        import numpy as np

        self._matcher = matcher
        self._tokenizer = tokenizer
        self._n_tokens = tokenizer.n_tokens
        self._bits = np.zeros((self._n_tokens + 31) // 32, dtype=np.int32)
        self._numbers = numbers
        self.place = JsonPlace() if numbers is not None else None
        """Where in a JSON text the tokens have come to."""

    def apply(self, logits: NDArray[float32]) -> None:
        import numpy as np

        self._check()
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        allowed = np.unpackbits(self._bits.view(np.uint8), count=self._n_tokens, bitorder="little").view(np.bool_)
        if self.place is not None and len(self.place.number) >= LOOKED_AT:
            self._leave_out_digits(allowed, self.place.number)
        logits[: self._n_tokens][~allowed] = -np.inf
        logits[self._n_tokens :] = -np.inf

    def _leave_out_digits(self, allowed: NDArray[bool_], number: bytes) -> None:
        """Leave out the tokens that make a number too long, unless nothing would be left."""
        import numpy as np

        assert self._numbers is not None
        tokens = np.flatnonzero(allowed)
        longer = [t for t in tokens.tolist() if self._numbers.is_passed(number, self._tokenizer.bytes_of(t))]
        if len(longer) < len(tokens):
            allowed[longer] = False

    def forced_tokens(self) -> list[int]:
        return [] if self.finished else list(self._matcher.compute_ff_tokens())

    def accept(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            self._check()
            raise LeapGenerationError(f"the token {token} does not follow the constraint")
        if self.place is not None:
            self.place.feed(self._tokenizer.bytes_of(token))

    def begins_container(self, token: int) -> bool:
        """Whether an object or a list of JSON may begin with a token."""
        return self.place is not None and bool({0x5B, 0x7B} & set(self._tokenizer.bytes_of(token)))

    def shortest_end(self, most: int, after: int | None = None) -> list[int] | None:
        """Tokens that complete the text, as few as can be found, also after one more token; None where more than
        ``most`` are needed."""
        matcher, place = self._matcher.deep_copy(), copy(self.place)
        if after is not None:
            if not matcher.consume_token(after):
                return None
            if place is not None:
                place.feed(self._tokenizer.bytes_of(after))
        return shortest_end(matcher, self._tokenizer, most, place)

    def is_closing(self, token: int) -> bool:
        """Whether a token only ends strings and containers."""
        return not self._tokenizer.bytes_of(token).strip(b'"]}')

    def ends_like(self, token: int, end: int) -> bool:
        """Whether a token spells what ``end`` does, and nothing after it but further ends."""
        spelled, beginning = self._tokenizer.bytes_of(token), self._tokenizer.bytes_of(end)
        return spelled.startswith(beginning) and (token == end or self.is_closing(token))

    @property
    def finished(self) -> bool:
        return bool(self._matcher.is_stopped())

    @property
    def complete(self) -> bool:
        """Whether the text so far satisfies the grammar; more may still be allowed."""
        return bool(self._matcher.is_accepting())

    def _check(self) -> None:
        if self._matcher.is_error():
            self._tokenizer.forget()
            reason = " ".join(self._matcher.get_error().split())[:300]
            raise LeapGenerationError(f"the constraint cannot go on: {reason}")


class AfterReasoning:
    """A constraint that begins after the model's reasoning.

    The first token may open reasoning (``think_starts``), which is free until one of ``think_ends``; otherwise the
    constraint holds at once. It may only where the model, left to itself, would most likely do so: among the few tokens
    that a constraint leaves, the tag would otherwise be tempting to a model that never thinks. ``thinking``: the prompt
    has opened the reasoning already. ``call_start``: a call ends the reasoning, too, for models that forget the tag
    before it.
    """

    def __init__(
        self,
        inner: TokenConstraint,
        think_starts: Collection[int],
        think_ends: Collection[int],
        eog_tokens: Collection[int],
        *,
        thinking: bool,
        call_start: int | None = None,
    ) -> None:
        self._inner = inner
        self._call_start = call_start
        self._starts = list(think_starts)
        self._ends = frozenset(think_ends)
        self._eog = list(eog_tokens)
        self._state = "thinking" if thinking else "first"

    def apply(self, logits: NDArray[float32]) -> None:
        if self._state == "thinking":
            logits[self._eog] = float("-inf")  # a reply that ended here would have no answer
            return
        if self._state == "first":
            least = logits.max() - WILLING
            tempting = [(start, logit) for start in self._starts if (logit := logits[start]) >= least]
            self._inner.apply(logits)
            for start, logit in tempting:
                logits[start] = logit
        else:
            self._inner.apply(logits)

    def forced_tokens(self) -> list[int]:
        return self._inner.forced_tokens() if self._state == "after" else []

    def accept(self, token: int) -> None:
        if self._state == "thinking":
            if token in self._ends:
                self._state = "after"
            elif token == self._call_start:
                self._state = "after"
                self._inner.accept(token)
        elif self._state == "first" and token in self._starts:
            self._state = "thinking"
        else:
            self._state = "after"
            self._inner.accept(token)

    @property
    def end_of_thinking(self) -> list[int]:
        """The token that ends the reasoning, while it goes on."""
        return sorted(self._ends)[:1] if self._state == "thinking" else []

    @property
    def finished(self) -> bool:
        return self._state == "after" and self._inner.finished


class CallsConstraint:
    """From a start marker to the end marker, calls follow a grammar.

    ``begin`` makes the constraint for what comes after the start marker, the end marker included. ``required``: the
    reply begins with a call. ``otherwise`` holds when it does not begin with one (None: free text). ``repeat``: a call
    may follow a call. A free text may have calls anywhere.
    """

    def __init__(
        self,
        start: int,
        begin: Callable[[], GrammarConstraint],
        eog_tokens: Collection[int],
        *,
        required: bool = False,
        otherwise: TokenConstraint | None = None,
        repeat: bool = True,
    ) -> None:
        self._start = start
        self._begin = begin
        self._eog = list(eog_tokens)
        self._required = required
        self._otherwise = otherwise
        self._repeat = repeat
        self._calls: GrammarConstraint | None = None
        self._state = "before"

    def apply(self, logits: NDArray[float32]) -> None:
        if self._state == "inside":
            assert self._calls is not None
            self._calls.apply(logits)
        elif self._state == "before" and self._required:
            keep_only(logits, [self._start])
        elif self._state == "before" and self._otherwise is not None:
            start = logits[self._start]
            self._otherwise.apply(logits)
            logits[self._start] = start
        elif self._state == "otherwise":
            assert self._otherwise is not None
            self._otherwise.apply(logits)
        elif self._state == "after":
            keep_only(logits, [*self._eog, self._start] if self._repeat else self._eog)

    def forced_tokens(self) -> list[int]:
        if self._state == "inside":
            assert self._calls is not None
            return self._calls.forced_tokens()
        if self._state == "otherwise":
            assert self._otherwise is not None
            return self._otherwise.forced_tokens()
        return []

    def accept(self, token: int) -> None:
        if self._state == "inside":
            assert self._calls is not None
            self._calls.accept(token)
            if self._calls.finished:
                free = not self._required and self._otherwise is None
                self._state = "before" if free else "after"
        elif token == self._start and self._state != "otherwise":
            self._calls = self._begin()
            self._state = "inside"
        elif self._otherwise is not None:
            self._state = "otherwise"
            self._otherwise.accept(token)

    @property
    def finished(self) -> bool:
        if self._state == "otherwise":
            return self._otherwise is not None and self._otherwise.finished
        return self._state == "after" and not self._repeat


class ForbiddenTokens:
    """Some tokens never come."""

    def __init__(self, tokens: Collection[int]) -> None:
        self._tokens = list(tokens)

    def apply(self, logits: NDArray[float32]) -> None:
        logits[self._tokens] = float("-inf")

    def forced_tokens(self) -> list[int]:
        return []

    def accept(self, token: int) -> None:
        """Nothing depends on what came before."""

    finished = False


def keep_only(logits: NDArray[float32], tokens: list[int]) -> None:
    """Leave only these tokens."""
    kept = logits[tokens]
    logits[:] = float("-inf")
    logits[tokens] = kept
