"""Recipes: how a task is put to a model, as data. One TOML file a task, with a wording for each family of models.

    about = "Translate a text"
    [[wording]]
    models = ["*ENJP-MT*"]                 # patterns of model names; the first wording that fits counts
    system = "Translate to {language}."    # {name}: what the task fills in
    user = "{text}"                        # the default
    options = { temperature = 0.3 }        # of the generation

Those of the package can be replaced, and others added, by files of the same form in a directory of the user.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import LeapOptionsError
from ..messages import ChatMessage
from ..options import GenerationOptions

SHIPPED = Path(__file__).parent / "recipes"
PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Wording:
    """How a task is put to the models whose names fit one of ``models``. ``only``: the values of the task's main
    parameter that the models know; None for any."""

    models: tuple[str, ...]
    system: str = ""
    user: str = "{text}"
    options: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] | None = None

    def fits(self, model: str) -> bool:
        """Whether this is the wording for a model."""
        return any(fnmatchcase(model.lower(), pattern.lower()) for pattern in self.models)

    def messages(self, values: Mapping[str, str]) -> list[ChatMessage]:
        """The messages with the values in their places."""
        system = _filled(self.system, values)
        opening = [ChatMessage("system", system)] if system else []
        return [*opening, ChatMessage("user", _filled(self.user, values))]

    def generation_options(self, **more: Any) -> GenerationOptions:
        """The options of the recipe, and ``more`` that the task sets. Raises LeapOptionsError."""
        return GenerationOptions.from_json({**self.options, **more}, "recipe.options")


@dataclass(frozen=True)
class Recipe:
    """``kinds``: instructions by name, where the task has several."""

    name: str
    about: str
    wordings: tuple[Wording, ...]
    kinds: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None

    def wording_for(self, model: str) -> Wording:
        """The first that fits the model's name. Raises LeapOptionsError where none does."""
        for wording in self.wordings:
            if wording.fits(model):
                return wording
        raise LeapOptionsError("recipe", f"{self.name} has no wording for the model {model}")


def read_recipe(name: str, directories: Sequence[Path] = ()) -> Recipe:
    """The recipe of this name: of the first directory that has it, else leap's own. Raises LeapOptionsError."""
    for directory in (*directories, SHIPPED):
        path = directory / f"{name}.toml"
        if path.is_file():
            return recipe_of(path)
    names = ", ".join(each.name for each in recipes(directories))
    raise LeapOptionsError("recipe", f"there is no recipe {name}; known are {names}")


def recipes(directories: Sequence[Path] = ()) -> list[Recipe]:
    """All recipes by name, those of the directories in the place of leap's own."""
    paths = {path.stem: path for directory in (SHIPPED, *reversed(directories)) for path in directory.glob("*.toml")}
    return [recipe_of(paths[name]) for name in sorted(paths)]


def recipe_of(path: Path) -> Recipe:
    """Read a file. Raises LeapOptionsError that names it."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table = toml.loads(path.read_text("utf-8"))
        wordings = tuple(_wording(each) for each in table["wording"])
        kinds = {str(name): str(text) for name, text in table.get("kinds", {}).items()}
        recipe = Recipe(path.stem, str(table.get("about", "")), wordings, kinds, path)
        for wording in wordings:
            wording.generation_options()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LeapOptionsError("recipe", f"{path} is no recipe: {error}") from None
    return recipe


def _wording(table: Mapping[str, Any]) -> Wording:
    texts = {key: table[key] for key in ("system", "user") if key in table}
    models = table["models"]
    if not all(isinstance(text, str) for text in (*texts.values(), *models)):
        raise ValueError("models, system and user are texts")
    only = tuple(map(str, table["only"])) if "only" in table else None
    return Wording(tuple(models), **texts, options=dict(table.get("options", {})), only=only)


def _filled(pattern: str, values: Mapping[str, str]) -> str:
    """One pass, so that a value that looks like a place stays as it is."""
    return PLACE.sub(lambda match: values.get(match[1], match[0]), pattern)
