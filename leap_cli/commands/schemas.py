"""``leap schemas``: schemas under a name; what one means, and how far it can be enforced while a model writes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ..config.editing import edit_file
from ..config.saved_schemas import in_words, schema_names, schema_path, unknown_schema, write_schema
from ..exit_codes import ExitCode
from ..framework.click_classes import leap_group
from ..framework.environment import Environment
from ..framework.error_boundary import outcome_or_warning
from ..framework.output import Format, Output
from ..options.constraints import read_schema_argument
from ..options.output_format import FormatChoice, format_flag


@leap_group("schemas")
def command() -> None:
    """JSON schemas: saved under a name for --json-schema NAME, shown and checked. SCHEMA is a file, JSON text, a name,
    or the shorthand 'name, age int, tags list[str]: what they did'."""


@command.command("list")
@format_flag
@click.pass_obj
def list_schemas(env: Environment, /, format: str) -> ExitCode:
    """List the schemas that were saved."""
    output = Output(env, format)
    rows = []
    for name in schema_names(env):
        document = outcome_or_warning(output, partial(read_schema_argument, str(schema_path(env, name)), env))
        if document is not None:
            rows.append({"name": name, "fields": in_words(document), "schema": document})
    output.records(rows, ["name", "fields"], name="name")
    if not rows and output.format is Format.TEXT:
        output.note("no schema is saved; leap schemas add NAME SCHEMA saves one")
    return ExitCode.DONE


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
    path = schema_path(env, name)
    if path.exists() and not replace:
        raise click.UsageError(f"there is a schema {name} already; --replace replaces it")
    write_schema(env, name, read_schema_argument(schema, env, many=multi))
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
@click.option(
    "--format",
    type=FormatChoice([Format.TEXT.value, Format.JSON.value]),
    default=Format.TEXT.value,
    help="Print text, or one json document.",
)
@click.option("--strict", is_flag=True, help="Exit with 6 unless all of it is enforced while generating.")
@click.pass_obj
def check(env: Environment, /, schema: str, format: str, strict: bool) -> ExitCode:
    """Say what of SCHEMA is enforced while a model writes, and what is only checked afterwards.

    A schema that cannot be used at all is an error (exit code 6) that names the place.
    """
    from leap_core.constraints.schema_grammar import enforce
    from leap_core.schemas.grammar_matcher import byte_tokenizer
    from leap_core.schemas.schema import check_schema

    output = Output(env, format)
    enforced = enforce(check_schema(read_schema_argument(schema, env)), byte_tokenizer())
    if output.format is Format.JSON:
        output.document({"enforced_completely": enforced.exact, "warnings": list(enforced.warnings)})
    else:
        for warning in enforced.warnings:
            output.text(f"{warning}\n")
        output.text("all of it is enforced\n" if enforced.exact else "the rest is enforced\n")
    return ExitCode.SCHEMA if strict and not enforced.exact else ExitCode.DONE


@command.command("edit")
@click.argument("name")
@click.pass_obj
def edit(env: Environment, /, name: str) -> ExitCode:
    """Open a schema in $VISUAL, else $EDITOR. What you write is taken only when it is a schema."""
    path = _existing(env, name)

    def check(_text: str, draft: str) -> None:
        read_schema_argument(draft, env)

    Output(env).note(f"saved {path}" if edit_file(env, path, check) else "nothing was changed")
    return ExitCode.DONE


@command.command("remove")
@click.argument("name")
@click.pass_obj
def remove(env: Environment, /, name: str) -> ExitCode:
    """Forget a schema."""
    _existing(env, name).unlink()
    return ExitCode.DONE


def _existing(env: Environment, name: str) -> Path:
    path = schema_path(env, name)
    if not path.is_file():
        raise unknown_schema(env, name)
    return path
