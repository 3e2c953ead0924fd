"""``leap recipes``: how tasks are put to models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..config.saved import RECIPES
from ..exit_codes import ExitCode
from ..framework.click_classes import leap_group
from ..framework.environment import Environment
from ..framework.output import Output
from .named_file_commands import FileVerbs, add_file_verbs


@leap_group("recipes")
def command() -> None:
    """Recipes say how a task is put to each family of models: one TOML file a task. A file of the same name in the
    directory recipes beside config.toml takes the place of leap's own, and leap recipes edit begins with a copy of
    that. Saved prompts (leap templates) are for leap generate; recipes are what the task commands use."""


def _describe(env: Environment, name: str, path: Path) -> dict[str, Any]:
    from leap_core.tasks.recipe import recipe_of

    own = path.parent == RECIPES.place(env)
    return {"name": name, "about": recipe_of(path).about, "own": own, "file": str(path)}


def _check(_env: Environment, name: str, text: str, file: Path) -> None:
    from leap_core.tasks.reading import check_places
    from leap_core.tasks.recipe import parse_recipe

    check_places(parse_recipe(name, text, file))


def _shipped() -> dict[str, Path]:
    from leap_core.tasks.recipe import recipe_paths

    return recipe_paths()


VERBS = FileVerbs(RECIPES, _describe, _check, ["name", "about", "own", "file"], _shipped)
add_file_verbs(command, VERBS)


@command.command("show")
@click.argument("name")
@click.pass_obj
def show(env: Environment, /, name: str) -> ExitCode:
    """Print a recipe, to be changed and added."""
    from leap_core.tasks.recipe import text_of_recipe

    Output(env).text(text_of_recipe(VERBS.find(env, name)))
    return ExitCode.DONE


@command.command("add")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace a recipe of the same name.")
@click.pass_obj
def add(env: Environment, /, file: str, replace: bool) -> ExitCode:
    """Check a recipe's FILE and keep it under its name, which is a task's: extract.toml, translate.toml and so on."""
    from leap_core.system.files import replace_text
    from leap_core.tasks.reading import check_places
    from leap_core.tasks.recipe import recipe_of

    recipe = recipe_of(env.cwd / file)
    check_places(recipe)
    target = RECIPES.free(env, recipe.name, replace=replace)
    replace_text(target, recipe.source)
    Output(env).note(f"added {recipe.name} as {target}")
    return ExitCode.DONE
