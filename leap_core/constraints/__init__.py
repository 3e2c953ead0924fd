"""Shapes that a reply must have: from JSON schemas, Python types, regular expressions, choices, grammars and declared
functions to constraints on tokens, and the check of the finished text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..schemas.response_types import parse_result, schema_of, schema_text_of
from .contract import CompiledConstraint, TokenConstraint
from .schema_in_prompt import inject_schema

if TYPE_CHECKING:
    from ..functions import LeapFunction
    from ..options import FunctionCallParser, GenerationOptions
    from ..schemas.grammar_matcher import Vocabulary

__all__ = [
    "CompiledConstraint",
    "TokenConstraint",
    "compile_constraint",
    "inject_schema",
    "parse_result",
    "schema_of",
    "schema_text_of",
]


def compile_constraint(
    options: GenerationOptions,
    functions: Sequence[LeapFunction],
    vocabulary: Vocabulary,
    *,
    parser: FunctionCallParser | None = None,
    reasoning_open: bool = False,
    room: int | None = None,
) -> CompiledConstraint | None:
    """See ``compiling.compile_constraint``, which is imported when it is first needed."""
    from . import compiling

    return compiling.compile_constraint(
        options, functions, vocabulary, parser=parser, reasoning_open=reasoning_open, room=room
    )
