"""Saved prompts: a system prompt, a pattern, and options under a name. One TOML file each, in the configuration.

    about = "Translates into French"
    system = "You translate into French."
    prompt = "Translate this: {input}"

    [options]
    temperature = 0

``options`` are those of ``leap generate`` by their long names, as in ``[options.generate]`` of config.toml; all of the
file may be left out but one thing. What is given on the command line overrides it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from ..framework.environment import Environment
from ..framework.option_defaults import OptionDefaults
from ..input.prompt import INPUT

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TEXTS = ("about", "system", "prompt")
NOT_SAVED = ("template", "system", "continue", "session", "save", "output", "dry_run", "background")
"""Options of ``leap generate`` that belong to one call."""


@dataclass(frozen=True)
class PromptTemplate:
    """What a file says. ``prompt``: the pattern, in which ``{input}`` stands for what is asked."""

    name: str
    about: str | None = None
    system: str | None = None
    prompt: str = INPUT
    options: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything it has."""
        texts = {name: getattr(self, name) for name in TEXTS}
        return {"name": self.name, **texts, "options": self.options}


def template_flag(function: Decorated) -> Decorated:
    """Add ``--template``, whose values stand behind those on the command line and before all others; it must be the
    command's first option. The function receives ``template``, a PromptTemplate or None."""
    return click.option(
        "--template",
        metavar="TEMPLATE",
        callback=_use,
        help="Take the system prompt, the prompt's pattern and options that leap templates has saved.",
    )(function)


def template_path(env: Environment, name: str) -> Path:
    """Where a template lies. Raises UsageError for what can be no name."""
    if not NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} cannot name a template: letters, digits, '.', '_' and '-', 64 at most")
    return template_directory(env) / f"{name}.toml"


def template_directory(env: Environment) -> Path:
    """Where the templates lie."""
    return env.directories.config / "templates"


def template_names(env: Environment) -> Iterator[str]:
    """The names of all there are, in order."""
    yield from sorted(path.stem for path in template_directory(env).glob("*.toml") if NAME.fullmatch(path.stem))


def read_template(env: Environment, name: str) -> PromptTemplate:
    """Read one. Raises UsageError, with the name that was probably meant, or with what is wrong in the file."""
    from leap_core.configuration import parse_toml

    path = template_path(env, name)
    try:
        table = parse_toml(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise click.UsageError(_not_there(env, name)) from None
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from None
    options = table.pop("options", {})
    if not isinstance(options, dict):
        raise click.UsageError(f"{path}: options must be a table")
    for key, value in table.items():
        if key not in TEXTS:
            raise click.UsageError(f"{path}: there is no {key!r} in a template, only {', '.join(TEXTS)} and options")
        if not isinstance(value, str) or not value.strip():
            raise click.UsageError(f"{path}: {key} must be a text, and not empty")
    for key in options:
        if key in NOT_SAVED:
            raise click.UsageError(f"{path}: the option {key} cannot stand in a template")
    return PromptTemplate(name, **table, options=options)


def write_template(env: Environment, template: PromptTemplate) -> Path:
    """Write one, in one step; the file."""
    import tomlkit

    from leap_core.storage.atomic_files import replace_text

    document = tomlkit.document()
    for key in TEXTS:
        value = getattr(template, key)
        if value is not None:
            document[key] = value
    if template.options:
        document["options"] = template.options
    path = template_path(env, template.name)
    replace_text(path, tomlkit.dumps(document))
    return path


def _use(context: click.Context, _option: click.Parameter, name: str | None) -> PromptTemplate | None:
    if name is None or context.resilient_parsing:
        return None
    env = context.ensure_object(Environment)
    template = read_template(env, name)
    assert isinstance(context.default_map, OptionDefaults)
    values = dict(template.options)
    if template.system is not None:
        literal = f"@{template.system}" if template.system.startswith("@") else template.system
        values["system"] = literal
    context.default_map.prefer(values, str(template_path(env, name)))
    return template


def _not_there(env: Environment, name: str) -> str:
    near = get_close_matches(name, template_names(env), 1)
    advice = f"did you mean {near[0]}?" if near else "leap templates list shows those there are"
    return f"there is no template {name!r}; {advice}"
