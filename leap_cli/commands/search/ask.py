"""``leap ask``: a question that is answered from the passages of an index."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.wrapping import WordWrap
from ...options.answer import EVENT_FORMAT_OPTION
from ...options.embedding_options import PASSAGES, PassageWish
from ...options.loading import MODEL, ModelChoice
from ...options.opening import load_model, note_builtin
from ...options.sampling import PLAIN_SAMPLING, Sampling

if TYPE_CHECKING:
    from leap_core.search.rag_prompt import Source

ROOM_FOR_ANSWER = 512
"""Tokens that stay free where --max-tokens does not say."""
NOTHING = "The documents do not say."


@leap_command("ask")
@PASSAGES
@click.option("--show-sources", is_flag=True, help="Show the passages themselves, not only their places.")
@click.option("--strict", is_flag=True, help="Say that the documents do not say, rather than answer without them.")
@EVENT_FORMAT_OPTION
@PLAIN_SAMPLING
@MODEL
@click.pass_obj
def command(
    env: Environment,
    /,
    passages: PassageWish,
    show_sources: bool,
    strict: bool,
    model: ModelChoice,
    sampling: Sampling,
    format: str,
) -> ExitCode:
    """Answer the QUESTION from the passages of the index NAME that fit it best, and name them as numbered sources.

    Where there is one index alone, NAME may be left out.

    As many passages as the model's context has room for are given to it. The answer goes to stdout, the sources to
    stderr (in json they are part of the document).
    """
    from leap_core.search.rag_prompt import prompt_of

    from ...answers.passages import find_passages
    from ...answers.show import show_answer

    output = Output(env, format)
    options = sampling.options()
    embedder = ModelChoice(fields={"cpu_threads": model.fields.get("cpu_threads")}, host=model.host)
    with ExitStack() as stack:
        hits = find_passages(env, stack, passages, embedder)
    if strict and not hits:
        _answer_nothing(output)
        return ExitCode.DONE
    note_builtin(env, model.name, output)
    with load_model(env, model) as runner:
        room = runner.context_size - (options.max_tokens or ROOM_FOR_ANSWER)
        messages, sources = prompt_of(
            passages.question,
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
