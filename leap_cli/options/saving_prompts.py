"""The options that were typed, as a saved prompt keeps them: what files say, or where they lie for good."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from ..config.named_files import TEMPLATES
from ..config.saved_prompts import NOT_SAVED, PromptTemplate, write_template
from ..framework.environment import Environment
from ..framework.option_defaults import option_name
from ..framework.option_groups import Arguments
from ..framework.text_arguments import text_argument
from ..input.pattern import names_in
from .constraints import read_grammar_argument, read_schema_argument

PATHS = ("tools_file", "file", "image", "audio", "mmproj")
"""Options whose values are files that are read when the template is used."""
PERHAPS_PATHS = ("model", "chat_template")
"""Options whose values may be files, or names."""


def typed_options(arguments: Arguments, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The options that were typed, by their names; those that belong to one call are left out. Raises what reading a
    schema or a grammar raises."""
    env, typed = arguments.env, dict[str, Any]()
    for option, value in arguments.typed_options():
        name = option_name(option)
        if name not in (*NOT_SAVED, *but):
            typed[name] = [_text(each, name) for each in value] if option.multiple else _text(value, name)
    for name in ("json_schema", "json_schema_multi"):
        if name in typed:
            typed[name] = json.dumps(read_schema_argument(typed[name], env), ensure_ascii=False)
    if "grammar" in typed:
        typed["grammar"] = read_grammar_argument(typed["grammar"], env)
    for name in PATHS:
        if name in typed:
            typed[name] = _each(typed[name], env)
    for name in PERHAPS_PATHS:
        if name in typed and os.path.isfile(env.cwd / typed[name]):
            typed[name] = _absolute(typed[name], env)
    if "lora" in typed:
        typed["lora"] = [_adapter(each, env) for each in typed["lora"]]
    return typed


def save_template(env: Environment, template: PromptTemplate, defaults: dict[str, str], *, replace: bool) -> str:
    """Write a template that declares the names in its texts, with these defaults; where it lies. Raises UsageError for
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


def _text(value: Any, name: str) -> Any:
    return text_argument(value, f"--{name.replace('_', '-')}") if isinstance(value, str) else value


def _each(value: Any, env: Environment) -> Any:
    return [_absolute(each, env) for each in value] if isinstance(value, list) else _absolute(value, env)


def _absolute(name: str, env: Environment) -> str:
    return text_argument(str((env.cwd / name).absolute()), "a file's name")


def _adapter(text: str, env: Environment) -> str:
    file, equals, scale = text.rpartition("=")
    return f"{_absolute(file, env)}={scale}" if equals else _absolute(text, env)
