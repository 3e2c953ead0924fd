"""What is saved under a name: prompts, schemas, recipes; each a file that the user may edit.

about = "Translates"
    system = "You translate into {language}."
    prompt = "Translate this: {input}"
    variables = ["language", "tone"]

    [defaults]
    tone = "friendly"

    [options]
    temperature = 0

``options`` are those of ``leap generate`` by their long names, as in ``[options.generate]`` of config.toml; all of the
file may be left out but one thing. What is given on the command line overrides it. ``variables`` are names
in braces; those with a default need not be given. A name in braces that is not declared represents itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import click

from leap_core.errors import LeapError
from leap_core.system.dataclass import dataclass
from leap_core.system.files import replace_text

from ..framework.arguments import reading
from ..framework.environment import Environment
from ..input.prompt import INPUT, Pattern, names_in
from ..input.prompt import NAME as VARIABLE

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class NamedFiles:
    """Files of a kind, such as ``schema``, in ``directory`` with ``suffix``.
    ``reserved``: an expression of words that are no names."""

    kind: str
    directory: str
    suffix: str
    reserved: str = ""

    @property
    def command(self) -> str:
        """The command whose verbs are about them."""
        return f"leap saved {self.directory}"

    def place(self, env: Environment) -> Path:
        """The directory."""
        return env.directories.config / self.directory

    def path(self, env: Environment, name: str) -> Path:
        """The file of this name, which need not be there. Raises UsageError for what can be no name."""
        if not self._is_name(name):
            rule = "letters, digits, '.', '_' and '-', 64 at most"
            raise click.UsageError(f"{name!r} cannot name a {self.kind}: {rule}")
        return self.place(env) / f"{name}{self.suffix}"

    def names(self, env: Environment) -> Iterator[str]:
        """The names of all there are, in order."""
        files = (path for path in self.place(env).glob(f"*{self.suffix}") if path.is_file())
        yield from sorted(path.stem for path in files if NAME.fullmatch(path.stem))

    def find(self, env: Environment, name: str) -> Path | None:
        """The file of this name; None where there is none, and for what is no name."""
        path = self.path(env, name) if self._is_name(name) else None
        return path if path is not None and path.is_file() else None

    def existing(self, env: Environment, name: str) -> Path:
        """The file of this name. Raises UsageError where there is none, with the name that was probably meant."""
        path = self.path(env, name)
        if not path.is_file():
            raise self.unknown(env, name)
        return path

    def free(self, env: Environment, name: str, *, replace: bool) -> Path:
        """Where a new file of this name goes. Raises UsageError where there is one that is not to be replaced."""
        path = self.path(env, name)
        if path.exists() and not replace:
            raise click.UsageError(f"there is a {self.kind} {name} already; {self.command} add --replace replaces it")
        return path

    def unknown(self, env: Environment, name: str) -> click.UsageError:
        """What to say of a name that no file has."""
        from difflib import get_close_matches

        near = get_close_matches(name, self.names(env), 1)
        meant = f"did you mean {near[0]}?" if near else f"{self.command} list shows those there are"
        return click.UsageError(f"there is no {self.kind} {name!r}; {meant}")

    def is_misspelt(self, env: Environment, name: str) -> bool:
        """Whether a word is nearly the name of a file."""
        from difflib import get_close_matches

        return bool(get_close_matches(name, self.names(env), 1, 0.75))

    def _is_name(self, name: str) -> bool:
        return bool(NAME.fullmatch(name)) and not re.fullmatch(self.reserved, name)


TEMPLATES = NamedFiles("template", "templates", ".toml")
SCHEMAS = NamedFiles("schema", "schemas", ".json", reserved=r"true|false|.*\.json")
"""The reserved words are schemas, or files, themselves."""
RECIPES = NamedFiles("recipe", "recipes", ".toml")
KINDS = (TEMPLATES, SCHEMAS, RECIPES)


TEXTS = ("about", "system", "prompt")
TABLES = ("variables", "defaults", "options")


@dataclass(frozen=True)
class PromptTemplate:
    """What a file says. ``prompt``: the pattern, in which ``{input}`` is what is asked. ``variables`` None: the
    file declares none."""

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
                from difflib import get_close_matches

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
    with reading(str(path)):
        data = path.read_bytes()
    return parse_template(name, data, str(path))


def parse_template(name: str, data: bytes, path: str) -> PromptTemplate:
    """A file's content as the template of this name. Raises UsageError or LeapSerializationError naming ``path``."""
    from leap_core.system.configuration import parse_toml

    table = parse_toml(data, path, f"leap saved templates edit {name} opens it")
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

    from leap_core.system.files import replace_text

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


def edit_file(env: Environment, file: Path, check: Callable[[str, str], object], *, beginning: str = "") -> bool:
    """Open a copy of the file in ``$VISUAL``, else ``$EDITOR``, and put it in the file's place; whether it differs.

    ``check`` is given the text and the copy's name and raises UsageError or LeapError for what cannot be
    used; then nothing is changed and the copy is kept. ``beginning``: what the copy says where there is no file yet.
    Raises LeapError where the editor fails.
    """
    before = file.read_text("utf-8", "replace") if file.is_file() else beginning
    draft = file.with_name(f".{file.stem}-{os.getpid()}{file.suffix}")
    replace_text(draft, before)
    import shlex  # here, because every prompt would pay for them
    import subprocess

    editor = env.variables.get("VISUAL") or env.variables.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    try:
        code = subprocess.run([*shlex.split(editor), str(draft)], check=False).returncode
    except (OSError, ValueError) as error:
        draft.unlink()
        raise LeapError(f"cannot start the editor {editor!r}: {error}", hint="set EDITOR to one that is here") from None
    if code:
        draft.unlink()
        raise LeapError(f"the editor {editor!r} ended with code {code}; nothing was changed")
    text = draft.read_text("utf-8", "replace")
    try:
        check(text, str(draft))
    except click.UsageError as error:
        raise click.UsageError(f"{error.message} (nothing was changed; what you wrote is kept there)") from None
    except LeapError as error:
        error.hint = "nothing was changed; what you wrote is kept there"
        raise
    if text != before:
        replace_text(file, text)
    draft.unlink()
    return text != before
