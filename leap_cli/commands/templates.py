"""``leap templates``: prompts, system prompts and options that are saved under a name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..config.saved import TEMPLATES, PromptTemplate, parse_template, read_parameters, read_template
from ..exit_codes import ExitCode
from ..framework.click_classes import format_choice, leap_group
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Format, Output
from ..input.prompt import INPUT
from ..options.constraints import SHAPE, Constraint
from ..options.loading import MODEL_OPTION
from ..options.prompt import SYSTEM_OPTION, check_options, read_system_option, save_template, typed_options
from ..options.sampling import PLAIN_SAMPLING, Sampling
from ..options.tools import TOOLS, Tools
from .named_file_commands import FileVerbs, add_file_verbs


@leap_group("templates")
def command() -> None:
    """Prompts, system prompts and options saved under a name, for generate, chat and batch: -t NAME -p variable=value.

    Each is a TOML file in the configuration's directory templates, which may be edited and shared.
    """


def _check(_env: Environment, name: str, text: str, file: Path) -> None:
    check_options(parse_template(name, text.encode(), str(file)), str(file))


add_file_verbs(
    command,
    FileVerbs(
        TEMPLATES,
        lambda env, name, _path: read_template(env, name).to_json(),
        _check,
        ["name", "about", "variables", "prompt"],
    ),
)


@command.command("show")
@click.argument("name")
@format_choice("Print text, which is the file, or one json document.", [Format.TEXT.value, Format.JSON.value])
@click.pass_obj
def show(env: Environment, /, name: str, format: str) -> ExitCode:
    """Print a template."""
    output = Output(env, format)
    template = read_template(env, name)
    if output.format is Format.JSON:
        output.document(template.to_json())
    else:
        output.text(TEMPLATES.path(env, name).read_text("utf-8"))
    return ExitCode.DONE


@dataclass(frozen=True)
class NewTemplate:
    """What is saved, the ``defaults`` of its variables, and whether it may ``replace`` another."""

    template: PromptTemplate
    defaults: dict[str, str]
    replace: bool


def _new_template(arguments: Arguments) -> NewTemplate:
    template = PromptTemplate(
        arguments["name"],
        about=arguments["about"],
        system=read_system_option(arguments),
        prompt=arguments["prompt"],
        options=typed_options(arguments),
    )
    return NewTemplate(template, read_parameters(arguments["param"]), arguments["replace"])


NEW_TEMPLATE = OptionGroup(
    "new",
    "",
    (
        click.argument("name"),
        click.argument("prompt", default=INPUT),
        SYSTEM_OPTION,
        option("-p", "--param", multiple=True, metavar="NAME=VALUE", saved=None, help="Give a variable this default."),
        option(
            "--about", metavar="TEXT", saved=None, help="Say in a line what it is for; leap templates list shows that."
        ),
        option("--replace", is_flag=True, saved=None, help="Replace a template of the same name."),
        MODEL_OPTION,
    ),
    _new_template,
)


@command.command("add")
@NEW_TEMPLATE
@PLAIN_SAMPLING
@SHAPE
@TOOLS
@click.pass_obj
def add(env: Environment, /, new: NewTemplate, sampling: Sampling, shape: Constraint, tools: Tools) -> ExitCode:
    """Save PROMPT, in which {input} stands for what is asked later, with options of leap generate, as NAME.

    Every other {name} in PROMPT or --system is a variable: -p name=value gives its value later, and here a default.
    What is asked follows a PROMPT without {input}. Schemas, grammars and @FILE are read now; files with tools are read
    when they are used.
    """
    sampling.options(shape, tool_choice=tools.choice)  # says what is out of its range
    Output(env).note(save_template(env, new.template, new.defaults, replace=new.replace))
    return ExitCode.DONE
