"""Functions that a model may call: declaring them, reading and writing calls, running them under a policy."""

from __future__ import annotations

from ..messages import LeapFunctionCall
from .declaration import LeapFunction, LeapFunctionParameter
from .parameter_types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LeapFunctionParameterType,
    NullType,
    NumberType,
    ObjectType,
    SchemaType,
    StringType,
)
from .parsers import HermesFunctionCallParser, LeapFunctionCallParser, LFMFunctionCallParser, parser_named

__all__ = [
    "ArrayType",
    "BooleanType",
    "HermesFunctionCallParser",
    "IntegerType",
    "LFMFunctionCallParser",
    "LeapFunction",
    "LeapFunctionCall",
    "LeapFunctionCallParser",
    "LeapFunctionParameter",
    "LeapFunctionParameterType",
    "NullType",
    "NumberType",
    "ObjectType",
    "SchemaType",
    "StringType",
    "parser_named",
]
