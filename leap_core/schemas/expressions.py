"""Regular expressions: the one place where texts are matched, within a bound, in ECMA-262's meaning.

Python's own ``re`` goes back and tries again without end and keeps every other thread waiting meanwhile. Here the
search has a time limit and lets other threads run; where it is up, an engine that never goes back is asked, and where
that one cannot say the expression, the text counts as unchecked and an error says so.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from .grammar_matcher import GrammarError, byte_tokenizer

if TYPE_CHECKING:
    import regex
    from llguidance import LLMatcher

TOKEN = re.compile(
    r"\\p\{(?P<property>[^}]*)\}|\\P\{(?P<other>[^}]*)\}|\\u\{(?P<code>[0-9a-fA-F]+)\}|\\c(?P<control>[A-Za-z])"
    r"|\\(?P<escaped>.)|(?P<group>\(\?<(?![=!]))|(?P<empty>\[\^?\](?=[^\]]*(?:\[|$)))|(?P<plain>.)",
    re.DOTALL,
)
PYTHON_ESCAPES = "dDwWsSbBntrfvuxk0123456789"
FLAGS = re.compile(r"\(\?([imsx]+)\)")
"""Flags at the very beginning: Python's and Java's, not ECMA's, but schemas have them."""

ASCII_CLASSES = {
    "ASCII": r"\x00-\x7f",
    "Alnum": "0-9A-Za-z",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Graph": "!-~",
    "Lower": "a-z",
    "Print": " -~",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r"\t-\r ",
    "Upper": "A-Z",
    "XDigit": "0-9A-Fa-f",
}
"""POSIX's names, as Java knows them."""


RANGES = {
    "d": "0-9",
    "D": r"\x00-/:-\U0010ffff",
    "w": "0-9A-Za-z_",
    "W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    "s": r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
    "S": r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    r"\u3001-\ufefe\uff00-\U0010ffff",
}
"""Classes as ECMA has them: digits and letters of ASCII, white space of Unicode. They are spelled out, because the
engine's ASCII mode cuts Unicode's properties down too."""
WRITTEN_RANGES = {**RANGES, "s": r"\t-\r ", "S": r"\x00-\x08\x0e-\x1f!-\U0010ffff"}
"""What a model may write of them: it would choose rare white space, whose bytes are cheap to it."""


def portable_pattern(pattern: str) -> str:
    """The same expression for ``regex``: ``$`` is the very end, ``\\d`` and ``\\w`` are ASCII, POSIX's names are
    spelled out. Raises ValueError for what it cannot express."""
    if pattern.isascii() and pattern.replace("-", "").replace("_", "").isalnum():
        return pattern
    translated = []
    in_class = False
    flags = FLAGS.match(pattern)
    for match in TOKEN.finditer(pattern, flags.end() if flags else 0):
        kind = match.lastgroup
        text = match[0]
        if kind == "property" or kind == "other":
            translated.append(_property(match[kind], kind == "other", in_class))
        elif kind == "code":
            translated.append(_character(match[kind]))
        elif kind == "control":
            translated.append(f"\\x{ord(match[kind]) % 32:02x}")
        elif kind == "escaped":
            translated.append(_escape(match[kind], in_class))
        elif kind == "group":
            translated.append("(?P<")
        elif kind == "empty" and not in_class:
            translated.append(r"[\s\S]" if "^" in text else r"(?!)")
        elif text == "$" and not in_class:
            translated.append(r"\Z")
        else:
            if text == "[" and in_class:
                text = r"\["
            elif text in "[]":
                in_class = text == "["
            translated.append(text)
    return f"(?{flags[1] if flags else ''}:{''.join(translated)})"


def _character(code: str) -> str:
    """What ``\\u{…}`` means."""
    if len(code) > 8 or int(code, 16) > 0x10FFFF:
        raise ValueError(f"\\u{{{code[:20]}}} is no character")
    return re.escape(chr(int(code, 16)))


def _property(name: str, is_other: bool, in_class: bool) -> str:
    """A class of characters by its Unicode property, or by POSIX's name as Java knows it."""
    ranges = ASCII_CLASSES.get(name)
    if ranges is None:
        return f"\\{'P' if is_other else 'p'}{{{name}}}"
    if in_class and is_other:
        raise ValueError(f"\\P{{{name}}} within brackets")
    return ranges if in_class else f"[{'^' if is_other else ''}{ranges}]"


def _escape(char: str, in_class: bool) -> str:
    if char in RANGES:
        return RANGES[char] if in_class else f"[{RANGES[char]}]"
    if char in "bB" and not in_class:
        return f"(?a:\\{char})"
    if char in PYTHON_ESCAPES and char != "k":
        return "\\" + char
    if char == "k":
        raise ValueError("named references are not supported")
    return re.escape(char) if not in_class else "\\" + char if not char.isalnum() else char


SEARCH_SECONDS = 0.25
"""Longest search of one text; one that does not go back takes microseconds."""
CHECK_SECONDS = 1.0
"""Longest check of one document against one schema, in computing time of its thread: a busy machine refuses nothing."""
MOST_REPEATS = 20_000
"""Positions that an expression may have when its counted repeats are written out, which the engine does."""
MOST_GROUPS_DEEP = 100
TOO_LARGE = f"its groups and repeats written out have more than {MOST_REPEATS} positions, or are nested too deeply"
MOST_CHARACTERS = 20_000
"""One expression has at most these."""
LINE_BREAKS = dict.fromkeys(map(ord, "\n\r\t"))
COUNTED = re.compile(r"\{(\d+)(?:,(\d*))?\}")


