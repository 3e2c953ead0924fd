"""``leap search``: the passages of an index that fit a question."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_option
from ...framework.wrapping import WordWrap
from ...options.embedding_options import EMBEDDER_OF_INDEX, PASSAGES, PassageWish
from ...options.loading import ModelChoice


@leap_command("search")
@PASSAGES
@click.option(
    "--by",
    "mode",
    type=click.Choice(["hybrid", "words", "vectors"]),
    default="hybrid",
    show_default=True,
    help="Search by words and vectors, fused by rank, or by one of them.",
)
@EMBEDDER_OF_INDEX
@format_option("FILE:LINE")
@click.pass_obj
def command(
    env: Environment,
    /,
    passages: PassageWish,
    mode: str,
    embedder: ModelChoice,
    format: str,
) -> ExitCode:
    """Find the passages of the index NAME that fit the QUESTION best: their file, lines and text.

    Where there is one index alone, NAME may be left out.
    The score orders the passages of one answer; it is no probability.
    """
    from ...answers.passages import find_passages

    output = Output(env, format)
    with ExitStack() as stack:
        hits = find_passages(env, stack, passages, embedder, mode=mode)
    records: list[dict[str, Any]] = [
        {
            "place": f"{hit.passage.path}:{hit.passage.first}",
            "file": hit.passage.path,
            "line": hit.passage.first,
            "last_line": hit.passage.last,
            "heading": hit.passage.heading or None,
            "score": round(hit.score, 6),
            "word_rank": hit.word_rank,
            "vector_rank": hit.vector_rank,
            "text": hit.passage.text,
        }
        for hit in hits
    ]
    if output.format is not Format.TEXT:
        output.records(records, [], name="place")
        return ExitCode.DONE
    for record in records:
        heading = f"  {record['heading']}" if record["heading"] else ""
        output.text(f"{_near(env, record['place'])}{heading}\n{_indented(record['text'], output.columns)}\n\n")
    if not records:
        output.note("nothing fits")
    return ExitCode.DONE


def _near(env: Environment, place: str) -> str:
    """Relative to the working directory where it is below it."""
    start = f"{env.cwd}/"
    return place[len(start) :] if place.startswith(start) else place


def _indented(text: str, columns: int | None) -> str:
    """The passage's lines, below its place; at a terminal broken between words."""
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    if columns is None:
        return lines
    wrap = WordWrap(columns)
    return wrap.feed(lines) + wrap.end()
