"""Shapes that a reply must have: from JSON schemas, Python types, regular expressions, choices, grammars and declared
functions to constraints on tokens, and the check of the finished text."""

from __future__ import annotations

from ..schemas.response_types import parse_result, schema_of, schema_text_of
from .contract import CompiledConstraint, TokenConstraint
from .schema_in_prompt import inject_schema

__all__ = [
    "CompiledConstraint",
    "TokenConstraint",
    "inject_schema",
    "parse_result",
    "schema_of",
    "schema_text_of",
]
