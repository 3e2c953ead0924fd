"""From options and functions to what holds one reply: the constraint on its tokens and the check of its text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from ...conversation.calls.dialects import CHANNELS, RECIPIENTS
from ...conversation.options import check_tool_choice
from ...errors import LeapOptionsError, LeapSchemaError
from ...schemas.expressions import CheckTakesTooLong, enforceable, follows
from ...schemas.gbnf import as_lark
from ...schemas.grammar_matcher import (
    ConstraintTokenizer,
    GrammarError,
    Vocabulary,
    byte_tokenizer,
    reasoning_tags,
    tokenizer_of,
)
from ...schemas.grounding import Grounding, source_of, without_keyword
from ...schemas.json_schema import JsonSchema, check_schema, read_schema
from .call_grammars import HERMES, STRICTNESSES, Strictness, bare_grammar, json_grammar, pythonic_grammar, unenforced
from .compile_time import matcher_in_time
from .grammars import Freedom, enforce
from .token_constraints import (
    AfterReasoning,
    BareCallConstraint,
    CallsConstraint,
    CompiledConstraint,
    ForbiddenTokens,
    GrammarConstraint,
    NumberLength,
    TokenConstraint,
    keep_only,
)

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from numpy import float32
    from numpy.typing import NDArray

    from ...conversation.calls import LeapFunction
    from ...conversation.calls.dialects import Dialect
    from ...conversation.options import FunctionCallParser, GenerationOptions

RESERVE = 16
"""Tokens beyond the shortest end, and the longest one so far, from which on every token is looked at before it is
taken."""


class FinishingConstraint:
    """A constraint that takes the shortest way to its end when ``room`` tokens are used up.

    ``grammar`` is the part of ``constraint`` that has the shape. Near the end the model's likeliest token is taken as
    long as the shape can still be ended after it, so that an answer which fits is whole. An answer whose end is further
    away than its room is not helped: it is cut as it would be.
    """

    def __init__(self, constraint: TokenConstraint, grammar: GrammarConstraint, room: int) -> None:
        self._constraint = constraint
        self._grammar = grammar
        self.room = room
        self._left = room
        self._longest = 0
        self._look_at = room
        self._way: list[int] | None = None
        """The shortest end, where it is near."""
        self._ended = False
        self.cut = False
        """Whether the end was taken because of the room, and not by the model."""

    def apply(self, logits: NDArray[float32]) -> None:
        self._look()
        self._constraint.apply(logits)
        likeliest = int(logits.argmax())
        if self._way is None:
            if not self._grammar.begins_container(likeliest) or self._leaves_an_end(likeliest):
                return None
            self._way = self._grammar.shortest_end(self._left)
            if self._way is None:
                return None
        elif self._leaves_an_end(likeliest):
            return keep_only(logits, [likeliest])
        self.cut = True
        end = self._way[0] if self._way else self._grammar.end
        logits[end] = 0.0
        return keep_only(logits, [end])

    def _leaves_an_end(self, token: int) -> bool:
        """Whether the shape can be ended in the tokens that are left after this one."""
        thinking = self._end_of_thinking()
        if thinking:  # what is thought moves no end
            return self._way is None or token == self._way[0] or len(self._way) < self._left
        if self._grammar.ends_answer(token):
            return True
        return self._grammar.shortest_end(self._left - 1, after=token) is not None

    def _end_of_thinking(self) -> list[int]:
        return self._constraint.end_of_thinking if isinstance(self._constraint, AfterReasoning) else []

    @property
    def next_grammar(self) -> GrammarConstraint | None:
        return self._constraint.next_grammar

    def forced_tokens(self) -> list[int]:
        return self._constraint.forced_tokens()

    def accept(self, token: int) -> None:
        self._left -= 1
        self._way = None
        self._constraint.accept(token)
        if self._grammar.begins_container(token):
            self._look_at = self._left  # the end is further away now
        self._look()

    @property
    def finished(self) -> bool:
        return self._ended or self._constraint.finished

    def _look(self) -> None:
        """Find out whether the shortest end is near."""
        if self._way is not None or self._left > self._look_at or self.finished:
            return
        end = self._grammar.shortest_end(self._left)
        if end is None:
            self._look_at = self._left - RESERVE
            return
        way = [*self._end_of_thinking(), *end]
        self._longest = max(self._longest, len(way))
        begins = len(way) + self._longest + RESERVE
        self._look_at = self._left - max(1, (self._left - begins) // 2)
        if self._left <= begins:
            self._way = way
        if not way and self._left <= 0:
            self._ended = self.cut = True


RULE = re.compile(r"(?m)^[ \t]*[?!]?[A-Za-z_]\w*(\[[^\]\n]*\])?\s*:")
LARK_EXPRESSION = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/((?:\\.|[^/\\\n])+)/')
"""A string, a comment, or the expression between slashes, which alone is a group."""
LONGEST_CHOICE, LONGEST_GRAMMAR = 20_000, 200_000
"""Characters: longer ones take a second and more, or more than llguidance's lexer has space for."""
MOST_GRAMMAR_RULES = 1000
"""llguidance reads a chain of rules by recursion, and a full stack ends the process."""


