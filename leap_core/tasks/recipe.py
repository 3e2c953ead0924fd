"""Recipes: how a task is put to a model, as data. One TOML file a task, with a wording for each family of models.

    about = "Translate a text"
    [[wording]]
    models = ["*ENJP-MT*"]                 # patterns of names, of files or in headers; the first that fits counts
    system = "Translate to {language}."    # {name}: what the task fills in
    user = "{text}"                        # the default
    options = { temperature = 0.3 }        # of the generation
    trained = true                         # these models were made for the task
    nulls = true                           # extract: an optional field that the text does not have is written as null
    verbatim = true                        # extract: strings without a description are words of the input
    calibrated = true                      # classify: what the model prefers without a text is taken away
    only = ["English", "Japanese"]         # the values of the task's main parameter that these models know
    input = "text"                         # or "picture"; without it the wording is for both

Those of the package can be replaced, and others added, by files of the same form in a directory of the user.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from ..conversation.messages import ChatMessage, ChatMessageContent, Text
from ..conversation.options import GenerationOptions
from ..errors import LeapOptionsError
from ..system.dataclass import dataclass

SHIPPED = Path(__file__).parent / "recipes"
PLACE = re.compile(r"\{(\w+)\}")
TEXT, PICTURE = "text", "picture"
INPUTS = (TEXT, PICTURE)
FIELDS = ("models", "system", "user", "options", "only", "input", "trained", "nulls", "verbatim", "calibrated")
TOP_FIELDS = ("about", "kinds", "wording")


@dataclass(frozen=True)
class Wording:
    """How a task is put to the models whose names fit one of ``models``. ``only``: the values of the task's main
    parameter that the models know; None for any. ``input``: what kind of input it is for; None for any.
    ``trained``: the models were made for the task. ``nulls``: they write null for an optional field that is absent,
    which is left out of the answer. ``verbatim``: strings without a description are words of the input, and those
    that differ from it in case alone are spelled as it has them. ``calibrated``: labels count by how much likelier the
    text makes them."""

    models: tuple[str, ...]
    system: str = ""
    user: str = "{text}"
    options: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] | None = None
    input: str | None = None
    trained: bool = False
    nulls: bool = False
    verbatim: bool = False
    calibrated: bool = False

    def fits(self, names: Iterable[str], input: str = TEXT) -> bool:
        """Whether this is the wording for a model with one of these names and a kind of input."""
        if self.input not in (None, input):
            return False
        return any(fnmatchcase(name.lower(), pattern.lower()) for name in names for pattern in self.models)

    def messages(self, values: Mapping[str, str], media: Iterable[ChatMessageContent] = ()) -> list[ChatMessage]:
        """The messages with the values in their places; ``media`` go before the user's text."""
        if "text" in values:  # ends of pages mean nothing to models
            values = {**values, "text": values["text"].replace("\f", "\n")}
        system, user = filled(self.system, values), filled(self.user, values)
        opening = [ChatMessage("system", system)] if system else []
        parts = [*media, *([Text(user)] if user else [])]
        return [*opening, ChatMessage("user", parts)]

    def generation_options(self, **more: Any) -> GenerationOptions:
        """The options of the recipe, and ``more`` that the task sets. Raises LeapOptionsError."""
        return GenerationOptions.from_json({**self.options, **more}, "recipe.options")

    @property
    def places(self) -> frozenset[str]:
        """The names in braces."""
        return frozenset(PLACE.findall(self.system)) | self.user_places

    @property
    def user_places(self) -> frozenset[str]:
        """Those of the user's turn."""
        return frozenset(PLACE.findall(self.user))


@dataclass(frozen=True)
class Recipe:
    """``kinds``: instructions by name, where the task has several. ``source``: the text of the file."""

    name: str
    about: str
    wordings: tuple[Wording, ...]
    kinds: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None
    source: str = ""

    def with_system(self, model: str, system: str, header_names: Sequence[str] = ()) -> Recipe:
        """The recipe with another system prompt for the model of this name. What is in braces there and is no place of
        the old one is text; a place that it has lost comes at its end."""
        old = self.wording_for(model, header_names=header_names)
        places = frozenset(PLACE.findall(old.system))
        text = PLACE.sub(lambda match: match[0] if match[1] in places else literal(match[0]), system)
        lost = sorted(places.difference(PLACE.findall(text)))
        text += "".join(f"\n\n{name}: {{{name}}}" for name in lost)
        wordings = (replace(old, models=(escape(model),), system=text), *self.wordings)
        return replace(self, wordings=wordings, source=_toml_of(self.about, self.kinds, wordings))

    def wording_for(self, model: str, input: str = TEXT, header_names: Sequence[str] = ()) -> Wording:
        """The first that fits the model's name or one that its file's header has, so that a renamed file is asked in
        the same way. Raises LeapOptionsError where none does."""
        for wording in self.wordings:
            if wording.fits((model, *header_names), input):
                return wording
        raise LeapOptionsError("recipe", f"{self.name} has no wording for a {input} and the model {model}")


