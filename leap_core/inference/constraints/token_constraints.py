"""TokenConstraints: a grammar, reasoning before it, calls with and without markers, tokens that must not come.

A grammar of numbers has no end: a small model writes digits until its tokens are used up. Beyond these bounds digits
are left out as long as anything else may follow, so that a schema that asks for more gets it.

At each place what closes something is tried first, then the smallest values, then the rest in several orders, because
a pattern may loop over some characters and end only after others.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Collection, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import LeapGenerationError, LeapSchemaError
from ...system.dataclass import dataclass
from .masks import allowed_of, most_by_mask

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from numpy import float32, int32, uint8
    from numpy.typing import NDArray

    from ...schemas.grammar_matcher import ConstraintTokenizer


class TokenConstraint(Protocol):
    """Decides which tokens may come next in one sequence. For each position: ``forced_tokens`` or ``apply``, then
    ``accept`` with what was chosen."""

    def apply(self, logits: NDArray[float32]) -> None:
        """Set the logits (shape [vocabulary]) of tokens that must not come next to minus infinity, in place."""
        ...

    @property
    def next_grammar(self) -> GrammarConstraint | None:
        """The grammar whose mask ``apply`` takes next, if any; several may be filled at once."""
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next, so that none of them needs sampling; usually none."""
        ...

    def accept(self, token: int) -> None:
        """Take note of the next token, forced ones too. Raises LeapGenerationError when it was not allowed."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing may follow but the end."""
        ...


def _nothing_wrong(_text: str) -> list[str]:
    return []


@dataclass(frozen=True)
class CompiledConstraint:
    """A constraint made ready for one reply.

    ``constraint``: None when nothing is to be enforced while generating. ``warnings``: what it cannot enforce.
    ``validate`` lists what is wrong with the finished text, "" positions first; empty when it is right.
    ``exact``: whether all that ``validate`` checks is also enforced, so that only a text cut short can be wrong.
    ``whole``: whether a text that was cut where it could have continued is wrong, as half a number is.
    ``calls``: whether it has to call a function. ``remarks``: what of a right text is not in its source.
    """

    constraint: TokenConstraint | None
    warnings: tuple[str, ...] = ()
    validate: Callable[[str], list[str]] = _nothing_wrong
    exact: bool = True
    whole: bool = False
    calls: bool = False
    remarks: Callable[[str], list[str]] = _nothing_wrong

    def problems_of_cut(self, text: str, called: bool) -> list[str]:
        """What is wrong with a reply that was cut."""
        if self.calls:
            return [] if called else ["no call is complete"]
        open_end = self.whole and self.constraint is not None and not self.constraint.finished
        return self.validate(text) or (["more could have followed"] if open_end else [])


MOST_DIGITS = 19
"""An integer, or the part before the point, has at most these digits: all 64-bit integers fit."""
MOST_CHARACTERS, MOST_EXPONENT_DIGITS = 25, 2
"""A number with sign, point and exponent has at most these: doubles fit as usually written, and none is too large."""
LOOKED_AT = 10
"""Characters of a number from which on the tokens that may follow are looked at; few tokens have as many digits as are
missing then."""
STARTS, INSIDE = b"-0123456789", b"+-.0123456789eE"


class JsonPlace:
    """What is open at the end of a JSON text: a string, a number or neither."""

    def __init__(self) -> None:
        self.in_string = False
        self.number = b""
        self._escaped = False

    def feed(self, text: bytes) -> None:
        """Continue over the next bytes."""
        for byte in text:
            if self.in_string:
                if self._escaped:
                    self._escaped = False
                elif byte == 0x5C:
                    self._escaped = True
                elif byte == 0x22:
                    self.in_string = False
            elif byte == 0x22:
                self.in_string, self.number = True, b""
            elif byte in (INSIDE if self.number else STARTS):
                self.number += bytes((byte,))
            else:
                self.number = b""


class NumberLength:
    """The bounds for one schema: at least these, and what the numbers in the schema itself need."""

    def __init__(self, document: Any = None) -> None:
        lengths = [_lengths(text.encode()) for text in _numbers(document)]
        self._digits = max([MOST_DIGITS, *(digits for digits, _, _ in lengths)])
        self._exponent = max([MOST_EXPONENT_DIGITS, *(exponent for _, exponent, _ in lengths)])
        self._characters = max([MOST_CHARACTERS, self._digits + 1, *(whole for _, _, whole in lengths)])

    def is_passed(self, number: bytes, following: bytes) -> bool:
        """Whether a number would be too long when ``following`` comes after what there is of it."""
        run = len(following) - len(following.lstrip(INSIDE))
        if not run:
            return False
        whole = number + following[:run]
        digits, exponent, characters = _lengths(whole)
        ends_open = whole[-1:] in b"+-.eE"
        return digits > self._digits or exponent > self._exponent or characters + ends_open > self._characters