def _dialect_of(parser: FunctionCallParser) -> Dialect | None:
    """The dialect whose JSON calls can be enforced; None for LFM2's calls and for another's parser."""
    return HERMES if parser.name == "hermes" else getattr(parser, "dialect", None)


def compile_constraint(
    options: GenerationOptions,
    functions: Sequence[LeapFunction],
    vocabulary: Vocabulary,
    *,
    parser: FunctionCallParser | None = None,
    reasoning_open: bool = False,
    room: int | None = None,
) -> CompiledConstraint | None:
    """What ``options`` and the declared functions ask of a reply; None when nothing.

    ``parser``: the style of calls; None means that calls are not looked for. ``reasoning_open``: the prompt has opened
    the reasoning. ``room``: the tokens that the reply may have, within which ``complete_json`` ends it. Raises
    LeapSchemaError for a schema, expression or grammar that cannot be used, and LeapOptionsError for a tool_choice that
    names no function.
    """
    choice = _tool_choice(options, functions, parser)
    shape = _shape(options, vocabulary)
    may_be_bare = choice == "auto" and shape is None
    choice = _enforced(choice, parser)
    if shape is None and choice is None and not may_be_bare:
        return None
    constraint, warnings = (None, ()) if shape is None else (shape.constraint, shape.warnings)
    call_start = None
    if choice is not None and parser is not None:
        constraint, more = _with_calls(constraint, choice, functions, vocabulary, parser)
        warnings = (*warnings, *more)
        is_marked = isinstance(constraint, CallsConstraint)
        call_start = vocabulary.special_tokens[parser.start_marker] if is_marked else None
    if may_be_bare:
        warnings = warnings if choice is not None else check_calls(functions)
        constraint = _with_bare_calls(constraint, functions, vocabulary)
    if constraint is not None and not isinstance(constraint, ForbiddenTokens):
        constraint = _after_reasoning(constraint, vocabulary, reasoning_open, call_start)
    calls = choice not in (None, "auto", "none")
    grammar = shape.constraint if shape is not None and call_start is None and not calls else None
    if options.complete_json and room is not None and constraint is not None and isinstance(grammar, GrammarConstraint):
        constraint = FinishingConstraint(constraint, grammar, room)
    return replace(shape or CompiledConstraint(None), constraint=constraint, warnings=warnings, calls=calls)


def _enforced(choice: str | None, parser: FunctionCallParser | None) -> str | None:
    """The choice as far as a grammar can hold it in this style of calls. Raises LeapOptionsError."""
    if parser is None or parser.name == "lfm" or choice in (None, "none"):
        return choice
    dialect = _dialect_of(parser)
    if dialect is None and choice != "auto":
        raise LeapOptionsError("tool_choice", f"calls in the style {parser.name!r} cannot be enforced")
    return None if dialect is None or (choice == "auto" and not dialect.is_json) else choice


def _shape(options: GenerationOptions, vocabulary: Vocabulary) -> CompiledConstraint | None:
    tokenizer = partial(tokenizer_of, vocabulary)
    if options.json_schema_constraint is not None:
        freedom = Freedom(options.additional_properties, options.any_whitespace)
        schema, source = read_schema(options.json_schema_constraint), options.grounding
        return _schema_constraint(schema, tokenizer(), freedom, source if isinstance(source, str) else None)
    if options.regex_constraint is not None:
        return _regex_constraint(options.regex_constraint, tokenizer())
    if options.choices_constraint is not None:
        return _choices_constraint(options.choices_constraint, tokenizer())
    if options.grammar_constraint is not None:
        return _lark_constraint(options.grammar_constraint, tokenizer())
    return None


def _schema_constraint(
    schema: JsonSchema, tokenizer: ConstraintTokenizer, freedom: Freedom, source: str | None
) -> CompiledConstraint:
    """``source``: the text that values are limited to; None for any values."""
    grounding = None if source is None else Grounding(schema.document, source_of(source))
    document = without_keyword(schema.document) if grounding is None else grounding.schema
    asked = schema if document is schema.document else replace(schema, document=document)
    enforced = enforce(asked, tokenizer, freedom)
    matcher = tokenizer.matcher(enforced.grammar)
    constraint = GrammarConstraint(matcher, tokenizer, numbers=NumberLength(document))
    compiled = CompiledConstraint(constraint, enforced.warnings, schema.problems, exact=enforced.exact, whole=True)
    if grounding is None:
        return compiled
    return replace(compiled, warnings=(*compiled.warnings, *grounding.notes), remarks=grounding.remarks_on)


