"""``leap schema``: what a schema means, and how far it can be enforced while a model writes."""

from __future__ import annotations

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_group
from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..options.constraints import read_schema_argument
from ..options.output_format import FormatChoice


@leap_group("schema")
def command() -> None:
    """Look at a JSON schema: a file, JSON text, or the shorthand 'name, age int, tags list[str]: what they did'."""


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
