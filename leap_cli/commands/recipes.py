"""``leap recipes``: how tasks are put to models."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from leap_core.errors import LeapError

from ..config.editing import edit_file
from ..exit_codes import ExitCode
from ..framework.click_classes import leap_group
from ..framework.environment import Environment
from ..framework.error_boundary import outcome_of
from ..framework.output import Format, Output
from ..options.output_format import FormatChoice
from ..options.tasks import recipes_directory

FORMATS = FormatChoice([kind.value for kind in Format])


@leap_group("recipes")
def command() -> None:
    """Recipes say how a task is put to each family of models: one TOML file a task. A file of the same name in the
    directory recipes beside config.toml takes the place of leap's own. Saved prompts (leap templates) are for leap
    generate; recipes are what the task commands use."""


@command.command("list")
@click.option(
    "--format",
    type=FORMATS,
    default=Format.TEXT.value,
    help="Print text, one json document, jsonl, or quiet: names only.",
)
@click.pass_obj
def list_recipes(env: Environment, /, format: str) -> ExitCode:
    """List the recipes there are, and their files."""
    from leap_core.tasks.recipe import recipe_of, recipe_paths

    output = Output(env, format)
    rows = []
    for name, path in sorted(recipe_paths([recipes_directory(env)]).items()):
        own = path.parent == recipes_directory(env)
        recipe = outcome_of(partial(recipe_of, path))
        if isinstance(recipe, LeapError):
            output.warning(recipe.message)
        else:
            rows.append({"name": name, "about": recipe.about, "own": own, "file": str(path)})
    output.records(rows, ["name", "about", "own", "file"], name="name")
    return ExitCode.DONE


@command.command("show")
@click.argument("name")
@click.pass_obj
def show(env: Environment, /, name: str) -> ExitCode:
    """Print a recipe, to be changed and added."""
    from leap_core.tasks.recipe import text_of_recipe

    Output(env).text(text_of_recipe(_path_of(name, env)))
    return ExitCode.DONE


@command.command("add")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace a recipe of the same name.")
@click.pass_obj
def add(env: Environment, /, file: str, replace: bool) -> ExitCode:
    """Check a recipe's FILE and keep it under its name, which is a task's: extract.toml, translate.toml and so on."""
    from leap_core.storage.atomic_files import replace_text
    from leap_core.tasks.reading import check_places
    from leap_core.tasks.recipe import recipe_of

    recipe = recipe_of(env.cwd / file)
    check_places(recipe)
    target = recipes_directory(env) / f"{recipe.name}.toml"
    if target.exists() and not replace:
        raise click.UsageError(f"there is a recipe {recipe.name} already; --replace replaces it")
    replace_text(target, recipe.source)
    Output(env).note(f"added {recipe.name} as {target}")
    return ExitCode.DONE


@command.command("edit")
@click.argument("name")
@click.pass_obj
def edit(env: Environment, /, name: str) -> ExitCode:
    """Open your recipe, or a copy of leap's own, in $VISUAL, else $EDITOR. What you write is kept only when it can be
    used."""
    from leap_core.tasks.reading import check_places
    from leap_core.tasks.recipe import parse_recipe, text_of_recipe

    def check(text: str, draft: str) -> None:
        check_places(parse_recipe(name, text, Path(draft)))

    path = _path_of(name, env)
    target = recipes_directory(env) / f"{name}.toml"
    if edit_file(env, target, check, beginning=text_of_recipe(path)):
        Output(env).note(f"saved {target}")
    return ExitCode.DONE


@command.command("remove")
@click.argument("name")
@click.pass_obj
def remove(env: Environment, /, name: str) -> ExitCode:
    """Forget your own recipe; leap's stands in its place again."""
    path = _path_of(name, env)
    if path.parent != recipes_directory(env):
        raise click.UsageError(f"the recipe {name} is leap's own; there is none of yours to remove")
    path.unlink()
    return ExitCode.DONE


def _path_of(name: str, env: Environment) -> Path:
    """The file of a recipe: the user's, or leap's own. Raises UsageError."""
    from leap_core.tasks.recipe import recipe_paths

    paths = recipe_paths([recipes_directory(env)])
    if name not in paths:
        raise click.UsageError(f"there is no recipe {name}; known are {', '.join(sorted(paths))}")
    return paths[name]
