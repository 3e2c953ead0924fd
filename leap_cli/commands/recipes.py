"""``leap recipes``: how tasks are put to models."""

from __future__ import annotations

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_group
from ..framework.environment import Environment
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
    from leap_core.tasks.recipe import recipes

    rows = [
        {"name": each.name, "about": each.about, "file": str(each.path)} for each in recipes([recipes_directory(env)])
    ]
    Output(env, format).records(rows, ["name", "about", "file"], name="name")
    return ExitCode.DONE


@command.command("show")
@click.argument("name")
@click.pass_obj
def show(env: Environment, /, name: str) -> ExitCode:
    """Print a recipe, to be changed and added."""
    from leap_core.tasks.recipe import read_recipe

    path = read_recipe(name, [recipes_directory(env)]).path
    assert path is not None
    Output(env).text(path.read_text(encoding="utf-8"))
    return ExitCode.DONE


@command.command("add")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace a recipe of the same name.")
@click.pass_obj
def add(env: Environment, /, file: str, replace: bool) -> ExitCode:
    """Check a recipe's FILE and keep it under its name."""
    from leap_core.storage.atomic_files import replace_text
    from leap_core.tasks.recipe import recipe_of

    recipe = recipe_of(env.cwd / file)
    target = recipes_directory(env) / f"{recipe.name}.toml"
    if target.exists() and not replace:
        raise click.UsageError(f"there is a recipe {recipe.name} already; --replace replaces it")
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_text(target, (env.cwd / file).read_text(encoding="utf-8"))
    Output(env).note(f"added {recipe.name} as {target}")
    return ExitCode.DONE
