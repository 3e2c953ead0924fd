"""``leap embed``: vectors of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.interrupts import cancelling_on_interrupt
from ..framework.output import Format, Output
from ..input.prompt import read_text
from ..input.text_files import read_text_file
from ..options.embedding import BUILTIN_EMBED, embedding_model_flag, open_embedder, threads_flag
from ..options.output_format import FormatChoice

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

DIGITS = 7
"""Of a float32 in decimal."""


@leap_command("embed")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE", help="Turn this file, as one text, into a vector."
)
@click.option(
    "--line-file", "lines", metavar="FILE", help="Turn each line of this file into a vector; - is standard input."
)
@embedding_model_flag
@threads_flag
@click.option(
    "--kind",
    type=click.Choice(["query", "document"]),
    default="document",
    show_default=True,
    help="Say what the texts are: some models read questions and documents differently.",
)
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last"]),
    help="Make one vector of the tokens this way; the model's own by default.",
)
@click.option("--dimensions", type=click.IntRange(1), metavar="N", help="Keep only the first N numbers of each vector.")
@click.option("--prefix", metavar="TEXT", help="Put this before each text, instead of the model's own prefix.")
@click.option(
    "--too-long",
    type=click.Choice(["refuse", "cut"]),
    default="refuse",
    show_default=True,
    help="Refuse a text of more tokens than the model reads, or cut it.",
)
@click.option("--tokens", is_flag=True, help="Make a vector for each token (late interaction).")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    help="Write the vectors to this NumPy file (.npy) instead.",
)
@click.option(
    "--format",
    type=FormatChoice([Format.TEXT.value, Format.JSON.value, Format.JSONL.value]),
    default=Format.TEXT.value,
    help="Print a line of JSON for each text (text and jsonl), or one json document.",
)
@click.pass_obj
def command(
    env: Environment,
    /,
    texts: tuple[str, ...],
    files: tuple[str, ...],
    lines: str | None,
    model: str | None,
    cpu_threads: int | None,
    tokens: bool,
    target: Path | None,
    format: str,
    **options: Any,
) -> ExitCode:
    """Turn texts into vectors of unit length: each TEXT, each file, each line, or all of standard input.

    Vectors of one model can be compared: the product of two is their cosine.
    """
    output = Output(env, format)
    if tokens and (target is not None or options["pooling"] or options["dimensions"]):
        raise click.UsageError("--tokens goes without --output, --pooling and --dimensions")
    items = _items(env, output, texts, files, lines)
    with (
        open_embedder(env, model or BUILTIN_EMBED, cpu_threads=cpu_threads) as runner,
        cancelling_on_interrupt() as stop,
    ):
        progress = _progress(output, len(items))
        content = [text for _, text in items]
        common = {"kind": options["kind"], "prefix": options["prefix"], "too_long": options["too_long"]}
        rows: Any
        if tokens:
            rows = runner.embed_tokens(content, **common, on_progress=progress, cancelled=stop)
        else:
            more = {"pooling": options["pooling"], "dimensions": options["dimensions"]}
            rows = runner.embed(content, **common, **more, on_progress=progress, cancelled=stop)
        name = runner.model_id
    if target is not None:
        _write(env, target, rows)
        output.note(f"{len(rows)} vectors of {rows.shape[1]} numbers are in {target}")
        return ExitCode.DONE
    records = [
        {"index": number, source: text, "embedding": _numbers(row)}
        for number, ((source, text), row) in enumerate(zip(_shown(items, files), rows, strict=True))
    ]
    if output.format is Format.JSON:
        output.document({"model": name, "kind": options["kind"], "data": records})
    else:
        for record in records:
            output.text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
    return ExitCode.DONE


def _items(
    env: Environment, output: Output, texts: tuple[str, ...], files: tuple[str, ...], lines: str | None
) -> list[tuple[str, str]]:
    """Names of files (empty for other texts) and texts."""
    items = [("", text) for text in texts if text != "-"]
    items += [(name, read_text_file(name, env)) for name in files]
    if lines is not None:
        content = read_text(env, output) if lines == "-" else read_text_file(lines, env)
        items += [("", line) for line in content.splitlines() if line.strip()]
    if "-" in texts or not (texts or files or lines):
        items.append(("", read_text(env, output)))
    if not items:
        raise click.UsageError("there is no text to embed")
    return items


def _shown(items: list[tuple[str, str]], files: tuple[str, ...]) -> list[tuple[str, str]]:
    """What stands beside each vector: the file's name, or the text."""
    return [("file", name) if name else ("text", text) for name, text in items]


def _progress(output: Output, count: int) -> Any:
    return lambda done: output.progress(f"{done} of {count} texts") if count > 1 else None


def _numbers(row: NDArray[float32]) -> Any:
    """A vector (or several) as JSON has it, without digits that a float32 does not have."""
    if row.ndim > 1:
        return [_numbers(each) for each in row]
    return [float(f"{number:.{DIGITS}g}") for number in row.tolist()]


def _write(env: Environment, target: Path, rows: NDArray[float32]) -> None:
    import numpy as np

    from leap_core.storage.atomic_files import cannot_write

    try:
        with (env.cwd / target).open("wb") as file:
            np.save(file, rows)
    except OSError as error:
        raise cannot_write(target, error) from None
