"""The options that constrain the structure of an answer, shared by the commands that generate."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.conversation.options import CONSTRAINTS
from leap_core.errors import LeapSchemaError
from leap_core.system.dataclass import dataclass

from ..config.saved import SCHEMAS
from ..framework.arguments import reading
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option

if TYPE_CHECKING:
    from leap_core.conversation.options import GenerationOptions

SHAPES = {
    "json_schema": "--json-schema",
    "json_schema_multi": "--json-schema-multi",
    "choices": "--choices",
    "regex": "--regex",
    "grammar": "--grammar",
}
NO_SHAPE: dict[str, Any] = dict.fromkeys(CONSTRAINTS)
"""The fields of GenerationOptions that constrain the structure of an answer, none of them set."""
NO_PATH = re.compile(r"[\s:]")
"""What is hardly in a file's name, but in a shorthand."""


@dataclass(frozen=True)
class Constraint:
    """``fields``: those of GenerationOptions that constrain the structure of an answer."""

    fields: Mapping[str, Any]


def read_schema_argument(value: str, env: Environment, *, many: bool = False) -> Any:
    """The schema that an argument means: see ``read_document``. Raises LeapSchemaError."""
    from leap_core.schemas.json_schema import check_schema
    from leap_core.schemas.shorthand import list_of

    checked = check_schema(read_document(value, env)).document
    return list_of(checked) if many else checked


def read_grammar_argument(value: str, env: Environment) -> str:
    """The grammar that an argument means. One has rules; anything without a colon is a file's name."""
    if ":" in value and not (_may_be_path(value) and os.path.isfile(env.cwd / value)):
        return value
    return _read(env.cwd / value, value)


def _schema_text(value: str, env: Environment) -> str:
    return json.dumps(read_schema_argument(value, env), ensure_ascii=False)


OPEN_OBJECTS = option(
    "--additional-properties",
    is_flag=True,
    help="Allow keys that the schema permits but does not name; by default only named keys are generated.",
)
FINISH_SHAPE = option(
    "--complete-json/--no-complete-json",
    default=None,
    help="Close JSON before the token limit cuts it off; default for batches and tasks.",
)
REPAIR = option(
    "--repair",
    "repairs",
    type=click.IntRange(0, 10),
    help="Retry up to N times if an answer does not match its schema; 1 by default for remote models, 2 for local "
    "ones.",
)
_OPTIONS = (
    option(
        "--json-schema",
        "--schema",
        metavar="SCHEMA",
        saved=_schema_text,
        help="Return JSON that matches this schema: a file, JSON, a saved name, or 'name, age int, tags list[str]'.",
    ),
    option(
        "--json-schema-multi", metavar="SCHEMA", saved=_schema_text, help="Return a JSON list whose items match SCHEMA."
    ),
    option("--choices", multiple=True, metavar="A,B,C", help="Return one of these texts, or one of a JSON list."),
    option("--regex", metavar="PATTERN", help="Return text that fully matches this regular expression."),
    option(
        "--grammar",
        metavar="FILE",
        saved=read_grammar_argument,
        help="Return text that follows this grammar in Lark or GBNF (a file or its text).",
    ),
    option(
        "--schema-in-prompt/--no-schema-in-prompt",
        "schema_in_prompt",
        default=True,
        help="Add the schema to the prompt (default), or only enforce it.",
    ),
    OPEN_OBJECTS,
    option(
        "--any-whitespace",
        is_flag=True,
        help="Allow whitespace and line breaks in generated JSON; by default it is one line.",
    ),
    FINISH_SHAPE,
    REPAIR,
)
LIBERTIES = ("additional_properties", "any_whitespace", "complete_json")
"""Options that are fields of GenerationOptions unchanged."""


