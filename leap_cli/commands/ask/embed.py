"""``leap embed``: vectors of texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ...exit_codes import ExitCode
from ...framework.arguments import FileName
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.interrupts import cancelling_on_interrupt
from ...framework.output import Format, Output
from ...input.files import read_text_file
from ...input.prompt import STDIN, numbered_lines, read_text
from ...options.background import BACKGROUND, Background, open_jobs, print_id
from ...options.embedding import BUILTIN_EMBED, EMBEDDER, EMBEDDING_OPTIONS, naming_texts, open_embedder
from ...options.loading import ModelChoice

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from leap_core.conversation.embedding import EmbeddingOptions

ARRAY = ".npy"


@dataclass(frozen=True)
class Item:
    """A text, the name of the ``file`` that it is (None for other texts), and its ``place`` for messages."""

    text: str
    file: str | None = None
    place: str = "the text"

    def record(self, number: int) -> dict[str, Any]:
        """What is beside its vector."""
        return {"index": number, **({"text": self.text} if self.file is None else {"file": self.file})}


@dataclass(frozen=True)
class EmbedArguments:
    """What is typed after ``leap embed``."""

    texts: tuple[str, ...]
    files: tuple[str, ...]
    lines: bool
    embedder: ModelChoice
    tokens: bool
    target: Path | None
    format: str
    background: Background
    options: EmbeddingOptions


@leap_command("embed", into=EmbedArguments)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("-f", "--file", "files", multiple=True, type=FileName(), help="Embed the text of this file.")
@click.option("--lines", is_flag=True, help="Treat each line of FILE and standard input as one text.")
@EMBEDDER
@EMBEDDING_OPTIONS
@click.option("--tokens", is_flag=True, help="Return one embedding per token (late interaction).")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="Write to this file: a NumPy array if it ends in .npy, else JSON Lines.",
)
@format_choice(
    "Output format: JSON Lines (text and jsonl), or one JSON document.",
    [Format.TEXT.value, Format.JSON.value, Format.JSONL.value],
)
@BACKGROUND
def command(env: Environment, /, args: EmbedArguments) -> ExitCode:
    """Compute embeddings (vectors of unit length) of each TEXT, file, line, or all of standard input.

    Compare embeddings of the same model only; their dot product is the cosine similarity. A background job embeds text
    by text and resumes after an interruption; without -o, leap jobs output prints the embeddings.
    """
    output = Output(env, args.format)
    if args.tokens and (args.background or args.target is not None or args.options.pooling or args.options.dimensions):
        raise click.UsageError("--tokens goes without --background, --output, --dimensions and --option pooling")
    items = _items(env, output, args)
    if args.background.repeats_command(env):
        return args.background.submit(env, output)
    if args.background:
        print_id(output, _submit(env, items, args))
        return ExitCode.DONE
    with (
        open_embedder(env, args.embedder.name or BUILTIN_EMBED, args.embedder) as runner,
        cancelling_on_interrupt() as stop,
        naming_texts([item.place for item in items]),
    ):
        progress = _progress(output, len(items))
        content = [item.text for item in items]
        asked: dict[str, Any] = {**args.options.to_json(), "on_progress": progress, "cancelled": stop}
        rows: Any = runner.embed_tokens(content, **asked) if args.tokens else runner.embed(content, **asked)
        name = runner.model_id
    if args.target is not None:
        _write(env, args.target, items, rows)
        output.note(f"{len(rows)} vectors of {rows.shape[1]} numbers are in {args.target}")
    elif output.format is Format.JSON:
        records = list(_records(items, rows))
        output.document({"model": name, "kind": args.options.kind, "data": records})
    else:
        for record in _records(items, rows):
            output.text(_line(record))
    return ExitCode.DONE


def _items(env: Environment, output: Output, args: EmbedArguments) -> list[Item]:
    items = [Item(text, place=f"TEXT {number}") for number, text in enumerate(args.texts, 1) if text != "-"]
    inputs = ["-"] if "-" in args.texts or not (args.texts or args.files) else []
    if args.lines:
        for name in (*args.files, *inputs):
            place = STDIN if name == "-" else name
            items += [Item(line, place=f"{place}:{number}") for number, line in numbered_lines(name, env, output)]
    else:
        items += [Item(read_text_file(name, env), name, place=name) for name in args.files]
    if inputs and not args.lines:
        text = read_text(env, output)
        items += [Item(text, place=STDIN)] if text.strip() else []
    if not items:
        raise click.UsageError("there is no text to embed: give it as an argument, in a file, or on standard input")
    return items


def _submit(env: Environment, items: Sequence[Item], args: EmbedArguments) -> str:
    """The id of a job that makes the vectors."""
    from leap_core.batch.settings import KEPT, BatchSettings
    from leap_core.conversation.embedding import EMBEDDING

    embedder, target, background = args.embedder, args.target, args.background
    model = embedder.name or BUILTIN_EMBED
    if args.options.pooling is None:
        _check_model(env, model)
    asked = {EMBEDDING[name].chat[0]: value for name, value in args.options.to_json().items()}
    settings = BatchSettings.of(
        source="-",
        output=KEPT if target is None else str(env.cwd / target),
        model=model,
        loading={name: value for name, value in embedder.fields.items() if value is not None},
        format="auto" if _is_array(target) else "plain",
        input_format="jsonl",
        keep_fields=True,
        overwrite=True,
    )
    label = "1 text" if len(items) == 1 else f"{len(items)} texts"
    rows = (_line({**item.record(number), "input": item.text, **asked}).encode() for number, item in enumerate(items))
    with open_jobs(env) as jobs:
        return jobs.batch(
            settings, rows=rows, host=embedder.job_may_use_host, policy=background.policy, cwd=env.cwd, label=label
        )


def _check_model(env: Environment, model: str) -> None:
    """Raises LeapOptionsError for a model of this machine that makes no vectors."""
    from leap_core.conversation.embedding import require_pooling
    from leap_core.errors import LeapModelNotFoundError
    from leap_core.inference.gguf.header import read_gguf_header
    from leap_core.models.resolving import resolve_local

    with suppress(LeapModelNotFoundError):  # perhaps a worker on another machine has it
        local = resolve_local(model, variables=env.variables, cwd=env.cwd)
        require_pooling(local.model_id, read_gguf_header(local.path).pooling)


def _progress(output: Output, count: int) -> Any:
    return lambda done: output.progress(f"{done} of {count} texts") if count > 1 else None


def _records(items: Sequence[Item], rows: Iterable[NDArray[float32]]) -> Iterator[dict[str, Any]]:
    for number, (item, row) in enumerate(zip(items, rows, strict=True)):
        yield {**item.record(number), "embedding": _numbers(row)}


def _numbers(row: NDArray[float32]) -> Any:
    """A vector (or several) as JSON has it."""
    from leap_core.protocols.openai.embeddings import numbers_of

    return [numbers_of(each) for each in row] if row.ndim > 1 else numbers_of(row)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _is_array(target: Path | None) -> bool:
    return target is not None and target.suffix.lower() == ARRAY


def _write(env: Environment, target: Path, items: Sequence[Item], rows: NDArray[float32]) -> None:
    import numpy as np

    from leap_core.system.files import cannot_write

    try:
        with (env.cwd / target).open("wb") as file:
            if _is_array(target):
                np.save(file, rows)
            else:
                file.writelines(_line(record).encode() for record in _records(items, rows))
    except OSError as error:
        raise cannot_write(target, error) from None
