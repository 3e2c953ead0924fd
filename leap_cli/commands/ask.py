"""``leap ask``: a question that is answered from the passages of an index."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Format, Output
from ..framework.wrapping import WordWrap
from ..options.embedding import files_flag, limit_flag, question_of, rerank_flag
from ..options.generation import generation_flags, generation_options
from ..options.loading import load_model, loading_flags, model_reference, note_builtin
from ..options.output_format import FormatChoice

if TYPE_CHECKING:
    from leap_core.search.answering import Source

ROOM_FOR_ANSWER = 512
"""Tokens that stay free where --max-tokens does not say."""
NOTHING = "The documents do not say."


@leap_command("ask")
@click.argument("name")
@click.argument("question", nargs=-1, required=True)
@limit_flag
@files_flag
@rerank_flag
@click.option("--show-sources", is_flag=True, help="Show the passages themselves, not only their places.")
@click.option("--strict", is_flag=True, help="Say that the documents do not say, rather than answer without them.")
@loading_flags
@generation_flags
@click.option(
    "--format",
    type=FormatChoice([Format.TEXT.value, Format.JSON.value, Format.JSONL.value]),
    default=Format.TEXT.value,
    help="Print text, one json document, or jsonl: each event as it comes.",
)
@click.pass_obj
def command(
    env: Environment,
    /,
    name: str,
    question: tuple[str, ...],
    limit: int,
    files: tuple[str, ...],
    rerank: str | None,
    show_sources: bool,
    strict: bool,
    model: str | None,
    context_size: int | None,
    cpu_threads: int | None,
    n_gpu_layers: int | str,
    verbose: bool,
    format: str,
    **flags: Any,
) -> ExitCode:
    """Answer the QUESTION from the passages of the index NAME that fit it best, and name them as numbered sources.

    As many passages as the model's context has room for are given to it. The answer goes to stdout, the sources to
    stderr (in json they are part of the document).
    """
    from leap_core.search.answering import prompt_of

    from ..answers.passages import find_passages
    from ..answers.show import show_answer

    output = Output(env, format)
    options = generation_options(flags)
    words = question_of(question)
    with ExitStack() as stack:
        hits = find_passages(env, stack, name, words, most=limit, files=files, rerank=rerank, threads=cpu_threads)
    if strict and not hits:
        _answer_nothing(output)
        return ExitCode.DONE
    note_builtin(env, model, output)
    loading = {"context_size": context_size, "cpu_threads": cpu_threads, "n_gpu_layers": n_gpu_layers}
    with load_model(env, model_reference(env, model), loading, verbose=verbose) as runner:
        room = runner.context_size - (options.max_tokens or ROOM_FOR_ANSWER)
        messages, sources = prompt_of(
            words,
            hits,
            lambda messages: runner.get_prompt_tokens_size(messages) <= room,
            model_id=runner.model_id,
            strict=strict,
        )
        if hits and not sources:
            output.warning(f"no passage has room in the {runner.context_size} tokens of the context")
        if strict and not sources:
            _answer_nothing(output)
            return ExitCode.DONE
        if not sources:
            output.warning("the model answers from what it knows")
        conversation = runner.create_conversation_from_history(messages[:-1])
        records = [_record(source) for source in sources]
        more = {"sources": records}
        stream = conversation.generate_response(messages[-1], options)
        complete = show_answer(stream, output, model=runner.model_id, more=more)
    code = ExitCode.INTERRUPTED if complete.finish_reason.value == "interrupted" else ExitCode.DONE
    if output.format is Format.JSON:
        return code
    if output.format is Format.JSONL:
        output.event({"type": "sources", **more})
        return code
    for record in records:
        output.note(f"[{record['number']}] {record['file']}:{record['line']}")
        if show_sources:
            lines = "".join(f"    {line}\n" for line in str(record["text"]).splitlines())
            output.aside(lines if output.aside_columns is None else WordWrap(output.aside_columns).feed(lines))
    return code


def _answer_nothing(output: Output) -> None:
    if output.format is Format.JSON:
        output.document({"message": {"role": "assistant", "content": NOTHING}, "sources": []})
    elif output.format is Format.JSONL:
        output.event({"type": "sources", "sources": []})
    else:
        output.text(f"{NOTHING}\n")


def _record(source: Source) -> dict[str, Any]:
    passage = source.hit.passage
    return {
        "number": source.number,
        "file": passage.path,
        "line": passage.first,
        "last_line": passage.last,
        "heading": passage.heading or None,
        "text": passage.text,
    }
