"""Saved prompts: a system prompt, a pattern, variables and options under a name. One TOML file each.

    about = "Translates"
    system = "You translate into {language}."
    prompt = "Translate this: {input}"
    variables = ["language", "tone"]

    [defaults]
    tone = "friendly"

    [options]
    temperature = 0

``options`` are those of ``leap generate`` by their long names, as in ``[options.generate]`` of config.toml; all of the
file may be left out but one thing. What is given on the command line overrides it. ``variables`` are names that stand
in braces; those with a default need not be given. A name in braces that is not declared stands for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from ..framework.environment import Environment
from ..input.pattern import INPUT, Pattern, names_in
from ..input.pattern import NAME as VARIABLE
from .named_files import TEMPLATES

TEXTS = ("about", "system", "prompt")
TABLES = ("variables", "defaults", "options")


@dataclass(frozen=True)
class PromptTemplate:
    """What a file says. ``prompt``: the pattern, in which ``{input}`` is what is asked. ``variables`` None: the
    file declares none, as those of former versions."""

    name: str
    about: str | None = None
    system: str | None = None
    prompt: str = INPUT
    options: dict[str, Any] = field(default_factory=dict)
    variables: tuple[str, ...] | None = None
    defaults: dict[str, str] = field(default_factory=dict)

    @property
    def declared(self) -> tuple[str, ...]:
        """The names of its variables, each once."""
        return tuple(dict.fromkeys([*(self.variables or ()), *self.defaults]))

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Names in braces that might be meant as variables, in a file that declares none."""
        return names_in(self.system, self.prompt) if self.variables is None and not self.defaults else ()

    def with_values(self, values: Mapping[str, str]) -> FilledTemplate:
        """The template with these values of variables. Raises UsageError for a name that it has not."""
        known = (*self.declared, *self.undeclared)
        for name in values:
            if name not in known:
                near = get_close_matches(name, known, 1)
                there = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
                raise click.UsageError(f"the template {self.name} has no variable {name!r}; {there}")
        return FilledTemplate(self, {**self.defaults, **values})

    def to_json(self) -> dict[str, Any]:
        """Everything it has."""
        texts = {name: getattr(self, name) for name in TEXTS}
        return {
            "name": self.name,
            **texts,
            "variables": {name: self.defaults.get(name) for name in self.declared},
            "options": self.options,
        }


@dataclass(frozen=True)
class FilledTemplate:
    """A template and the values of its variables."""

    template: PromptTemplate
    values: Mapping[str, str]

    @property
    def pattern(self) -> Pattern:
        """What is asked is filled into this."""
        return Pattern(self.template.prompt, self.values)

    @property
    def system(self) -> str | None:
        """The system prompt, its variables filled in."""
        system = self.template.system
        return None if system is None else Pattern(system, self.values).fill_variables()

    def check(self, names: tuple[str, ...]) -> None:
        """Raises UsageError naming those of its variables with these names that have no value."""
        missing = [name for name in self.template.declared if name in names and name not in self.values]
        if missing:
            flags = " ".join(f"-p {name}=..." for name in missing)
            raise click.UsageError(f"the template {self.template.name} needs {' and '.join(missing)}: give {flags}")


def read_template(env: Environment, name: str) -> PromptTemplate:
    """Read one. Raises UsageError, with the name that was probably meant, or with what is wrong in the file."""
    path = TEMPLATES.existing(env, name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {path}: {error.strerror}") from None
    return parse_template(name, data, str(path))


def parse_template(name: str, data: bytes, path: str) -> PromptTemplate:
    """A file's content as the template of this name. Raises UsageError or LeapSerializationError naming ``path``."""
    from leap_core.configuration import parse_toml

    table = parse_toml(data, path, f"leap templates edit {name} opens it")
    options, defaults = _table_of(table, "options", path), _table_of(table, "defaults", path)
    variables = _variables(table.pop("variables", None), path)
    for key, value in table.items():
        if key not in TEXTS:
            raise click.UsageError(f"{path}: there is no {key!r} in a template, only {', '.join((*TEXTS, *TABLES))}")
        if not isinstance(value, str) or not value.strip():
            raise click.UsageError(f"{path}: {key} must be a text, and not empty")
    for key, value in defaults.items():
        _check_variable(key, f"{path}: defaults")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise click.UsageError(f"{path}: the default of {key} must be a text or a number")
    texts = {key: str(value) for key, value in defaults.items()}
    return PromptTemplate(name, **table, options=options, variables=variables, defaults=texts)


def write_template(env: Environment, template: PromptTemplate) -> Path:
    """Write one, in one step; the file."""
    import tomlkit

    from leap_core.storage.atomic_files import replace_text

    document = tomlkit.document()
    for key in TEXTS:
        value = getattr(template, key)
        if value is not None:
            document[key] = value
    if template.variables:
        document["variables"] = list(template.variables)
    for key in ("defaults", "options"):
        if getattr(template, key):
            document[key] = getattr(template, key)
    path = TEMPLATES.path(env, template.name)
    replace_text(path, tomlkit.dumps(document))
    return path


def read_parameters(values: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE`` of every ``-p``. Raises UsageError."""
    values_by_name: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"-p takes NAME=VALUE, such as -p language=French, and not {text!r}")
        _check_variable(name, "-p")
        if name in values_by_name:
            raise click.UsageError(f"-p gives {name} twice")
        values_by_name[name] = value
    return values_by_name


def _table_of(table: dict[str, Any], name: str, path: str) -> dict[str, Any]:
    value = table.pop(name, {})
    if not isinstance(value, dict):
        raise click.UsageError(f"{path}: {name} must be a table")
    return value


def _variables(value: object, path: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise click.UsageError(f"{path}: variables must be a list of names")
    for name in value:
        _check_variable(name, f"{path}: variables")
    return tuple(value)


def _check_variable(name: str, where: str) -> None:
    if not VARIABLE.fullmatch(name) or name == "input":
        why = "it is what is asked" if name == "input" else "letters, digits and _, no digit first"
        raise click.UsageError(f"{where}: {name!r} cannot name a variable: {why}")
