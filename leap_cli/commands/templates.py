"""``leap templates``: prompts, system prompts and options that are saved under a name."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from ..config.saved_prompts import PromptTemplate, read_template, template_names, template_path, write_template
from ..exit_codes import ExitCode
from ..framework.click_classes import leap_group
from ..framework.environment import Environment
from ..framework.option_defaults import option_name, options_of
from ..framework.output import Format, Output
from ..framework.text_arguments import text_argument
from ..input.prompt import INPUT, read_system
from ..options.constraints import constraint_flags, read_grammar_argument, read_schema_argument, take_constraint
from ..options.generation import generation_flags, generation_options
from ..options.output_format import FormatChoice
from ..options.tools import take_tools, tool_flags
from ..options.value_types import ModelName


@leap_group("templates")
def command() -> None:
    """Prompts, system prompts and options saved under a name, for leap generate --template NAME.

    Each is a TOML file in the configuration's directory templates, which may be edited and shared.
    """


@command.command("list")
@click.option(
    "--format",
    type=FormatChoice([kind.value for kind in Format]),
    default=Format.TEXT.value,
    help="Print text, one json document, jsonl, or quiet: names only.",
)
@click.pass_obj
def list_templates(env: Environment, /, format: str) -> ExitCode:
    """List the templates there are."""
    output = Output(env, format)
    records = []
    for name in template_names(env):
        try:
            records.append(read_template(env, name).to_json())
        except click.UsageError as error:
            output.warning(error.message)
    output.records(records, ["name", "about", "prompt"], name="name")
    return ExitCode.DONE


@command.command("show")
@click.argument("name")
@click.option(
    "--format",
    type=FormatChoice([Format.TEXT.value, Format.JSON.value]),
    default=Format.TEXT.value,
    help="Print text, which is the file, or one json document.",
)
@click.pass_obj
def show(env: Environment, /, name: str, format: str) -> ExitCode:
    """Print a template."""
    output = Output(env, format)
    template = read_template(env, name)
    if output.format is Format.JSON:
        output.document(template.to_json())
    else:
        output.text(template_path(env, name).read_text("utf-8"))
    return ExitCode.DONE


@command.command("add")
@click.argument("name")
@click.argument("prompt", default=INPUT)
@click.option("-s", "--system", metavar="TEXT", help="Give the model this system prompt; @FILE reads it from a file.")
@click.option("--about", metavar="TEXT", help="Say in a line what it is for; leap templates list shows that.")
@click.option("--replace", is_flag=True, help="Replace a template of the same name.")
@click.option(
    "-m",
    "--model",
    type=ModelName(),
    metavar="MODEL",
    help="Use this model: a GGUF file, a model's name, or 'builtin'.",
)
@generation_flags
@constraint_flags
@tool_flags
@click.pass_context
def add(
    ctx: click.Context,
    /,
    name: str,
    prompt: str,
    system: str | None,
    about: str | None,
    replace: bool,
    model: str | None,
    **flags: Any,
) -> ExitCode:
    """Save PROMPT, in which {input} stands for what is asked later, with options of leap generate, as NAME.

    What is asked follows a PROMPT without {input}. Schemas, grammars and @FILE are read now; files with tools are read
    when they are used.
    """
    env = ctx.ensure_object(Environment)
    path = template_path(env, name)
    if path.exists() and not replace:
        raise click.UsageError(f"there is a template {name} already; --replace replaces it")
    options = _given_options(ctx, env)
    shape = take_constraint(flags, env)
    tools = take_tools(flags, env)
    generation_options({**flags, **shape, "tool_choice": tools.choice})
    template = PromptTemplate(
        name,
        about=about,
        system=None if system is None else read_system(system, env),
        prompt=prompt,
        options=options,
    )
    if not template.prompt.strip():
        raise click.UsageError("the prompt is empty; {input} alone is the prompt as it is asked")
    if template == PromptTemplate(name, about=template.about):
        raise click.UsageError("there is nothing to save: give a prompt, --system or options")
    write_template(env, template)
    Output(env).note(f"saved {path}")
    return ExitCode.DONE


@command.command("remove")
@click.argument("name")
@click.pass_obj
def remove(env: Environment, /, name: str) -> ExitCode:
    """Forget a template."""
    path = template_path(env, name)
    if not path.is_file():
        read_template(env, name)  # says that it is not there, and what was probably meant
    path.unlink()
    return ExitCode.DONE


OWN = ("system", "about", "replace")
"""Options of ``add`` that are none of ``leap generate``, or have a place of their own in the file."""


def _given_options(ctx: click.Context, env: Environment) -> dict[str, Any]:
    """The options that were given, by their names, with what files say in the place of the files."""
    values: dict[str, Any] = {}
    for option in options_of(ctx.command):
        parameter, name = str(option.name), option_name(option)
        if name in OWN or ctx.get_parameter_source(parameter) is click.core.ParameterSource.DEFAULT:
            continue
        value = ctx.params[parameter]
        values[name] = list(value) if isinstance(value, tuple) else value
    for name in ("json_schema", "json_schema_multi"):
        if name in values:
            values[name] = json.dumps(read_schema_argument(values[name], env), ensure_ascii=False)
    if "grammar" in values:
        values["grammar"] = read_grammar_argument(values["grammar"], env)
    if "tools_file" in values:
        values["tools_file"] = [str((env.cwd / file).absolute()) for file in values["tools_file"]]
    if "model" in values and os.path.isfile(env.cwd / values["model"]):
        values["model"] = text_argument(str((env.cwd / values["model"]).absolute()), "--model")
    return values
