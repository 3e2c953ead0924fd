"""``leap saved``: what is kept under a name, templates, schemas and recipes; each is a file with the same verbs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from leap_core.system.dataclass import dataclass

from ...config.saved import (
    KINDS,
    RECIPES,
    SCHEMAS,
    TEMPLATES,
    NamedFiles,
    PromptTemplate,
    edit_file,
    parse_template,
    read_parameters,
    read_template,
)
from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, format_option, leap_group
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_or_warning
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.output import Format, Output
from ...input.prompt import INPUT
from ...options.constraints import SHAPE, Constraint, read_schema_argument
from ...options.loading import MODEL_OPTION
from ...options.prompt import SYSTEM_OPTION, check_options, read_system_option, save_template, typed_options
from ...options.sampling import PLAIN_SAMPLING, Sampling
from ...options.tools import TOOLS, Tools


@leap_group("saved")
def command() -> None:
    """Saved prompt templates, JSON schemas and task recipes.

    Each is a file next to config.toml, which you can edit and share.
    """


@command.command("list")
@format_option("names")
def list_saved(env: Environment, /, format: str) -> None:
    """List all saved templates, schemas and recipes."""
    records = [
        {"name": name, "kind": files.kind, "file": str(files.path(env, name))}
        for files in KINDS
        for name in files.names(env)
    ]
    none = "nothing is saved; leap saved templates add saves a prompt, leap saved schemas add a schema"
    Output(env, format).records(records, ["name", "kind", "file"], name="name", none=none)


@dataclass(frozen=True)
class FileVerbs:
    """The verbs that every kind has: list, edit and remove.

    ``describe``: the record of a file with this name and path. ``check``: a text under this name, written to a file;
    both raise UsageError or LeapError for what cannot be used. ``columns``: of the table. ``shipped``: leap's own files
    by name; the user's of the same name replace them.
    """

    files: NamedFiles
    describe: Callable[[Environment, str, Path], Mapping[str, Any]]
    check: Callable[[Environment, str, str, Path], object]
    columns: Sequence[str]
    shipped: Callable[[], Mapping[str, Path]] = dict

    def find(self, env: Environment, name: str) -> Path:
        """The user's file of this name, else leap's own. Raises UsageError where there is none."""
        return self.files.find(env, name) or self.shipped().get(name) or self.files.existing(env, name)


def add_file_verbs(group: click.Group, verbs: FileVerbs) -> None:
    """Give a group of commands the verbs."""
    files, kind = verbs.files, verbs.files.kind

    @group.command("list", help=f"List the saved {kind}s.")
    @format_option("names")
    def list_files(env: Environment, /, format: str) -> None:
        output = Output(env, format)
        paths = {**verbs.shipped(), **{name: files.path(env, name) for name in files.names(env)}}
        records = (outcome_or_warning(output, partial(verbs.describe, env, *each)) for each in sorted(paths.items()))
        none = "" if paths else f"no {kind} is saved; {files.command} add saves one"
        output.records([each for each in records if each is not None], verbs.columns, name="name", none=none)

    taken = f"What you write is taken only when it is a {kind}."

    @group.command("edit", help=f"Open a {kind} in $VISUAL, else $EDITOR. {taken}")
    @click.argument("name")
    def edit(env: Environment, /, name: str) -> None:
        before, target = verbs.find(env, name), files.path(env, name)

        def check(text: str, draft: str) -> None:
            verbs.check(env, name, text, Path(draft))

        changed = edit_file(env, target, check, beginning=before.read_text("utf-8", "replace"))
        Output(env).note(f"saved {target}" if changed else "nothing was changed")

    @group.command("remove", help=f"Delete a {kind}.")
    @click.argument("name")
    def remove(env: Environment, /, name: str) -> None:
        path = verbs.find(env, name)
        if path != files.path(env, name):
            raise click.UsageError(f"the {kind} {name} is leap's own; you have none to remove")
        path.unlink()


@command.group("templates")
def templates() -> None:
    """Prompt templates: prompts, system prompts and options for generate, chat and batch: -t NAME -p variable=value.

    Each is a TOML file in the directory templates of the configuration, which you can edit and share.
    """


def _check_template(_env: Environment, name: str, text: str, file: Path) -> None:
    check_options(parse_template(name, text.encode(), str(file)), str(file))


add_file_verbs(
    templates,
    FileVerbs(
        TEMPLATES,
        lambda env, name, _path: read_template(env, name).to_json(),
        _check_template,
        ["name", "about", "variables", "prompt"],
    ),
)


@templates.command("show")
@click.argument("name")
@format_choice("Output format: the file (text), or one JSON document.", [Format.TEXT.value, Format.JSON.value])
def show_template(env: Environment, /, name: str, format: str) -> None:
    """Print a template."""
    output = Output(env, format)
    template = read_template(env, name)
    if output.format is Format.JSON:
        output.document(template.to_json())
    else:
        output.text(TEMPLATES.path(env, name).read_text("utf-8"))


@dataclass(frozen=True)
class NewTemplate:
    """What is saved, the ``defaults`` of its variables, and whether it may ``replace`` another."""

    template: PromptTemplate
    defaults: dict[str, str]
    replace: bool


def _new_template(arguments: Arguments) -> NewTemplate:
    template = PromptTemplate(
        arguments["name"],
        about=arguments["about"],
        system=read_system_option(arguments),
        prompt=arguments["prompt"],
        options=typed_options(arguments),
    )
    return NewTemplate(template, read_parameters(arguments["param"]), arguments["replace"])


NEW_TEMPLATE = OptionGroup(
    "new",
    "",
    (
        click.argument("name"),
        click.argument("prompt", default=INPUT),
        SYSTEM_OPTION,
        option("-p", "--param", multiple=True, metavar="NAME=VALUE", saved=None, help="Default value of a variable."),
        option("--about", saved=None, help="One-line description for the list of templates."),
        option("--replace", is_flag=True, saved=None, help="Replace a template of the same name."),
        MODEL_OPTION,
    ),
    _new_template,
)


@templates.command("add")
@NEW_TEMPLATE
@PLAIN_SAMPLING
@SHAPE
@TOOLS
def add_template(env: Environment, /, new: NewTemplate, sampling: Sampling, shape: Constraint, tools: Tools) -> None:
    """Save PROMPT, in which {input} is a placeholder for the later prompt, with options of leap generate, as NAME.

    Every other {name} in PROMPT or --system is a variable: -p name=value sets its value later, and its default here.
    Without {input}, the later prompt follows PROMPT. Schemas, grammars and @FILE are read now; tool files are read on
    use.
    """
    sampling.options(shape, tool_choice=tools.choice)  # says what is out of its range
    Output(env).note(save_template(env, new.template, new.defaults, replace=new.replace))


@command.group("schemas")
def schemas() -> None:
    """JSON schemas saved under a name for --json-schema NAME, shown and checked. SCHEMA is a file, JSON text, a name,
    or the shorthand 'name, age int, tags list[str]: what they did'."""


def _in_words(document: Any) -> str:
    """The beginning of a schema for people: ``name string, age integer``; what it is where it has no fields."""
    if not isinstance(document, dict):
        return "anything" if document else "nothing"
    if document.get("type") == "array":
        return f"list of {_in_words(document.get('items', True))}"
    fields = document.get("properties")
    if not isinstance(fields, dict) or not fields:
        return str(document.get("type", "a schema"))
    kinds = ((name, field.get("type") if isinstance(field, dict) else None) for name, field in fields.items())
    return ", ".join(f"{name} {kind}" if isinstance(kind, str) else name for name, kind in kinds)


def _describe_schema(env: Environment, name: str, path: Path) -> dict[str, Any]:
    document = read_schema_argument(str(path), env)
    return {"name": name, "fields": _in_words(document), "schema": document}


add_file_verbs(
    schemas,
    FileVerbs(
        SCHEMAS,
        _describe_schema,
        lambda env, _name, _text, file: read_schema_argument(str(file), env),
        ["name", "fields"],
    ),
)


@schemas.command("add")
@click.argument("name")
@click.argument("schema")
@click.option("--multi", is_flag=True, help="Save the schema of a list of SCHEMA.")
@click.option("--replace", is_flag=True, help="Replace a schema of the same name.")
def add_schema(env: Environment, /, name: str, schema: str, multi: bool, replace: bool) -> None:
    """Save SCHEMA as NAME, for every option that takes a schema.

    A file of the same name in the current directory overrides it, and it overrides a shorthand of one word.
    """
    from leap_core.system.files import replace_text

    path = SCHEMAS.free(env, name, replace=replace)
    document = read_schema_argument(schema, env, many=multi)
    replace_text(path, json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    Output(env).note(f"saved {path}")


@schemas.command("show")
@click.argument("schema")
@click.option("--multi", is_flag=True, help="Print the schema of a list of SCHEMA.")
def show_schema(env: Environment, /, schema: str, multi: bool) -> None:
    """Print the JSON schema of SCHEMA."""
    Output(env).document(read_schema_argument(schema, env, many=multi))


@schemas.command("check")
@click.argument("schema")
@format_choice("Output format: text, or one JSON document.", [Format.TEXT.value, Format.JSON.value])
@click.option("--strict", is_flag=True, help="Exit with 6 unless the whole schema is enforced during generation.")
def check_schema(env: Environment, /, schema: str, format: str, strict: bool) -> ExitCode:
    """Show which parts of SCHEMA are enforced during generation and which are only validated afterwards.

    A schema that cannot be used is an error (exit code 6) that names the place.
    """
    from leap_core.inference.constraints.grammars import enforce
    from leap_core.schemas.grammar_matcher import byte_tokenizer
    from leap_core.schemas.json_schema import check_schema as checked

    output = Output(env, format)
    enforced = enforce(checked(read_schema_argument(schema, env)), byte_tokenizer())
    if output.format is Format.JSON:
        output.document({"enforced_completely": enforced.exact, "warnings": list(enforced.warnings)})
    else:
        for warning in enforced.warnings:
            output.text(f"{warning}\n")
        output.text("all of it is enforced\n" if enforced.exact else "the rest is enforced\n")
    return ExitCode.SCHEMA if strict and not enforced.exact else ExitCode.DONE


@command.group("recipes")
def recipes() -> None:
    """Recipes define the prompts of a task for each family of models: one TOML file per task. A file of the same name
    in the directory recipes next to config.toml overrides leap's own, and leap saved recipes edit starts with a copy of
    that. Templates (leap saved templates) are for leap generate; recipes are for the task commands."""


def _describe_recipe(env: Environment, name: str, path: Path) -> dict[str, Any]:
    from leap_core.tasks.recipe import recipe_of

    own = path.parent == RECIPES.place(env)
    return {"name": name, "about": recipe_of(path).about, "own": own, "file": str(path)}


def _check_recipe(_env: Environment, name: str, text: str, file: Path) -> None:
    from leap_core.tasks.recipe import parse_recipe
    from leap_core.tasks.task_fields import check_places

    check_places(parse_recipe(name, text, file))


def _shipped() -> dict[str, Path]:
    from leap_core.tasks.recipe import recipe_paths

    return recipe_paths()


RECIPE_VERBS = FileVerbs(RECIPES, _describe_recipe, _check_recipe, ["name", "about", "own", "file"], _shipped)
add_file_verbs(recipes, RECIPE_VERBS)


@recipes.command("show")
@click.argument("name")
def show_recipe(env: Environment, /, name: str) -> None:
    """Print a recipe, to edit and add."""
    from leap_core.tasks.recipe import text_of_recipe

    Output(env).text(text_of_recipe(RECIPE_VERBS.find(env, name)))


@recipes.command("add")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace a recipe of the same name.")
def add_recipe(env: Environment, /, file: str, replace: bool) -> None:
    """Check a recipe FILE and save it under its name, which is a task's: extract.toml, translate.toml and so on."""
    from leap_core.system.files import replace_text
    from leap_core.tasks.recipe import recipe_of
    from leap_core.tasks.task_fields import check_places

    recipe = recipe_of(env.cwd / file)
    check_places(recipe)
    target = RECIPES.free(env, recipe.name, replace=replace)
    replace_text(target, recipe.source)
    Output(env).note(f"added {recipe.name} as {target}")