class CheckTakesTooLong(ValueError):
    """The time for a check is up; the message says at what."""


class _Deadline(threading.local):
    at: float | None = None


_deadline = _Deadline()


@contextmanager
def bounded_check(seconds: float = CHECK_SECONDS) -> Iterator[None]:
    """Within, checks of this thread end together after so many seconds, with CheckTakesTooLong."""
    outer = _deadline.at
    ends = time.thread_time() + seconds
    _deadline.at = ends if outer is None else min(outer, ends)
    try:
        yield
    finally:
        _deadline.at = outer


def check_time() -> None:
    """Raises CheckTakesTooLong where the time of ``bounded_check`` is up."""
    if _deadline.at is not None and time.thread_time() > _deadline.at:
        raise CheckTakesTooLong("the check takes too long")


def matches(pattern: str, text: str) -> bool:
    """Whether an expression of JSON Schema matches somewhere in the text.

    Raises CheckTakesTooLong where that cannot be found out in time, ValueError for an unusable expression.
    """
    check_time()
    try:
        return compiled(pattern).search(text, timeout=SEARCH_SECONDS, concurrent=True) is not None
    except TimeoutError:
        answer = _matches_in_linear_time(pattern, text)
    if answer is None:
        raise CheckTakesTooLong(f"matching {_shortened(pattern)} takes too long")
    return answer


AT_ONCE = 8
"""Tokens that llguidance, which lets no other thread run, takes in one call."""


def follows(matcher: LLMatcher, tokens: Sequence[int]) -> bool:
    """Whether these are the tokens of a whole text of the matcher's grammar. Raises CheckTakesTooLong: an ambiguous
    grammar takes cubic time."""
    with bounded_check():
        for start in range(0, len(tokens), AT_ONCE):
            check_time()
            part = list(tokens[start : start + AT_ONCE])
            if matcher.try_consume_tokens(part) != len(part):
                return False
    return bool(matcher.is_accepting())


def enforceable(pattern: str) -> str:
    """The same expression for llguidance, with the classes of ASCII that the check of a finished text knows: ``\\d``
    is 0 to 9, and ``\\p{Nd}`` any digit. Raises ValueError for one that is too large."""
    refuse_large(pattern)
    translated, in_class = [], False
    for match in TOKEN.finditer(pattern):
        text = match[0]
        if match.lastgroup == "escaped" and match["escaped"] in WRITTEN_RANGES:
            ranges = WRITTEN_RANGES[match["escaped"]]
            text = ranges if in_class else f"[{ranges}]"
        elif text in ("[", "]"):
            in_class = text == "["
        translated.append(text)
    return "".join(translated)


def refuse_large(pattern: str) -> None:
    """Raises ValueError for an expression whose positions are too many to be followed, wherever it comes from."""
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS} characters")
    if _written_out(pattern) > MOST_REPEATS:
        raise ValueError(TOO_LARGE)


@lru_cache(64)
def compiled(pattern: str) -> regex.Pattern[str]:
    """An expression of JSON Schema, ready for searches; a few are kept. Raises ValueError for one that is unusable or
    too large."""
    import regex

    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS} characters")
    translated = portable_pattern(pattern)
    if _written_out(translated) > MOST_REPEATS:
        raise ValueError(TOO_LARGE)
    try:
        return regex.compile(translated, regex.VERSION0)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def _written_out(pattern: str) -> int:
    """About how many positions an expression has when its counted repeats are written out: groups as often as they may
    come, single characters as often as they must."""
    sizes, last, is_group, place = [0], 0, False, 0
    while place < len(pattern) and sizes[-1] <= MOST_REPEATS and len(sizes) <= MOST_GROUPS_DEEP:
        char = pattern[place]
        counted = COUNTED.match(pattern, place) if char == "{" else None
        if counted is not None:
            fewest, most = int(counted[1][:9]), int((counted[2] or "0")[:9])
            times = max(fewest, most if is_group else 0, 1)
            sizes[-1] += last * (times - 1)
            last *= times
            place = counted.end()
            continue
        is_group = char == ")" and len(sizes) > 1
        if char == "(":
            sizes.append(0)
        elif is_group:
            last = sizes.pop()
            sizes[-1] += last
        else:
            if char == "[":
                place = _end_of_class(pattern, place)
            elif char == "\\":
                place += 1
            last = 1
            sizes[-1] += 1
        place += 1
    return MOST_REPEATS + 1 if len(sizes) > MOST_GROUPS_DEEP else max(sizes)


def _end_of_class(pattern: str, start: int) -> int:
    place = start + 1
    while place < len(pattern) and pattern[place] != "]":
        place += 2 if pattern[place] == "\\" else 1
    return place


def _matches_in_linear_time(pattern: str, text: str) -> bool | None:
    """By llguidance's expressions, which never go back; None where they cannot say the pattern or the text."""
    from llguidance import LLMatcher

    if not text.translate(LINE_BREAKS).isprintable():
        return None
    grammar = LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    try:
        matcher = byte_tokenizer().matcher(grammar)
    except GrammarError:
        return None
    tokens = list(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


def _shortened(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else pattern[:79] + "…")
