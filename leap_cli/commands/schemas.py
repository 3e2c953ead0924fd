"""``leap schemas``: schemas under a name; what one means, and how far it can be enforced while a model writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..config.saved import SCHEMAS
from ..exit_codes import ExitCode
from ..framework.click_classes import format_choice, leap_group
from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..options.constraints import read_schema_argument
from .named_file_commands import FileVerbs, add_file_verbs


@leap_group("schemas")
def command() -> None:
    """JSON schemas: saved under a name for --json-schema NAME, shown and checked. SCHEMA is a file, JSON text, a name,
    or the shorthand 'name, age int, tags list[str]: what they did'."""


def _in_words(document: Any) -> str:
    """The beginning of a schema for people: ``name string, age integer``; what it is where it has no fields."""
    if not isinstance(document, dict):
        return "anything" if document else "nothing"
    if document.get("type") == "array":
        return f"list of {_in_words(document.get('items', True))}"
    fields = document.get("properties")
    if not isinstance(fields, dict) or not fields:
        return str(document.get("type", "a schema"))
    kinds = ((name, field.get("type") if isinstance(field, dict) else None) for name, field in fields.items())
    return ", ".join(f"{name} {kind}" if isinstance(kind, str) else name for name, kind in kinds)


def _describe(env: Environment, name: str, path: Path) -> dict[str, Any]:
    document = read_schema_argument(str(path), env)
    return {"name": name, "fields": _in_words(document), "schema": document}


add_file_verbs(
    command,
    FileVerbs(
        SCHEMAS,
        _describe,
        lambda env, _name, _text, file: read_schema_argument(str(file), env),
        ["name", "fields"],
    ),
)


@command.command("add")
@click.argument("name")
@click.argument("schema")
@click.option("--multi", is_flag=True, help="Save the schema of a list of them.")
@click.option("--replace", is_flag=True, help="Replace a schema of the same name.")
@click.pass_obj
def add(env: Environment, /, name: str, schema: str, multi: bool, replace: bool) -> ExitCode:
    """Save SCHEMA as NAME, for every option that takes a schema.

    A file of the same name in the current directory overrides it, and it overrides a shorthand of one word.
    """
    from leap_core.system.files import replace_text

    path = SCHEMAS.free(env, name, replace=replace)
    document = read_schema_argument(schema, env, many=multi)
    replace_text(path, json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    Output(env).note(f"saved {path}")
    return ExitCode.DONE


@command.command("show")
@click.argument("schema")
@click.option("--multi", is_flag=True, help="Print the schema of a list of what SCHEMA means.")
@click.pass_obj
def show(env: Environment, /, schema: str, multi: bool) -> ExitCode:
    """Print the schema that SCHEMA means."""
    Output(env).document(read_schema_argument(schema, env, many=multi))
    return ExitCode.DONE


@command.command("check")
@click.argument("schema")
@format_choice("Print text, or one json document.", [Format.TEXT.value, Format.JSON.value])
@click.option("--strict", is_flag=True, help="Exit with 6 unless all of it is enforced while generating.")
@click.pass_obj
def check(env: Environment, /, schema: str, format: str, strict: bool) -> ExitCode:
    """Say what of SCHEMA is enforced while a model writes, and what is only checked afterwards.

    A schema that cannot be used at all is an error (exit code 6) that names the place.
    """
    from leap_core.inference.constraints.grammars import enforce
    from leap_core.schemas.grammar_matcher import byte_tokenizer
    from leap_core.schemas.json_schema import check_schema

    output = Output(env, format)
    enforced = enforce(check_schema(read_schema_argument(schema, env)), byte_tokenizer())
    if output.format is Format.JSON:
        output.document({"enforced_completely": enforced.exact, "warnings": list(enforced.warnings)})
    else:
        for warning in enforced.warnings:
            output.text(f"{warning}\n")
        output.text("all of it is enforced\n" if enforced.exact else "the rest is enforced\n")
    return ExitCode.SCHEMA if strict and not enforced.exact else ExitCode.DONE
