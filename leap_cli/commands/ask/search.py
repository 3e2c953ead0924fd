"""``leap index``, ``search`` and ``ask``: one's own files made searchable, searched, and questioned."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from ...completion.value_types import ModelName
from ...exit_codes import ExitCode
from ...framework.click_classes import format_option, leap_command, leap_group
from ...framework.environment import Environment
from ...framework.error_boundary import exit_code_of, outcome_of
from ...framework.interrupts import cancelling_on_interrupt
from ...framework.options import option
from ...framework.output import Format, Output
from ...framework.wrapping import WordWrap
from ...options.answer import EVENT_FORMAT_OPTION
from ...options.embedding import BUILTIN_EMBED, EMBEDDER, EMBEDDER_OF_INDEX, full_reference, open_embedder
from ...options.loading import MODEL, ModelChoice, load_model, note_builtin
from ...options.passages import PASSAGES, PassageOptions, find_passages
from ...options.sampling import PLAIN_SAMPLING, Sampling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leap_core.documents.blocks import Document
    from leap_core.tasks.search.index_file import IndexSettings
    from leap_core.tasks.search.searching import Source
    from leap_core.tasks.search.updating import Indexes, Update


@leap_command("search")
@PASSAGES
@click.option(
    "--by",
    "mode",
    type=click.Choice(["hybrid", "words", "vectors"]),
    default="hybrid",
    show_default=True,
    help="Hybrid search by keywords and embeddings (fused by rank), or by one of them.",
)
@EMBEDDER_OF_INDEX
@format_option("FILE:LINE")
def search_command(
    env: Environment, /, passages: PassageOptions, mode: str, embedder: ModelChoice, format: str
) -> None:
    """Semantic search: find the passages of the index NAME that match the QUESTION best, with file, lines and text.

    NAME may be omitted if there is only one index. The score orders the passages of one answer; it is not a
    probability.
    """

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
        return
    for record in records:
        heading = f"  {record['heading']}" if record["heading"] else ""
        output.text(f"{_near(env, record['place'])}{heading}\n{_indented(record['text'], output.columns)}\n\n")
    if not records:
        output.note("nothing fits")


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


ROOM_FOR_ANSWER = 512
"""Tokens that stay free where --max-tokens does not say."""


@leap_command("ask")
@PASSAGES
@click.option("--show-sources", is_flag=True, help="Show the passages, not only their locations.")
@click.option("--strict", is_flag=True, help="Answer only from the documents; otherwise say that they have no answer.")
@EVENT_FORMAT_OPTION
@PLAIN_SAMPLING
@MODEL
def ask_command(
    env: Environment,
    /,
    passages: PassageOptions,
    show_sources: bool,
    strict: bool,
    model: ModelChoice,
    sampling: Sampling,
    format: str,
) -> ExitCode:
    """RAG: answer the QUESTION from the best passages of the index NAME, and cite them as numbered sources.

    NAME may be omitted if there is only one index.

    The model gets as many passages as fit its context window. Each sentence cites the passage that holds what it says,
    and an answer that no passage supports gets a warning. The answer goes to stdout, the sources to stderr (in JSON
    they are part of the document).
    """
    from leap_core.tasks.search.citing import CitedStream
    from leap_core.tasks.search.searching import NOTHING, prompt_of

    from ...answers.show import show_answer

    output = Output(env, format)
    options = sampling.options()
    embedder = ModelChoice(fields={"cpu_threads": model.fields.get("cpu_threads")}, host=model.host)
    with ExitStack() as stack:
        hits = find_passages(env, stack, passages, embedder)
    if strict and not hits:
        _answer_nothing(output, NOTHING)
        return ExitCode.DONE
    note_builtin(env, model.name, output)
    with load_model(env, model) as runner:
        room = runner.context_size - (options.max_tokens or ROOM_FOR_ANSWER)
        messages, sources = prompt_of(
            passages.question,
            hits,
            lambda messages: runner.get_prompt_tokens_size(messages) <= room,
            model_names=(runner.model_id, *runner.header_names),
            strict=strict,
        )
        if hits and not sources:
            output.warning(f"no passage fits the context window of {runner.context_size} tokens")
        if strict and not sources:
            _answer_nothing(output, NOTHING)
            return ExitCode.DONE
        if not sources:
            output.warning("the model answers from what it knows")
        conversation = runner.create_conversation_from_history(messages[:-1])
        records = [_record(source) for source in sources]
        stream = CitedStream(conversation.generate_response(messages[-1], options), passages.question, sources)
        complete = show_answer(stream, output, model=runner.model_id, more={"sources": records})
    _show_sources(output, records, show_sources)
    return ExitCode.INTERRUPTED if complete.finish_reason.value == "interrupted" else ExitCode.DONE


def _show_sources(output: Output, records: Sequence[Mapping[str, object]], whole: bool) -> None:
    """The sources behind an answer, with their passages where ``whole``. In JSON they are in the answer already."""
    if output.format is Format.JSON:
        return
    if output.format is Format.JSONL:
        output.event({"type": "sources", "sources": records})
        return
    for record in records:
        output.note(f"[{record['number']}] {record['file']}:{record['line']}")
        if whole:
            lines = "".join(f"    {line}\n" for line in str(record["text"]).splitlines())
            output.aside(lines if output.aside_columns is None else WordWrap(output.aside_columns).feed(lines))


def _answer_nothing(output: Output, text: str) -> None:
    if output.format is Format.JSON:
        output.document({"message": {"role": "assistant", "content": text}, "sources": []})
    elif output.format is Format.JSONL:
        output.event({"type": "sources", "sources": []})
    else:
        output.text(f"{text}\n")


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


MAKE = "make"
VERBS = frozenset(
    ["add", "build", "create", "new", "search", "ask", "query", "find", "help", "open", "refresh", "rebuild", "clear"]
)
"""Words that are meant as commands of other programs; `leap index make` takes them as names all the same."""
FORMAT = format_option("names")


READER = click.option("--ocr-model", "reader", type=ModelName(), help="OCR: read scanned pages with this vision model.")


@leap_group("index", verb=MAKE, no_names=VERBS, instead="leap index NAME PATH... makes an index")
def index_command() -> None:
    """Index files for `leap search` and `leap ask`: leap index NAME PATH...

    Text, Markdown, code, HTML, mail, notebooks, e-books, Office files and PDF (with the extra pdf) are split into
    passages. Keywords and embeddings of each passage go into one file in the data directory.
    """


@dataclass(frozen=True)
class IndexArguments:
    """What is typed after ``leap index``."""

    name: str
    paths: tuple[str, ...]
    embedder: ModelChoice
    words_only: bool
    include: tuple[str, ...]
    chunk_tokens: int
    overlap: int
    reader: str | None


@index_command.command(MAKE, short_help="Create or update an index.", into=IndexArguments)
@click.argument("name")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@EMBEDDER
@click.option("--keywords-only", "words_only", is_flag=True, help="Store no embeddings: keyword search only.")
@option(
    "--include",
    "include",
    multiple=True,
    metavar="PATTERN",
    help="Index only files whose path matches, such as '*.md'.",
)
@click.option(
    "--chunk-tokens",
    type=click.IntRange(16, 8192),
    default=256,
    show_default=True,
    help="Chunk size in tokens, at most.",
)
@click.option(
    "--chunk-overlap",
    "overlap",
    type=int,
    default=32,
    show_default=True,
    help="Overlap of neighboring chunks in tokens.",
)
@READER
def make(env: Environment, /, args: IndexArguments) -> ExitCode:
    """Index the files PATH (and those in directories, and pages at https:// addresses) under NAME.

    Run it again to read and embed only what has changed. An interrupted index resumes where it stopped, even after a
    power failure.
    """
    from leap_core.documents import is_address
    from leap_core.tasks.search.index_file import IndexSettings

    if args.words_only and args.embedder.name is not None:
        raise click.UsageError("--keywords-only goes without --model")
    indexes = _indexes(env)
    indexes.path_of(args.name)
    reference = None if args.words_only else _embedding_model(env, args.embedder.name)
    settings = IndexSettings(
        paths=tuple(
            path if is_address(path) else os.path.abspath(env.cwd / os.path.expanduser(path)) for path in args.paths
        ),
        patterns=args.include,
        model=reference,
        tokens=args.chunk_tokens,
        overlap=args.overlap,
    )
    found = _update(env, indexes, args.name, settings, args.embedder, args.reader)
    with indexes.open(args.name) as index:
        is_empty = not index.counts()["chunks"]
    return ExitCode.USAGE if is_empty and (found.skipped or found.without_text) else ExitCode.DONE


@index_command.command("update", short_help="Update indexes with changed files.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@EMBEDDER_OF_INDEX
@READER
def update(env: Environment, /, names: tuple[str, ...], embedder: ModelChoice, reader: str | None) -> ExitCode:
    """Update indexes with files that have changed; all indexes without a NAME.

    If one index fails, the others are still updated; the exit code is that of the first failure.
    """
    from leap_core.errors import LeapError

    indexes = _indexes(env)
    code = ExitCode.DONE
    for name in names or indexes.names():
        outcome = outcome_of(partial(_update_named, env, indexes, name, embedder, reader))
        if isinstance(outcome, LeapError):
            Output(env).error(f"{name}: {outcome.message}", outcome.hint)
            code = code or exit_code_of(outcome)
    return code


def _update_named(env: Environment, indexes: Indexes, name: str, embedder: ModelChoice, reader: str | None) -> None:
    with indexes.open(name) as index:
        settings = index.settings
    if settings is not None:
        _update(env, indexes, name, settings, embedder, reader)


@index_command.command("list", short_help="List the indexes.")
@FORMAT
def list_indexes(env: Environment, /, format: str) -> None:
    """List the indexes with their sizes."""
    indexes = _indexes(env)
    records = [_index_record(indexes, name) for name in indexes.names()]
    columns = ["name", "files", "chunks", "without_vector", "model", "paths"]
    none = "there is no index; `leap index NAME PATH` makes one"
    Output(env, format).records(records, columns, name="name", none=none)


@index_command.command("info", short_help="Show what an index holds and how it was made.")
@click.argument("name")
@FORMAT
def info(env: Environment, /, name: str, format: str) -> None:
    """Show the contents and settings of the index NAME."""
    Output(env, format).record(_index_record(_indexes(env), name), name="name")


@index_command.command("remove", short_help="Remove indexes; the files themselves stay.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def remove(env: Environment, /, names: tuple[str, ...]) -> None:
    """Remove indexes. The indexed files stay."""
    output = Output(env)
    for name in names:
        _indexes(env).remove(name)
        output.text(f"{name}\n")


def _embedding_model(env: Environment, model: str | None) -> str | None:
    """The reference to note in the index; None where none was named and the built-in one is not there."""
    from leap_core.models.resolving import Registry

    if model is not None:
        return full_reference(env, model)
    if Registry(env.variables, env.cwd).get(BUILTIN_EMBED) is not None:
        return BUILTIN_EMBED
    Output(env).note("there is no built-in embedding model, so only words are indexed; -m names one")
    return None


def _indexes(env: Environment) -> Indexes:
    from leap_core.tasks.search.updating import Indexes

    return Indexes.of(env.directories)


def _index_record(indexes: Indexes, name: str) -> dict[str, Any]:
    with indexes.open(name) as index:
        settings, counts = index.settings, index.counts()
    described: dict[str, Any] = {} if settings is None else vars(settings)
    return {"name": name, **counts, **described, "path": str(indexes.path_of(name))}


def _update(
    env: Environment, indexes: Indexes, name: str, settings: IndexSettings, embedder: ModelChoice, reader: str | None
) -> Update:
    from leap_core.conversation.page_pictures import left_out
    from leap_core.documents.scans import PAGES_AT_ONCE, read_scans
    from leap_core.tasks.search.updating import update_index

    output = Output(env)
    with ExitStack() as stack:
        runner = None
        if settings.model is not None:
            runner = stack.enter_context(open_embedder(env, settings.model, embedder))
        sees = None
        if reader is not None:
            sees = stack.enter_context(load_model(env, ModelChoice(reader, command="index"), slots=PAGES_AT_ONCE))
        stop = stack.enter_context(cancelling_on_interrupt())

        def written_down(document: Document) -> Document:
            assert sees is not None
            return read_scans(document, sees, stop=stop, on_page=lambda n, m: output.progress(f"page {n} of {m}"))

        update = update_index(
            indexes.path_of(name),
            settings,
            runner,
            on_progress=lambda step, done, count: output.progress(f"{name}: {step}, {done} of {count}"),
            stop=stop,
            scans=None if sees is None else written_down,
        )
    for path, pages in list(update.without_text.items())[:20]:
        output.warning(f"{left_out(path, pages)}; --ocr-model MODEL reads pictures of pages")
    for path, notes in list(update.notes.items())[:20]:
        output.note(f"{path}: {'; '.join(notes)}")
    for path, reason in list(update.skipped.items())[:20]:
        output.warning(f"{path} is left out: {reason}")
    counts = f"{update.added} new, {update.changed} changed, {update.removed} removed, {update.unchanged} unchanged"
    output.text(f"{name}\n")
    output.note(f"{counts}; {update.embedded} passages embedded")
    return update
