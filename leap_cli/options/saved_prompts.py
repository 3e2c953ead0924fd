"""``-t/--template`` and ``-p/--param``: a saved prompt that a command begins with, and the values of its variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..config.saved_prompts import NAME, FilledTemplate, PromptTemplate, read_parameters, read_template, template_path
from ..framework.aliases import former_names
from ..framework.environment import Environment
from ..framework.option_defaults import OptionDefaults, option_name, options_of
from ..framework.output import Output
from ..framework.text_arguments import text_argument
from ..input.pattern import names_in

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

GIVEN, CHOSEN = "leap.template_flags", "leap.template"
MEANS_ANOTHER_THING = {"batch": ("format",)}
"""Options of ``leap generate`` that mean another thing in a command, and are passed over there."""


def template_flags(function: Decorated) -> Decorated:
    """Add the flags, whose values stand behind those on the command line and before all others; they must be the
    command's first options. The function receives none of them: see ``chosen_template``."""
    options = (
        click.option(
            "-t",
            "--template",
            metavar="TEMPLATE",
            expose_value=False,
            callback=_take,
            help="Begin with what leap templates has saved: system prompt, prompt, options.",
        ),
        click.option(
            "-p",
            "--param",
            multiple=True,
            metavar="NAME=VALUE",
            expose_value=False,
            callback=_take,
            help="Give a variable of the template this value.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def chosen_template(*, of_lines: bool = False) -> FilledTemplate | None:
    """The template that this command begins with. Raises UsageError naming variables without a value. ``of_lines``:
    each line of a batch brings values for the prompt, so only those of the system prompt must be known."""
    filled: FilledTemplate | None = click.get_current_context().meta.get(CHOSEN)
    if filled is not None:
        filled.check(names_in(filled.template.system) if of_lines else filled.template.declared)
    return filled


def _take(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Both flags come before every option whose default they may be, in either order."""
    flags = context.meta.setdefault(GIVEN, {})
    flags[option.name] = value
    if len(flags) == 2 and not context.resilient_parsing:
        _use(context, flags["template"], tuple(text_argument(text, "--param") for text in flags["param"]))


def _use(context: click.Context, name: str | None, values: tuple[str, ...]) -> None:
    typed = context.get_parameter_source("param") is click.core.ParameterSource.COMMANDLINE
    defaults = context.default_map
    assert isinstance(defaults, OptionDefaults)
    if name is not None and "{" in name and not NAME.fullmatch(name) and context.command.name == "batch":
        defaults.prefer({"pattern": name}, "--template")  # what --template was before templates were for batches too
        name = None
    if name is None:
        if typed:
            raise click.UsageError("-p gives values to a template: name one with -t")
        return
    env = context.ensure_object(Environment)
    template = read_template(env, name)
    parameters = read_parameters(values)
    if not typed:  # a general wish of the configuration
        known = (*template.declared, *template.undeclared)
        parameters = {name: value for name, value in parameters.items() if name in known}
    filled = template.with_values(parameters)
    for each in template.undeclared:
        if each not in parameters:
            file = template_path(env, name)
            Output(env).note(f'{{{each}}} stands as it is: variables = ["{each}"] in {file} makes it a variable')
    options = _options_here(context, template.options, name)
    if filled.system is not None:
        options["system"] = f"@{filled.system}" if filled.system.startswith("@") else filled.system
    defaults.prefer(options, str(template_path(env, name)))
    context.meta[CHOSEN] = filled


def _options_here(context: click.Context, options: dict[str, Any], template: str) -> dict[str, Any]:
    """The options that this command has; those of ``leap generate`` alone are left out, and told of."""
    from ..command_table import command_line

    own = _names(context.command)
    other = MEANS_ANOTHER_THING.get(str(context.command.name), ())
    missing = [name for name in options if name not in own]
    if missing and context.command.name != "generate":
        generate = command_line.get_command(context, "generate")
        assert generate is not None
        missing = [name for name in missing if name in _names(generate)]
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        if missing:
            Output(context.ensure_object(Environment)).note(
                f"the template {template}: leap {context.command.name} has no {flags}; left out"
            )
        options = {name: value for name, value in options.items() if name not in missing}
    return {name: value for name, value in options.items() if name not in other}


def _names(command: click.Command) -> set[str]:
    options = list(options_of(command))
    return {option_name(option) for option in options} | {name for each in options for name in former_names(each)}


def check_options(template: PromptTemplate, file: str) -> None:
    """Raises UsageError for options of a template that ``leap generate`` could not take."""
    from ..command_table import command_line
    from ..config.settings import find

    generate = command_line.get_command(click.Context(command_line), "generate")
    assert generate is not None
    former = {name: option_name(option) for option in options_of(generate) for name in former_names(option)}
    for name, value in template.options.items():
        find(f"options.generate.{former.get(name, name)}").from_toml(value, f"{file}: {name}")
