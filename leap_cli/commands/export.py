"""``leap export``: conversations for other programs and for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from leap_core.errors import LeapJobError, LeapSessionError

from ..answers.file import STANDARD, is_standard, writing_to
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..framework.text_arguments import FileName
from ..input.prompt import read_text
from ..options.training import TRAINING, Training

if TYPE_CHECKING:
    from jobs.table.job import Job
    from leap_core.messages import ChatMessage
    from leap_core.sessions.store import Session
    from leap_core.sessions.transcripts import Place


OPENAI, JSONL, MARKDOWN = "openai", "jsonl", "markdown"


class Exported(NamedTuple):
    """A conversation, and what it is about."""

    title: str
    history: Sequence[ChatMessage]


@leap_command("export")
@click.argument("sources", metavar="SESSION|JOB|-...", nargs=-1)
@click.option(
    "--format",
    type=click.Choice([OPENAI, JSONL, MARKDOWN]),
    default=OPENAI,
    help="Write openai: one JSON array of messages (default); jsonl: a conversation a line; or markdown: for people.",
)
@click.option("-o", "--output", type=FileName(), metavar="FILE", help="Write to this file instead of standard output.")
@click.option(
    "--media-dir",
    type=FileName(),
    metavar="DIR",
    help="Put pictures and sound there as files, and their paths into the text; otherwise they are data in it.",
)
@TRAINING
@click.pass_obj
def command(
    env: Environment,
    /,
    sources: tuple[str, ...],
    format: str,
    output: str | None,
    media_dir: str | None,
    training: Training | None,
) -> None:
    """Export conversations: of sessions, of jobs of leap generate, or JSON from standard input (-).

    leap chat --load reads openai and jsonl back, and leap batch reads jsonl. With --for-training a line is what a model
    is trained on, and without any SESSION all of them are exported; see leap help fine-tuning.
    """
    if sources.count(STANDARD) > 1:
        raise click.UsageError("'-' stands for standard input and can be given only once")
    if training is not None:
        from ..answers.training import write_training_data

        histories = [each.history for source in sources for each in _conversations(source, env)]
        write_training_data(env, training, histories if sources or training.log else None, output)
        return
    if not sources:
        raise click.UsageError("give a session, a job, or - for standard input")
    with writing_to(output, env) as target:
        exported = [each for source in sources for each in _conversations(source, env)]
        if format == OPENAI and len(exported) > 1:
            raise click.UsageError(f"these are {len(exported)} conversations, and openai is one: use --format jsonl")
        place = _place(media_dir, output, env)
        Output(target).text("".join(_written(each, format, place) for each in exported))


def _written(conversation: Exported, format: str, place: Place | None) -> str:
    from leap_core.sessions.transcripts import to_json, to_jsonl, to_markdown

    if format == MARKDOWN:
        return to_markdown(conversation.history, conversation.title, place)
    return (to_json if format == OPENAI else to_jsonl)(conversation.history, place)


def _conversations(source: str, env: Environment) -> Iterator[Exported]:
    if source == STANDARD:
        from leap_core.sessions.transcripts import read_conversations

        for history in read_conversations(read_text(env, Output(env)), "standard input", env.cwd):
            yield Exported(next((message.text for message in history if message.role.value == "user"), ""), history)
        return
    sessions, jobs = _sessions(source, env), _jobs(source, env)
    if len(sessions) + len(jobs) > 1:
        ids = ", ".join([f"session {each.id}" for each in sessions] + [f"job {each.id}" for each in jobs])
        raise LeapSessionError(f"{source!r} may be several: {ids}", hint="give more of the id")
    for session, messages in sessions.items():
        yield Exported(session.name or session.title, messages)
    for job in jobs:
        yield Exported(job.label, _history_of_job(job))
    if not sessions and not jobs:
        raise LeapSessionError(
            f"there is no session or job {source!r}", hint="leap sessions list and leap jobs list show them"
        )


def _sessions(reference: str, env: Environment) -> dict[Session, Sequence[ChatMessage]]:
    """Those of this name or whose ids begin so, with what was said in them."""
    if not env.directories.sessions_file.exists():
        return {}
    from leap_core.sessions.store import SessionStore

    with SessionStore(env.directories.sessions_file) as store:
        return {session: store.history(session.id) for session in store.matching(reference)}


def _jobs(reference: str, env: Environment) -> Sequence[Job]:
    """Those whose ids begin so."""
    if not env.directories.jobs_file.exists() or not reference:
        return []
    from jobs.client import JobsClient

    with JobsClient(env.variables, autostart=False) as jobs:
        return [job for job in jobs.list() if job.id.startswith(reference)]


def _history_of_job(job: Job) -> Sequence[ChatMessage]:
    from leap_core.messages import ChatMessage, messages_from_json

    answer = (job.result or {}).get("message")
    if job.kind != "generate":
        raise LeapJobError(f"the job {job.id} is a {job.kind}, and only leap generate's are conversations")
    if answer is None:
        raise LeapJobError(
            f"the job {job.id} is {job.state.value} and has no answer", hint=f"leap jobs status {job.id} tells more"
        )
    return [*messages_from_json(job.parameters["messages"]), ChatMessage.from_json(answer)]


def _place(media_dir: str | None, output: str | None, env: Environment) -> Place | None:
    if media_dir is None:
        return None
    from leap_core.sessions.transcripts import MediaDirectory

    beside = env.cwd if output is None or is_standard(output) else (env.cwd / str(output)).parent
    return MediaDirectory(env.cwd / media_dir, beside).place