def read_recipe(name: str, directories: Sequence[Path] = ()) -> Recipe:
    """The recipe of this name: of the first directory that has it, else leap's own. Raises LeapOptionsError."""
    for directory in (*directories, SHIPPED):
        path = directory / f"{name}.toml"
        if path.is_file():
            return recipe_of(path)
    names = ", ".join(sorted(recipe_paths(directories)))
    raise LeapOptionsError("recipe", f"there is no recipe {name}; known are {names}")


def recipes(directories: Sequence[Path] = ()) -> list[Recipe]:
    """All recipes by name, those of the directories in the place of leap's own."""
    paths = recipe_paths(directories)
    return [recipe_of(paths[name]) for name in sorted(paths)]


def recipe_paths(directories: Sequence[Path] = ()) -> dict[str, Path]:
    """The file of each recipe, by its name."""
    places = (SHIPPED, *reversed(directories))
    return {path.stem: path for place in places for path in place.glob("*.toml") if not path.name.startswith(".")}


def recipe_of(path: Path) -> Recipe:
    """Read a file. Raises LeapOptionsError that names it."""
    return parse_recipe(path.stem, text_of_recipe(path), path)


def text_of_recipe(path: Path) -> str:
    """The text of a file. Raises LeapOptionsError that names it."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise LeapOptionsError("recipe", f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


@lru_cache(maxsize=64)
def parse_recipe(name: str, text: str, path: Path | None = None) -> Recipe:
    """Read the text of a recipe; ``path`` is what errors name. Raises LeapOptionsError."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table = toml.loads(text)
        _only_known(table, TOP_FIELDS, "")
        wordings = tuple(_wording(each, n) for n, each in enumerate(table.get("wording", []), 1))
        if not wordings:
            raise ValueError("there is no [[wording]]")
        kinds = {str(name): str(text) for name, text in table.get("kinds", {}).items()}
        for wording in wordings:
            wording.generation_options()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LeapOptionsError("recipe", f"{path or name} is no recipe: {error}") from None
    return Recipe(name, str(table.get("about", "")), wordings, kinds, path, text)


def _toml_of(about: str, kinds: Mapping[str, str], wordings: Iterable[Wording]) -> str:
    import tomlkit

    tables = [
        {
            name: list(value) if isinstance(value, tuple) else value
            for name in FIELDS
            if (value := getattr(each, name)) not in (None, False, {}, "") or name == "system"
        }
        for each in wordings
    ]
    return tomlkit.dumps({"about": about, **({"kinds": dict(kinds)} if kinds else {}), "wording": tables})


def _wording(table: Mapping[str, Any], number: int) -> Wording:
    _only_known(table, FIELDS, f"wording {number}: ")
    if "models" not in table:
        raise ValueError(f"wording {number} has no models")
    texts = {key: table[key] for key in ("system", "user") if key in table}
    models = table["models"]
    if (
        not isinstance(models, list)
        or not models
        or not all(isinstance(text, str) for text in (*texts.values(), *models))
    ):
        raise ValueError(f"wording {number}: models is a list of texts, system and user are texts")
    if table.get("input", TEXT) not in INPUTS:
        raise ValueError(f"wording {number}: input is one of {', '.join(INPUTS)}")
    only = tuple(map(str, table["only"])) if "only" in table else None
    return Wording(
        tuple(models),
        **texts,
        options=dict(table.get("options", {})),
        only=only,
        input=table.get("input"),
        trained=table.get("trained") is True,
        nulls=table.get("nulls") is True,
        verbatim=table.get("verbatim") is True,
        calibrated=table.get("calibrated") is True,
    )


def _only_known(table: Mapping[str, Any], names: Sequence[str], place: str) -> None:
    for name in table:
        if name not in names:
            raise ValueError(f"{place}there is no {name}; known are {', '.join(names)}")


def literal(text: str) -> str:
    """The text with spaces in its braces, so that nothing in it is a place."""
    return PLACE.sub(r"{ \1 }", text)


def filled(pattern: str, values: Mapping[str, str]) -> str:
    """The pattern with the values in their places, in one pass, so that a value that looks like a place stays as it
    is."""
    return PLACE.sub(lambda match: values.get(match[1], match[0]), pattern)
