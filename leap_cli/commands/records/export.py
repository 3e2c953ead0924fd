"""``leap export``: conversations for other programs and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...answers.conversations import Exported, conversations_of
from ...answers.file import STANDARD, is_standard, writing_to
from ...framework.arguments import FileName
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...options.training import TRAINING, Training

if TYPE_CHECKING:
    from leap_core.conversation.transcripts import Place


OPENAI, JSONL, MARKDOWN = "openai", "jsonl", "markdown"


@leap_command("export")
@click.argument("sources", metavar="SESSION|JOB|-...", nargs=-1)
@click.option(
    "--format",
    type=click.Choice([OPENAI, JSONL, MARKDOWN]),
    default=OPENAI,
    help="Output format: openai (one JSON array of messages, default), jsonl (one conversation per line), or markdown.",
)
@click.option("-o", "--output", type=FileName(), help="Write to this file instead of standard output.")
@click.option(
    "--media-dir",
    type=FileName(),
    metavar="DIR",
    help="Save images and audio as files in this directory; otherwise they are embedded as data.",
)
@TRAINING
def command(
    env: Environment,
    /,
    sources: tuple[str, ...],
    format: str,
    output: str | None,
    media_dir: str | None,
    training: Training | None,
) -> None:
    """Export conversations: of sessions, of jobs, or JSON from standard input (-).

    leap chat --load reads openai and jsonl, and leap batch reads jsonl. With --for-training, a line is one training
    example, and without any SESSION all are exported; see leap help fine-tuning.
    """
    if sources.count(STANDARD) > 1:
        raise click.UsageError("'-' means standard input and can be given only once")
    if training is not None:
        from ...answers.conversations import write_training_data

        write_training_data(env, training, sources, output)
        return
    if not sources:
        raise click.UsageError("give a session, a job, or - for standard input")
    with writing_to(output, env) as target:
        exported = [each for source in sources for each in conversations_of(source, env)]
        if format == OPENAI and len(exported) > 1:
            raise click.UsageError(f"these are {len(exported)} conversations, and openai is one: use --format jsonl")
        place = _place(media_dir, output, env)
        Output(target).text("".join(_written(each, format, place) for each in exported))


def _written(conversation: Exported, format: str, place: Place | None) -> str:
    from leap_core.conversation.transcripts import to_json, to_jsonl, to_markdown

    if format == MARKDOWN:
        return to_markdown(conversation.history, conversation.title, place)
    return (to_json if format == OPENAI else to_jsonl)(conversation.history, place)


def _place(media_dir: str | None, output: str | None, env: Environment) -> Place | None:
    if media_dir is None:
        return None
    from leap_core.conversation.transcripts import MediaDirectory

    beside = env.cwd if output is None or is_standard(output) else (env.cwd / str(output)).parent
    return MediaDirectory(env.cwd / media_dir, beside).place
