"""The options that task commands share: where texts come from, where answers go, how questions are asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ..config.saved import RECIPES
from ..framework.arguments import FileName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output, one_line
from ..input.file_sets import TakenFiles, files_in, is_file_set
from ..input.files import FileText, read_file_text, read_image, read_text_file, say_notes
from ..input.prompt import read_standard_input
from .background import BACKGROUND, OF_A_JOB, Background
from .constraints import FINISH_SHAPE
from .loading import MODEL, ModelChoice

if TYPE_CHECKING:
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.options import GenerationOptions
    from leap_core.documents.blocks import Document
    from leap_core.errors import LeapError
    from leap_core.tasks.task import RecipeTask

STDIN = "-"
TEXT = "text"
"""The name of a text that is an argument."""
NO_TEXT = "there is no text: give FILEs, the text itself, or the text on standard input"
FILE_NAME = re.compile(r"[/\\]|\.\w{1,5}$")
"""What a file's name looks like: a path, or an extension."""

LINE_END = re.compile(r"\r\n|\n|\r")
"""What ends a line for an editor, and for the line numbers of evidence; a form feed ends none."""


@dataclass(frozen=True)
class TaskSettings:
    """What all tasks have: where texts come from and where answers go, the model, and what takes the place of the
    recipe's sampling. ``errors``: the file of the texts that failed."""

    files: tuple[str, ...]
    lines: bool
    target: str | None
    errors: str | None
    dry_run: bool
    model: ModelChoice
    overrides: GenerationOptions
    background: Background
    new_files: TakenFiles | None = None
    """The command whose files are taken once; None where each run takes all."""

    def reads_later(self, env: Environment) -> bool:
        """Whether the files are read by the runs of a schedule."""
        return bool(self.background) and self.background.repeats_command(env)


@dataclass(frozen=True)
class TaskInput:
    """What a task is done to, and its name: a file's, with a line's number where each line is one. ``picture``: the
    file that it is a picture of. ``is_extracted``: the text is that of a document. ``problem``: why there is no
    text. ``source``: the file that it is from, or a part of."""

    name: str
    message: ChatMessage
    picture: str | None = None
    is_extracted: bool = False
    problem: LeapError | None = None
    scan: Document | None = None
    """The document, where pages of it are pictures."""
    notes: tuple[str, ...] = ()
    """What of the document could not be read."""
    source: str = ""


def _build(arguments: Arguments) -> TaskSettings:
    from leap_core.conversation.options import GenerationOptions

    sampling = arguments.of("temperature", "rng_seed", "max_tokens", "complete_json")
    if arguments.is_for_all("temperature"):
        sampling["temperature"] = None  # meant for answers in general; a task is asked as its recipe says
    return TaskSettings(
        **arguments.of("files", "lines", "target", "errors", "dry_run"),
        model=MODEL.build(arguments),
        overrides=GenerationOptions(**sampling),
        background=BACKGROUND.build(arguments),
        new_files=TakenFiles(arguments.env, " ".join(_same_files(arguments))) if arguments["new_files"] else None,
    )


def _same_files(arguments: Arguments) -> list[str]:
    """What was typed, but for what may change from run to run."""
    jobs = (*arguments.sharing_rules("background"), *OF_A_JOB)
    return arguments.command_line(without=("target", "errors", "model", *jobs)).words


TASK = OptionGroup(
    "settings",
    "",
    (
        click.argument("files", type=FileName(), metavar="[FILE|TEXT]...", nargs=-1),
        option("--lines", is_flag=True, help="Treat each line as one text."),
        option("--new-files", is_flag=True, rare=True, help="Read only files that this command has not read yet."),
        option("-o", "--output", "target", type=FileName(), help="Write the answers to this file."),
        option("--errors", metavar="FILE", help="Write failed texts and their errors to this file as JSONL."),
        option("--dry-run", is_flag=True, help="Print the rendered prompts and generate nothing."),
        option(
            "--temperature", type=float, heading="Sampling", help="Randomness of sampling, instead of the recipe's."
        ),
        option(
            "--seed", "rng_seed", type=int, heading="Sampling", help="Random seed; the same seed repeats the answer."
        ),
        option("--max-tokens", type=int, heading="Sampling", help="Stop each answer after this many tokens."),
        FINISH_SHAPE,
        MODEL,
        BACKGROUND,
    ),
    _build,
)


def read_inputs(settings: TaskSettings, env: Environment) -> list[TaskInput]:
    """The texts of the FILEs, of documents too and of those in a folder, the text that the arguments themselves are, or
    that of standard input without any. Raises UsageError where there is none. A command that is repeated reads what is
    in its folders when it runs."""
    from leap_core.conversation.page_pictures import left_out

    named = _sources(settings.files, env, settings)
    read = [(name, read_file_text(name, env) if text is None else FileText(text)) for name, text in named]
    for name, found in read:
        say_notes(found.document, name, env)
        if settings.lines and found.scan is not None and found.problem is None:
            Output(env).warning(left_out(one_line(name), found.scan.blank))
    inputs = [each for name, found in read for each in _parts_of(name, found, settings)]
    picks = settings.reads_later(env) or settings.new_files is not None
    may_be_none = picks and any(is_file_set(name, env) for name in settings.files)
    if not may_be_none and not any(each.problem or each.scan or each.message.text.strip() for each in inputs):
        raise click.UsageError(NO_TEXT)
    return named_apart(inputs)


def read_picture(name: str, env: Environment) -> TaskInput:
    """The picture in a file as what a task is done to. Raises UsageError."""
    from leap_core.conversation.messages import ChatMessage

    return TaskInput(name, ChatMessage("user", read_image(name, env, Output(env))), picture=name)


