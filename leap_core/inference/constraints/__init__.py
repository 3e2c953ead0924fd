"""Shapes that a reply must have: from JSON schemas, Python types, regular expressions, choices, grammars and declared
functions to constraints on tokens, and the check of the finished text."""

from __future__ import annotations

from ...schemas.python_types import schema_of
from ...schemas.response_types import parse_result, schema_text_of
from .shape_prompts import inject_schema
from .token_constraints import CompiledConstraint, TokenConstraint

__all__ = ["CompiledConstraint", "TokenConstraint", "inject_schema", "parse_result", "schema_of", "schema_text_of"]