def _build(arguments: Arguments) -> Constraint:
    """One shape that was typed takes the place of another that is configured. A schema that is invalid raises
    LeapSchemaError here, before a model is loaded."""
    values = {name: value for name in SHAPES if (value := arguments[name]) not in (None, ())}
    typed = [name for name in values if arguments.is_typed(name)]
    if typed:
        values = {name: values[name] for name in typed}
    if len(values) > 1:
        first, second = list(values)[:2]
        raise click.UsageError(f"{SHAPES[second]} cannot be combined with {SHAPES[first]}")
    fields: dict[str, Any] = {"inject_schema_into_prompt": arguments["schema_in_prompt"]}
    fields |= {name: value for name in LIBERTIES if (value := arguments[name]) not in (None, False)}
    if arguments["repairs"] is not None:
        fields["repairs"] = arguments["repairs"]
    if arguments["complete_json"] is False:
        fields["complete_json"] = False
    for name, value in values.items():
        fields |= _shape(name, value, arguments.env)
    return Constraint(fields)


SHAPE = OptionGroup("shape", "Structured output", _OPTIONS, _build)


def shape_from_text(name: str, text: str, env: Environment) -> dict[str, Any]:
    """The fields of GenerationOptions that one of ``SHAPES`` means. Raises LeapSchemaError and UsageError."""
    return _shape(name, (text,) if name == "choices" else text, env)


def _shape(name: str, value: Any, env: Environment) -> dict[str, Any]:
    if name.startswith("json_schema"):
        schema = read_schema_argument(value, env, many=name == "json_schema_multi")
        return {"json_schema_constraint": json.dumps(schema, ensure_ascii=False)}
    if name == "choices":
        return {"choices_constraint": read_choices(value)}
    if name == "regex":
        return {"regex_constraint": value}
    return {"grammar_constraint": read_grammar_argument(value, env)}


def is_shaped(options: GenerationOptions) -> bool:
    """Whether a constraint gives the answer its shape, so that it is no prose."""
    return any(getattr(options, name) is not None for name in NO_SHAPE)


def read_document(value: str, env: Environment) -> Any:
    """The JSON that an argument means, whatever it says: JSON text, a file, the name of a saved schema, else the
    shorthand. A file goes before a name, and a name before a shorthand. Raises LeapSchemaError, and UsageError for a
    word that is nearly a name."""
    from leap_core.schemas.json_schema import parse_json
    from leap_core.schemas.shorthand import schema_from_shorthand

    value = value[1:] if value.startswith("@") else value  # as -s has it for files
    path = env.cwd / value
    source = "the schema"
    text = value
    looks_like_one = value.endswith(".json") or ("/" in value and not NO_PATH.search(value))
    if _may_be_path(value) and (os.path.isfile(path) or looks_like_one):
        source, text = value, _read(path, value)
    elif (saved := SCHEMAS.find(env, value)) is not None:
        source, text = str(saved), _read(saved, str(saved))
    stripped = text.strip()
    if stripped.startswith(("{", "[")) or stripped in ("true", "false") or source != "the schema":
        try:
            return parse_json(text)
        except ValueError as error:
            raise LeapSchemaError(f"{source} is not JSON: {error}") from None
    if SCHEMAS.is_misspelt(env, value):
        raise SCHEMAS.unknown(env, value)
    return schema_from_shorthand(text)


def _may_be_path(value: str) -> bool:
    return "\n" not in value and not value.lstrip().startswith("{") and len(value) < 1000 and "\0" not in value


def _read(path: Path, name: str) -> str:
    with reading(name):
        return path.read_text(encoding="utf-8-sig")


def read_choices(values: Sequence[str], flag: str = "--choices") -> list[str]:
    """The texts that the values of an option mean: each is texts with commas between them, or a JSON list. Repeats
    count once. Raises UsageError naming the flag."""
    return list(dict.fromkeys(choice for value in values for choice in _choices_in(value, flag)))


def _choices_in(value: str, flag: str) -> list[str]:
    if value.lstrip().startswith("["):
        try:
            choices = json.loads(value)
        except ValueError as error:
            raise click.UsageError(f"{flag} is not a JSON list: {error}") from None
        if not all(isinstance(choice, str) for choice in choices):
            raise click.UsageError(f"{flag} takes a list of strings")
    else:
        choices = [choice.strip() for choice in value.split(",")]
    if not choices or not all(choices):
        raise click.UsageError(f"{flag} has an empty choice")
    return [str(choice) for choice in choices]
