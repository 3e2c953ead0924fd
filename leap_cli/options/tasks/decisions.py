"""How questions are asked: several at once from a file, pictures, what is read, in how many orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from ...framework.environment import Environment
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.text_arguments import FileName
from ...input.text_files import read_text_file

YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Asking:
    """``readout`` and ``orders`` as fields of a task."""

    readout: str | None
    orders: int

    @property
    def fields(self) -> dict[str, Any]:
        return {"orders": self.orders, **({} if self.readout is None else {"readout": self.readout})}


@dataclass(frozen=True)
class Questions:
    """``file`` of several questions, ``images`` to ask about, ``rows``: each row of a CSV table is a state, of which
    only ``columns``, where some are named. ``fit``: the file of cases to fit temperatures to."""

    file: str | None
    images: tuple[str, ...]
    rows: bool
    columns: tuple[str, ...]
    fit: str | None


def _build(arguments: Arguments) -> Asking:
    return Asking(arguments["readout"], arguments["orders"])


def _build_questions(arguments: Arguments) -> Questions:
    columns = arguments["columns"]
    names = tuple(name.strip() for name in (columns or "").split(","))
    if columns is not None and not all(names):
        raise click.UsageError(f"--columns {columns!r}: give the names of columns, with commas between them")
    return Questions(
        arguments["questions_file"],
        arguments["images"],
        arguments["rows"] or columns is not None,
        () if columns is None else names,
        arguments["fit"],
    )


ASKING = OptionGroup(
    "asking",
    "",
    (
        option(
            "--readout",
            type=click.Choice(["text", "labels"]),
            help="Read the whole text of each answer, or one token that stands for it; by default the text, and with"
            " models made for decisions the token.",
        ),
        option(
            "--orders",
            type=click.IntRange(1, 24),
            default=1,
            metavar="N",
            help="Ask with the answers in N orders, and say how many of them agree.",
        ),
    ),
    _build,
)

QUESTIONS = OptionGroup(
    "questions",
    "",
    (
        option("--questions", "questions_file", metavar="FILE", help="Ask the questions of this JSON or YAML file."),
        option(
            "--image",
            "images",
            type=FileName(),
            multiple=True,
            metavar="FILE",
            help="Ask about this picture; - reads standard input.",
        ),
        option("--rows", is_flag=True, help="Take each row of CSV tables as a text of its own."),
        option("--columns", metavar="A,B", help="Take these columns of each row alone, in this order (with --rows)."),
        option(
            "--fit",
            type=FileName(),
            metavar="FILE",
            help="Fit temperatures to the answered cases of this file, and keep them.",
        ),
    ),
    _build_questions,
    {"fit": ("images", "rows", "columns")},
)


def read_questions_file(name: str, env: Environment, option: str = "--questions") -> Any:
    """The value in a JSON or YAML file. Raises UsageError naming it and the option."""
    import json

    text = read_text_file(name, env)
    try:
        if not name.lower().endswith(YAML):
            return json.loads(text)
        return _yaml(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{option} {name} is not {_form(name)}: {error}") from None


def _form(name: str) -> str:
    return "YAML" if name.lower().endswith(YAML) else "JSON"


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