def named_apart(inputs: Sequence[TaskInput]) -> list[TaskInput]:
    """The inputs with names that differ."""
    from dataclasses import replace

    counts: dict[str, int] = {}
    apart = []
    for each in inputs:
        counts[each.name] = counts.get(each.name, 0) + 1
        apart.append(each if counts[each.name] == 1 else replace(each, name=f"{each.name}#{counts[each.name]}"))
    return apart


def read_sources(files: Sequence[str], env: Environment) -> list[tuple[str, str]]:
    """The whole texts that the arguments mean, each with its name: those of files as they are and, with ``-`` or
    without arguments, of standard input. Arguments of which none is a file, or looks like the name of one, are a text
    themselves. What was taken is said where it is not plain. Raises UsageError."""
    return [(name, read_text_file(name, env) if text is None else text) for name, text in _sources(files, env)]


def _sources(
    files: Sequence[str], env: Environment, settings: TaskSettings | None = None
) -> list[tuple[str, str | None]]:
    """What the arguments mean; a file has no text yet."""
    if files and not any(_means_file(name, env) for name in files):
        text = " ".join(files)
        Output(env).note(f"took {one_line(text)!r} as the text: there is no such file")
        return [(TEXT, text)]
    found: list[tuple[str, str | None]] = []
    later = settings is not None and settings.reads_later(env)
    taken = None if settings is None else settings.new_files
    for name in files or (STDIN,):
        if name == STDIN:
            found.append((name, read_standard_input(env, Output(env))))
        elif not is_file_set(name, env):
            found.append((name, None))
        elif not later:
            found += [(each, None) for each in files_in(name, env, may_be_empty=taken is not None)]
    return [(name, text) for name, text in found if text is not None or taken is None or not taken.has(name)]


def _means_file(name: str, env: Environment) -> bool:
    """Whether an argument is meant as a file: there is one, or it is a single word that looks like a file's name."""
    from leap_core.documents import is_address

    with suppress(OSError, ValueError):
        if name == STDIN or is_address(name) or (env.cwd / name).exists():
            return True
    return not name.strip() or (not any(map(str.isspace, name)) and FILE_NAME.search(name) is not None)


def read_task_of(fields: dict[str, Any], env: Environment) -> RecipeTask:
    """The task that these fields describe, with the user's recipe or leap's. Raises UsageError for a parameter."""
    from leap_core.errors import LeapOptionsError, LeapSerializationError
    from leap_core.tasks.task_fields import read_task

    try:
        return read_task(fields, own_recipes(env, fields["task"]))[0]
    except (LeapSerializationError, LeapOptionsError) as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise click.UsageError(f"--{error.message}{hint}") from None


def own_recipes(env: Environment, name: str = "*") -> dict[str, str]:
    """The texts of the user's own recipes, or of the one of this name. Raises LeapOptionsError where one cannot be
    read."""
    names = [each for each in RECIPES.names(env) if name in ("*", each)]
    if not names:
        return {}
    from leap_core.tasks.recipe import text_of_recipe

    return {each: text_of_recipe(RECIPES.path(env, each)) for each in names}


def _parts_of(name: str, found: FileText, settings: TaskSettings) -> list[TaskInput]:
    from leap_core.conversation.messages import ChatMessage

    texts, scan = [(name, found.text.rstrip("\r\n"))], found.scan
    if settings.lines and found.problem is None:
        text = texts[0][1] if scan is None else "\n".join(section.text for section in scan.sections)
        lines: Iterable[tuple[object, str]] = enumerate(LINE_END.split(text), 1)
        if name.lower().endswith(TABLES):
            from leap_core.documents.text import table_rows

            lines = table_rows(found.text)
        elif found.document is not None and found.document.rows:
            lines = found.document.rows
        texts, scan = [(f"{name}:{place}", line) for place, line in lines if line.strip()], None
    notes = () if found.document is None else found.document.notes
    return [
        TaskInput(part, ChatMessage("user", text), None, found.is_extracted, found.problem, scan, notes, name)
        for part, text in texts
    ]


TABLES = (".csv", ".tsv")
YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class TaskAsking:
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


def _build_asking(arguments: Arguments) -> TaskAsking:
    return TaskAsking(arguments["readout"], arguments["orders"])


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
            help="Score the whole text of each answer, or one token per answer; by default the text, and the "
            "token for models made for decisions.",
        ),
        option(
            "--orders",
            type=click.IntRange(1, 24),
            default=1,
            help="Ask with the answers in N orders and report how many agree.",
        ),
    ),
    _build_asking,
)

QUESTIONS = OptionGroup(
    "questions",
    "",
    (
        option("--questions", "questions_file", metavar="FILE", help="Ask the questions of this JSON or YAML file."),
        option(
            "--image", "images", type=FileName(), multiple=True, help="Ask about this image; - reads standard input."
        ),
        option("--rows", is_flag=True, help="Treat each row of CSV tables as one text."),
        option("--columns", metavar="A,B", help="Use these columns of each row, in this order (with --rows)."),
        option(
            "--calibrate",
            "fit",
            type=FileName(),
            help="Calibrate probabilities on the labeled cases of this file and save the result.",
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
        from leap_core.batch.input.small_files import read_yaml

        return read_yaml(text.encode())
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{option} {name} is not {_form(name)}: {error}") from None


def _form(name: str) -> str:
    return "YAML" if name.lower().endswith(YAML) else "JSON"


EXAMPLES = option("--examples", type=FileName(), help="Few-shot examples: JSONL with a text and its document.")


def read_examples_argument(name: str, schema: dict[str, object], env: Environment) -> list[dict[str, object]]:
    """The examples of a file. Raises LeapSerializationError for one that is wrong."""
    from leap_core.tasks.extraction import examples_of_file

    return [each.to_json() for each in examples_of_file(env.cwd / name, schema, name)]