def _lengths(number: bytes) -> tuple[int, int, int]:
    """Digits before the point, digits of the exponent, and all characters."""
    mantissa, _, exponent = number.lower().partition(b"e")
    return len(mantissa.partition(b".")[0].lstrip(b"-")), len(exponent.lstrip(b"+-")), len(number)


def _numbers(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _numbers(part)
    elif isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield repr(value)


CLOSING = ("}", "]", '""', "{}", "[]", "null", "0", "true", "false")
"""What ends something, or is a small value."""
QUOTE = ('"',)
SEPARATORS = ("@", "://", ":", "/", "-", ".", " ", ",")
DIGITS, LETTERS = tuple("0123456789"), tuple("TZDaA" + string.ascii_letters)
ORDERS = ((*SEPARATORS, *DIGITS, *LETTERS), (*SEPARATORS, *LETTERS, *DIGITS), (*DIGITS, *LETTERS, *SEPARATORS))
BY_CHANCE = (*SEPARATORS, "0", "1", "9", "a", "A", *string.punctuation)
FEW, MANY = 16, 1 << 30
CHANCES = 8
"""Ways that are tried by chance where no order leads to an end."""


def shortest_end(
    matcher: LLMatcher, tokenizer: ConstraintTokenizer, most: int, place: JsonPlace | None = None
) -> list[int] | None:
    """At most ``most`` tokens after which the text is complete; None where no such way was found. ``place``: where in a
    JSON text it continues."""
    for attempt in range(len(ORDERS) + CHANCES):
        texts = ORDERS[attempt] if attempt < len(ORDERS) else BY_CHANCE
        draw = random.Random(attempt) if attempt >= len(ORDERS) else None
        way = _Search(tokenizer, texts, draw).way(matcher.deep_copy(), most, copy(place) or JsonPlace())
        if way is not None:
            return way
    return None


class _Search:
    """One way to look for an end. ``texts``: what is tried where nothing closes, in this order or drawn."""

    def __init__(self, tokenizer: ConstraintTokenizer, texts: tuple[str, ...], draw: random.Random | None) -> None:
        import numpy as np

        self._tokenizer = tokenizer
        self._draw = draw
        self._bits = np.zeros((tokenizer.n_tokens + 31) // 32, dtype=np.int32)
        self._closing, self._closing_brackets, self._quote, self._others = (
            np.array(tokenizer.single_tokens(each), dtype=np.int64) for each in (CLOSING, CLOSING[:2], QUOTE, texts)
        )

    def way(self, matcher: LLMatcher, most: int, place: JsonPlace) -> list[int] | None:
        """The tokens to the end; None after ``most``."""
        way: list[int] = []
        while not matcher.is_accepting():
            following = list(matcher.compute_ff_tokens())
            if not following:
                token = self._choice(matcher, place)
                following = [] if token is None else [token]
            if not following or len(way) + len(following) > most:
                return None
            for token in following:
                if not matcher.consume_token(token):
                    return None
                way.append(token)
                place.feed(self._tokenizer.bytes_of(token))
        return way

    def _choice(self, matcher: LLMatcher, place: JsonPlace) -> int | None:
        import numpy as np

        matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        closing = self._closing_brackets if place.number else self._closing  # a 0 would go on with the number
        for tokens in (self._quote,) if place.in_string else (closing, self._quote):
            ends = tokens[allowed_of(self._bits, tokens)]
            if len(ends):
                return int(ends[0])
        few = np.flatnonzero(np.unpackbits(self._bits.view(np.uint8), bitorder="little"))
        if self._draw is None and 1 < len(few) <= FEW and all(map(self._is_word, few.tolist())):  # values of an enum
            return int(min(few.tolist(), key=lambda token: self._forced_after(matcher, token)))
        more = self._others[allowed_of(self._bits, self._others)]
        if not len(more):
            more = few
        if not len(more):
            return None
        return int(more[0] if self._draw is None else self._draw.choice(more.tolist()))

    def _is_word(self, token: int) -> bool:
        return self._tokenizer.bytes_of(token)[:1].isalpha()

    def _forced_after(self, matcher: LLMatcher, token: int) -> int:
        """How many tokens follow one of necessity."""
        after = matcher.deep_copy()
        return len(after.compute_ff_tokens()) if after.consume_token(token) else MANY


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
        self._is_filled = False
        self._numbers = numbers
        self.place = JsonPlace() if numbers is not None else None
        """Where in a JSON text the tokens have come to."""

    def apply(self, logits: NDArray[float32]) -> None:
        import numpy as np

        self._check()
        if not self._is_filled:
            self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._is_filled = False
        mask = self._bits.view(np.uint8)
        inside = logits[: self._n_tokens]
        np.minimum(inside, most_by_mask().take(mask, axis=0).reshape(-1)[: self._n_tokens], out=inside)
        logits[self._n_tokens :] = -np.inf
        if self.place is not None and len(self.place.number) >= LOOKED_AT:
            logits[self._digits_too_many(mask, self.place.number)] = -np.inf

    def _digits_too_many(self, mask: NDArray[uint8], number: bytes) -> list[int]:
        """The allowed tokens that make a number too long, unless nothing would be left."""
        import numpy as np

        assert self._numbers is not None
        tokens = np.flatnonzero(np.unpackbits(mask, count=self._n_tokens, bitorder="little"))
        longer = [t for t in tokens.tolist() if self._numbers.is_passed(number, self._tokenizer.bytes_of(t))]
        return longer if len(longer) < len(tokens) else []

    @property
    def next_grammar(self) -> GrammarConstraint:
        return self

    @property
    def matcher(self) -> LLMatcher | None:
        return None if self._matcher.is_error() else self._matcher

    def take_mask(self, bits: NDArray[int32]) -> None:
        self._bits, self._is_filled = bits, True

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

    @property
    def end(self) -> int:
        """A token that ends the answer."""
        return min(self._tokenizer.eog_tokens)

    def ends_answer(self, token: int) -> bool:
        """Whether a token is one that ends the answer."""
        return token in self._tokenizer.eog_tokens

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
            reason = " ".join(self._matcher.get_error().partition("<state>")[0].split())[:300]
            raise LeapGenerationError(f"the constraint cannot continue: {reason}")


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

    @property
    def next_grammar(self) -> GrammarConstraint | None:
        return None if self._state == "thinking" else self._inner.next_grammar

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
        """The token that ends the reasoning, while it continues."""
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

    @property
    def next_grammar(self) -> GrammarConstraint | None:
        if self._state == "inside":
            return self._calls
        is_other = self._state == "otherwise" or (self._state == "before" and not self._required)
        return self._otherwise.next_grammar if is_other and self._otherwise is not None else None

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


BARE_CALL = re.compile(
    rb'\s{0,20}(?:```(?:json|tool_calls?)?\s{0,20})?\[?\s{0,20}\{\s{0,20}"name"\s{0,20}:\s{0,20}"([^"\\]*)"\s{0,20},\s{0,20}"(arguments|parameters)"\s{0,20}:'
)
MOST_BEFORE = 300
"""Bytes within which a reply shows whether it is a JSON call."""


class BareCallConstraint:
    """A reply that begins with a JSON call of one of ``names``, without markers, follows the grammar of such calls.

    ``begin`` makes the constraint for the whole reply; ``bytes_of`` gives a token's text; ``inner`` holds for a reply
    that begins otherwise.
    """

    def __init__(
        self,
        names: Collection[str],
        begin: Callable[[], GrammarConstraint],
        bytes_of: Callable[[int], bytes],
        inner: TokenConstraint | None,
    ) -> None:
        self._names = frozenset(name.encode() for name in names)
        self._begin = begin
        self._bytes_of = bytes_of
        self._inner = inner
        self._tokens: list[int] | None = []
        self._text = b""
        self._calls: GrammarConstraint | None = None

    @property
    def _active(self) -> TokenConstraint | None:
        return self._calls or self._inner

    def apply(self, logits: NDArray[float32]) -> None:
        if self._active is not None:
            self._active.apply(logits)

    @property
    def next_grammar(self) -> GrammarConstraint | None:
        return self._active.next_grammar if self._active is not None else None

    def forced_tokens(self) -> list[int]:
        return self._active.forced_tokens() if self._active is not None else []

    def accept(self, token: int) -> None:
        if self._active is not None:
            self._active.accept(token)
        if self._tokens is None:
            return
        self._tokens.append(token)
        self._text += self._bytes_of(token)
        found = BARE_CALL.match(self._text)
        if found is not None and found[1] in self._names:
            self._calls = self._following(self._tokens)
        begins = self._text.lstrip()[:1]
        if found is not None or len(self._text) > MOST_BEFORE or begins not in (b"", b"`", b"[", b"{"):
            self._tokens = None

    def _following(self, tokens: list[int]) -> GrammarConstraint | None:
        """The grammar after the tokens; None where they do not follow it, or it is too large."""
        try:
            calls = self._begin()
            for token in tokens:
                calls.accept(token)
        except (LeapGenerationError, LeapSchemaError):
            return None
        return calls

    @property
    def finished(self) -> bool:
        return self._active is not None and self._active.finished


class ForbiddenTokens:
    """Some tokens never come."""

    def __init__(self, tokens: Collection[int]) -> None:
        self._tokens = list(tokens)

    next_grammar = None

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
