"""``leap templates``: prompts, system prompts and options that are saved under a name."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from ..config.editing import edit_file
from ..config.saved_prompts import (
    PromptTemplate,
    parse_template,
    read_parameters,
    read_template,
    template_names,
    template_path,
)
from ..exit_codes import ExitCode
from ..framework.click_classes import leap_group
from ..framework.environment import Environment
from ..framework.error_boundary import outcome_or_warning
from ..framework.output import Format, Output
from ..input.pattern import INPUT
from ..input.prompt import read_system
from ..options.constraints import constraint_flags, take_constraint
from ..options.generation import generation_flags, generation_options
from ..options.output_format import FormatChoice
from ..options.saved_prompts import check_options
from ..options.saving_prompts import save_template, typed_options
from ..options.tools import take_tools, tool_flags
from ..options.value_types import ModelName


@leap_group("templates")
def command() -> None:
    """Prompts, system prompts and options saved under a name, for generate, chat and batch: -t NAME -p variable=value.

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
        template = outcome_or_warning(output, partial(read_template, env, name))
        if template is not None:
            records.append(template.to_json())
    if output.format is Format.TEXT:
        records = [record | {"variables": ", ".join(record["variables"]) or None} for record in records]
    output.records(records, ["name", "about", "variables", "prompt"], name="name")
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
@click.option("-p", "--param", multiple=True, metavar="NAME=VALUE", help="Give a variable this default.")
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
    param: tuple[str, ...],
    about: str | None,
    replace: bool,
    model: str | None,
    **flags: Any,
) -> ExitCode:
    """Save PROMPT, in which {input} stands for what is asked later, with options of leap generate, as NAME.

    Every other {name} in PROMPT or --system is a variable: -p name=value gives its value later, and here a default.
    What is asked follows a PROMPT without {input}. Schemas, grammars and @FILE are read now; files with tools are read
    when they are used.
    """
    env = ctx.ensure_object(Environment)
    options = typed_options(ctx, env, but=OWN)
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
    Output(env).note(save_template(env, template, read_parameters(param), replace=replace))
    return ExitCode.DONE


@command.command("edit")
@click.argument("name")
@click.pass_obj
def edit(env: Environment, /, name: str) -> ExitCode:
    """Open a template in $VISUAL, else $EDITOR. What you write is taken only when it is a template."""
    path = template_path(env, name)
    if not path.is_file():
        read_template(env, name)  # says that it is not there, and what was probably meant

    def check(text: str, draft: str) -> None:
        check_options(parse_template(name, text.encode(), draft), draft)

    Output(env).note(f"saved {path}" if edit_file(env, path, check) else "nothing was changed")
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


OWN = ("about", "replace")
"""Options of ``add`` that are none of ``leap generate``, and have a place of their own in the file."""
