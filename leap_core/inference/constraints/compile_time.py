"""Grammars that llguidance may compile for minutes are compiled in a child process first, which can be ended.

The intersection of twenty expressions takes half a minute, ``multipleOf: 999983`` three. Nothing stops it in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...schemas.expressions import CheckTakesTooLong
from ...schemas.grammar_matcher import ConstraintTokenizer, byte_tokenizer
from ...system.child import answers_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

TASK = "leap_core.inference.constraints.compile_time:compile_in_child"
CPU_SECONDS, WALL_SECONDS = 3, 20
MEMORY_BYTES = 2 * 1024**3
MOST_JOINED = 8
"""Expressions or alternatives that are intersected in no time, whatever they are."""
LARGE_DIVISOR = re.compile(r'"multipleOf\\?": ?(?:\d{5}|\d*\.\d{4}|[\d.]+[eE])')


def matcher_in_time(tokenizer: ConstraintTokenizer, grammar: str) -> LLMatcher:
    """``ConstraintTokenizer.matcher``. Raises CheckTakesTooLong for a grammar that takes more than CPU_SECONDS, and
    GrammarError."""
    if _may_take_long(grammar) and _takes_long(grammar):
        raise CheckTakesTooLong(f"compiling it takes more than {CPU_SECONDS} s")
    return tokenizer.matcher(grammar)


def _may_take_long(grammar: str) -> bool:
    patterns = grammar.count('"pattern') + grammar.count('"format')
    joined = patterns * ('"$ref' in grammar)
    if '"allOf' in grammar:
        joined = patterns + grammar.count('"anyOf') + 2 * grammar.count('"multipleOf')
    return max(joined, grammar.count("&")) > MOST_JOINED or LARGE_DIVISOR.search(grammar) is not None


@lru_cache(maxsize=64)
def _takes_long(grammar: str) -> bool:
    """Whether a child that compiles it reaches a limit of time or memory; False where none can be started."""
    request = {"task": TASK, "grammar": grammar, "cpu_seconds": CPU_SECONDS, "memory_bytes": MEMORY_BYTES}
    try:
        answers, code, _ = answers_of(request, WALL_SECONDS)
    except OSError:
        return False
    if answers:
        return bool(answers[-1].get("error", {}).get("memory"))
    return code is None or code < 0  # a signal: this process would have crashed too


def compile_in_child(request: Mapping[str, Any], _answer: Callable[[Mapping[str, Any]], None]) -> bool:
    """Compile the ``grammar`` of the request, whether it can be used or not."""
    from llguidance import LLMatcher

    LLMatcher(byte_tokenizer().tokenizer, request["grammar"], log_level=0)
    return True
