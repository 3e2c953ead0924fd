"""Files that a user keeps under names, one kind in each directory of the configuration: templates, schemas, recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import click

from ..framework.environment import Environment

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class NamedFiles:
    """Files of a kind, such as ``schema``, in ``directory`` with ``suffix``; its commands are ``leap directory``.
    ``reserved``: an expression of words that are no names."""

    kind: str
    directory: str
    suffix: str
    reserved: str = ""

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
            command = f"leap {self.directory} add --replace"
            raise click.UsageError(f"there is a {self.kind} {name} already; {command} replaces it")
        return path

    def unknown(self, env: Environment, name: str) -> click.UsageError:
        """What to say of a name that no file has."""
        near = get_close_matches(name, self.names(env), 1)
        meant = f"did you mean {near[0]}?" if near else f"leap {self.directory} list shows those there are"
        return click.UsageError(f"there is no {self.kind} {name!r}; {meant}")

    def is_misspelt(self, env: Environment, name: str) -> bool:
        """Whether a word is nearly the name of a file."""
        return bool(get_close_matches(name, self.names(env), 1, 0.75))

    def _is_name(self, name: str) -> bool:
        return bool(NAME.fullmatch(name)) and not re.fullmatch(self.reserved, name)


TEMPLATES = NamedFiles("template", "templates", ".toml")
SCHEMAS = NamedFiles("schema", "schemas", ".json", reserved=r"true|false|.*\.json")
"""The reserved words are schemas, or files, themselves."""
RECIPES = NamedFiles("recipe", "recipes", ".toml")
