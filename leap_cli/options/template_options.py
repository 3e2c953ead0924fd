"""``-t/--template`` and ``-p/--param``: a saved prompt that a command begins with, and its variables' values; and the
options that were typed, as a saved prompt keeps them."""

from __future__ import annotations

from typing import Any

import click

from ..config.named_files import NAME, TEMPLATES
from ..config.saved_prompts import (
    FilledTemplate,
    PromptTemplate,
    read_parameters,
    read_template,
    write_template,
)
from ..framework.environment import Environment
from ..framework.option_defaults import OptionDefaults, option_name, options_of
from ..framework.option_groups import Arguments
from ..framework.options import LeapOption, former_names, option
from ..framework.output import Output
from ..framework.text_arguments import text_argument
from ..input.pattern import names_in

MEANS_ANOTHER_THING = {"batch": ("format",)}
"""Options of ``leap generate`` that mean another thing in a command, and are passed over there."""


def _take(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Fill the template when the second of both options is read, in either order: that is before every option whose
    default it may be. The value of ``template`` is then what it was filled to."""
    if option.name == "param":
        value = tuple(text_argument(each, "--param") for each in value)
    other = "param" if option.name == "template" else "template"
    if other not in context.params or context.resilient_parsing:
        return value
    if option.name == "template":
        return _filled(context, value, context.params["param"])
    context.params["template"] = _filled(context, context.params["template"], value)
    return value


TEMPLATE_OPTIONS = (
    option(
        "-t",
        "--template",
        metavar="TEMPLATE",
        callback=_take,
        saved=None,
        heading="Prompt",
        help="Begin with what leap templates has saved: system prompt, prompt, options.",
    ),
    option(
        "-p",
        "--param",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_take,
        saved=None,
        heading="Prompt",
        help="Give a variable of the template this value.",
    ),
)
"""Options whose values stand behind those on the command line and before all others; they must be a command's first.
The value of ``template`` is a FilledTemplate, or None."""


def checked_template(filled: FilledTemplate | None, *, of_lines: bool = False) -> FilledTemplate | None:
    """The template. Raises UsageError naming variables without a value. ``of_lines``: each line of a batch brings
    values for the prompt, so only those of the system prompt must be known."""
    if filled is not None:
        filled.check(names_in(filled.template.system) if of_lines else filled.template.declared)
    return filled


def _filled(context: click.Context, name: str | None, values: tuple[str, ...]) -> FilledTemplate | None:
    typed = context.get_parameter_source("param") is click.core.ParameterSource.COMMANDLINE
    defaults = context.default_map
    assert isinstance(defaults, OptionDefaults)
    if name is not None and "{" in name and not NAME.fullmatch(name) and context.command.name == "batch":
        defaults.prefer({"pattern": name}, "--template")  # what --template was before templates were for batches too
        name = None
    if name is None:
        if typed:
            raise click.UsageError("-p gives values to a template: name one with -t")
        return None
    env = context.ensure_object(Environment)
    template = read_template(env, name)
    parameters = read_parameters(values)
    if not typed:  # a general wish of the configuration
        known = (*template.declared, *template.undeclared)
        parameters = {name: value for name, value in parameters.items() if name in known}
    filled = template.with_values(parameters)
    file = str(TEMPLATES.path(env, name))
    for each in template.undeclared:
        if each not in parameters:
            Output(env).note(f'{{{each}}} stands as it is: variables = ["{each}"] in {file} makes it a variable')
    options = _options_here(context, template.options, name, file)
    if filled.system is not None:
        options["system"] = f"@{filled.system}" if filled.system.startswith("@") else filled.system
    defaults.prefer(options, file)
    return filled


def _options_here(context: click.Context, options: dict[str, Any], template: str, file: str) -> dict[str, Any]:
    """The options that this command has; a note names those of ``leap generate`` alone, which are left out."""
    from ..command_table import command_line

    _check_saved(options, context.command, file)
    own = _names(context.command)
    other = MEANS_ANOTHER_THING.get(str(context.command.name), ())
    missing = [name for name in options if name not in own]
    if missing and context.command.name != "generate":
        generate = command_line.get_command(context, "generate")
        assert generate is not None
        _check_saved(options, generate, file)
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


def _check_saved(options: dict[str, Any], command: click.Command, file: str) -> None:
    for each in options_of(command):
        if isinstance(each, LeapOption) and each.saved is None and option_name(each) in options:
            raise click.UsageError(f"{file}: the option {option_name(each)} cannot stand in a template")


def check_options(template: PromptTemplate, file: str) -> None:
    """Raises UsageError for options of a template that ``leap generate`` could not take."""
    from ..command_table import command_line
    from ..config.settings import find

    generate = command_line.get_command(click.Context(command_line), "generate")
    assert generate is not None
    _check_saved(template.options, generate, file)
    former = {name: option_name(option) for option in options_of(generate) for name in former_names(option)}
    for name, value in template.options.items():
        find(f"options.generate.{former.get(name, name)}").from_toml(value, f"{file}: {name}")


def typed_options(arguments: Arguments) -> dict[str, Any]:
    """The options that were typed, by their names, as a saved prompt keeps them. Raises what reading a schema or a
    grammar raises."""
    typed: dict[str, Any] = {}
    for each, value in arguments.typed_options():
        if isinstance(each, LeapOption) and each.saved is not None:
            texts = [_saved(each, one, arguments.env) for one in value] if each.multiple else None
            typed[option_name(each)] = _saved(each, value, arguments.env) if texts is None else texts
    return typed


def _saved(option: LeapOption, value: Any, env: Environment) -> Any:
    if not isinstance(value, str) or option.saved is None:
        return value
    return option.saved(text_argument(value, f"--{option_name(option).replace('_', '-')}"), env)


def save_template(env: Environment, template: PromptTemplate, defaults: dict[str, str], *, replace: bool) -> str:
    """Write a template that declares the names in its texts, with these defaults; where it is. Raises UsageError for
    one that is there, and for a default of nothing."""
    path = TEMPLATES.free(env, template.name, replace=replace)
    if not template.prompt.strip():
        raise click.UsageError("the prompt is empty; {input} alone is the prompt as it is asked")
    if template == PromptTemplate(template.name, about=template.about):
        raise click.UsageError("there is nothing to save: give a prompt, --system or options")
    variables = names_in(template.system, template.prompt)
    for name in defaults:
        if name not in variables:
            raise click.UsageError(f"-p gives {name} a default, and {{{name}}} stands neither in prompt nor in system")
    whole = PromptTemplate(
        template.name,
        about=template.about,
        system=template.system,
        prompt=template.prompt,
        options=template.options,
        variables=variables,
        defaults=defaults,
    )
    write_template(env, whole)
    needs = [name for name in variables if name not in defaults]
    return f"saved {path}" + (f"; it needs {' '.join(f'-p {name}=...' for name in needs)}" if needs else "")