def _regex_constraint(pattern: str, tokenizer: ConstraintTokenizer) -> CompiledConstraint:
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_regex(enforceable(pattern))
        matcher = tokenizer.matcher(grammar)
    except (GrammarError, ValueError) as error:
        raise LeapSchemaError(f"the regular expression cannot be used: {error}") from None
    return CompiledConstraint(
        GrammarConstraint(matcher, tokenizer), validate=_grammar_check(tokenizer, grammar, "the regular expression")
    )


def _choices_constraint(choices: Sequence[str], tokenizer: ConstraintTokenizer) -> CompiledConstraint:
    from llguidance import LLMatcher

    if any(len(choice) > LONGEST_CHOICE for choice in choices):
        raise LeapSchemaError(f"one of the choices has more than {LONGEST_CHOICE} characters")
    listed = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    try:  # a terminal: rules are bounded in number
        matcher = tokenizer.matcher(LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {listed}"))
    except (GrammarError, ValueError) as error:
        raise LeapSchemaError(f"the choices cannot be used: {error}") from None

    def validate(text: str) -> list[str]:
        return [] if text in choices else [f"{text!r} is not one of the choices"]

    return CompiledConstraint(GrammarConstraint(matcher, tokenizer), validate=validate, whole=True)


def lark_matcher(lark: str, tokenizer: ConstraintTokenizer) -> tuple[str, LLMatcher]:
    """llguidance's grammar of a grammar in Lark's or llama.cpp's notation, and a matcher at its beginning. Raises
    LeapSchemaError."""
    from llguidance import LLMatcher

    if len(lark) > LONGEST_GRAMMAR:
        raise LeapSchemaError(f"the grammar has more than {LONGEST_GRAMMAR} characters")
    read = as_lark(lark)
    rules = len(RULE.findall(read))
    if rules > MOST_GRAMMAR_RULES:
        raise LeapSchemaError(f"the grammar has {rules} rules; at most {MOST_GRAMMAR_RULES} can be enforced")
    try:
        grammar = LLMatcher.grammar_from_lark(LARK_EXPRESSION.sub(_enforceable, read))
        return grammar, matcher_in_time(tokenizer, grammar)
    except (GrammarError, ValueError) as error:
        raise LeapSchemaError(f"the grammar cannot be used: {error}") from None


def _lark_constraint(lark: str, tokenizer: ConstraintTokenizer) -> CompiledConstraint:
    grammar, matcher = lark_matcher(lark, tokenizer)
    return CompiledConstraint(
        GrammarConstraint(matcher, tokenizer), validate=_grammar_check(tokenizer, grammar, "the grammar")
    )


def _enforceable(literal: re.Match[str]) -> str:
    return literal[0] if literal[1] is None else "/" + re.sub(r"(?<!\\)/", r"\/", enforceable(literal[1])) + "/"


def _grammar_check(tokenizer: ConstraintTokenizer, grammar: str, name: str) -> Callable[[str], list[str]]:
    """A check of a finished text by the grammar that constrained it."""

    def validate(text: str) -> list[str]:
        try:
            if follows(tokenizer.matcher(grammar), tokenizer.tokenizer.tokenize_str(text)):
                return []
        except CheckTakesTooLong as error:
            return [f"the text was not checked against {name}: {error}"]
        return [f"the text does not satisfy {name}"]

    return validate


def _tool_choice(
    options: GenerationOptions, functions: Sequence[LeapFunction], parser: FunctionCallParser | None
) -> str | None:
    """auto, required, none or a function's name; None when there is nothing to hold to it."""
    choice = options.tool_choice
    names = [function.name for function in functions]
    if choice in (None, "auto"):
        return "auto" if functions and parser is not None else None
    assert choice is not None
    if choice == "none":
        return "none" if parser is not None else None
    if parser is None:
        raise LeapOptionsError("tool_choice", f"{choice!r} needs a function call parser")
    check_tool_choice(choice, names)
    return choice


def _with_calls(
    shape: TokenConstraint | None,
    choice: str,
    functions: Sequence[LeapFunction],
    vocabulary: Vocabulary,
    parser: FunctionCallParser,
) -> tuple[TokenConstraint | None, tuple[str, ...]]:
    """The constraint on text and calls together."""
    start = vocabulary.special_tokens.get(parser.start_marker)
    if choice == "none":
        return (shape or (ForbiddenTokens([start]) if start is not None else None)), ()
    tokenizer = tokenizer_of(vocabulary)
    named = choice not in ("auto", "required")
    allowed = [function for function in functions if function.name == choice] if named else list(functions)
    end = parser.end_marker if parser.end_marker in vocabulary.special_tokens else json.dumps(parser.end_marker)
    dialect = _dialect_of(parser)
    prefix = "" if start is not None else json.dumps(parser.start_marker)
    if dialect is None:
        write: Callable[..., str] = partial(pythonic_grammar, allowed, end, many=not named)
    elif not dialect.start or dialect in (CHANNELS, RECIPIENTS):  # their markers are no text
        write, prefix = partial(bare_grammar, allowed, many=not named), ""
    else:
        special = vocabulary.special_tokens
        write = partial(json_grammar, allowed, end, dialect=dialect, special_tokens=special, many=not named)
    from llguidance import LLMatcher

    grammar, warnings = _compiled_calls(
        allowed, tokenizer, lambda strictness: _prefixed(write(strictness=strictness), prefix)
    )
    grammar = LLMatcher.grammar_from_lark(grammar)
    if start is None:
        if choice == "auto":
            return shape, warnings
        return GrammarConstraint(tokenizer.matcher(grammar), tokenizer), warnings
    constraint = CallsConstraint(
        start,
        lambda: GrammarConstraint(tokenizer.matcher(grammar), tokenizer),
        vocabulary.eog_tokens,
        required=choice != "auto",
        otherwise=shape if choice == "auto" else None,
        repeat=dialect is not None and dialect.separator is None and not named,
    )
    return constraint, warnings


def _with_bare_calls(
    constraint: TokenConstraint | None, functions: Sequence[LeapFunction], vocabulary: Vocabulary
) -> TokenConstraint:
    """The constraint, and beside it the grammar of JSON calls without markers for a reply that begins with one: it is
    compiled when one does."""
    tokenizer = tokenizer_of(vocabulary)

    def begin() -> GrammarConstraint:
        from llguidance import LLMatcher

        lark, _ = _compiled_calls(
            functions, tokenizer, lambda strictness: bare_grammar(functions, strictness=strictness)
        )
        return GrammarConstraint(tokenizer.matcher(LLMatcher.grammar_from_lark(lark)), tokenizer)

    return BareCallConstraint([function.name for function in functions], begin, tokenizer.bytes_of, constraint)


def check_calls(functions: Sequence[LeapFunction]) -> tuple[str, ...]:
    """What of the functions' parameters calls cannot be held to. Raises LeapSchemaError for unusable parameters."""
    _, warnings = _compiled_calls(
        functions,
        byte_tokenizer(),
        lambda strictness: pythonic_grammar(functions, '"<end>"', many=True, strictness=strictness),
    )
    return warnings


def problems_of_calls(functions: Sequence[LeapFunction]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why the functions' parameters cannot be used, and what of them calls cannot be held to."""
    try:
        return (), check_calls(functions)
    except LeapSchemaError as error:
        return (error.message,), ()


def _compiled_calls(
    functions: Sequence[LeapFunction], tokenizer: ConstraintTokenizer, write: Callable[[Strictness], str]
) -> tuple[str, tuple[str, ...]]:
    """The strictest grammar of the calls that can be had, with warnings of what it leaves out."""
    from llguidance import LLMatcher

    for function in functions:
        _check_parameters(function.name, json.dumps(function.arguments_schema))
    reason = ""
    for strictness in STRICTNESSES:
        grammar = write(strictness)
        try:
            matcher = matcher_in_time(tokenizer, LLMatcher.grammar_from_lark(grammar))
        except (GrammarError, CheckTakesTooLong) as error:
            reason = reason or str(error)
            continue
        left_out = [*matcher.get_grammar_warnings(), *unenforced(functions, strictness)]
        if strictness.anything:
            left_out.append(reason)
        return grammar, tuple(f"not enforced in function calls: {text}" for text in left_out)
    raise LeapSchemaError(f"the functions' parameters cannot be used: {reason}")


@lru_cache(256)
def _check_parameters(name: str, schema: str) -> None:
    try:
        check_schema(json.loads(schema))
    except LeapSchemaError as error:
        raise LeapSchemaError(f"{name}: {error.message}", pointer=error.pointer, hint=error.hint) from None


def _prefixed(grammar: str, prefix: str) -> str:
    return grammar.replace("start: ", f"start: {prefix} ", 1) if prefix else grammar


def _after_reasoning(
    constraint: TokenConstraint, vocabulary: Vocabulary, reasoning_open: bool, call_start: int | None
) -> TokenConstraint:
    tags = reasoning_tags(vocabulary)
    if not tags:
        return constraint
    starts, ends = ([vocabulary.special_tokens[tag] for tag in kind] for kind in zip(*tags, strict=True))
    return AfterReasoning(
        constraint, starts, ends, vocabulary.eog_tokens, thinking=reasoning_open, call_start=call_start
    )
