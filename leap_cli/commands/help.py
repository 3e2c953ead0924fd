"""``leap help``: the guides, and the help of commands."""

from __future__ import annotations

import click

from ..framework.click_classes import HelpContext, leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..framework.wrapping import WordWrap
from ..help.guides import TOPICS, text_of


@leap_command("help", repairs=True)
@click.argument("words", metavar="[TOPIC|COMMAND]...", nargs=-1)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Print a guide, or the help of a command. Without an argument list the guides."""
    env = ctx.ensure_object(Environment)
    output = Output(env)
    if not words:
        output.records(
            [{"topic": topic, "about": about} for topic, about in TOPICS.items()], ["topic", "about"], name="topic"
        )
        output.note("leap help TOPIC prints one; leap help COMMAND, or leap COMMAND --help, explains a command")
        return
    if len(words) == 1 and words[0] in TOPICS:
        _print(words[0], output)
        return
    group = ctx.find_root().command
    context = ctx.find_root()
    for word in words:
        subcommand = group.get_command(context, word) if isinstance(group, click.Group) else None
        if subcommand is None:
            raise click.UsageError(f"there is no guide and no command {' '.join(words)!r}; leap help lists the guides")
        group, context = subcommand, HelpContext(subcommand, info_name=word, parent=context)
    output.text(context.get_help() + "\n")


def _print(topic: str, output: Output) -> None:
    from leap_core.errors import LeapError

    from ..answers.markdown import MarkdownStream

    try:
        text = text_of(topic)
    except FileNotFoundError as error:
        raise LeapError(str(error), hint="leap COMMAND --help explains each command") from None
    if output.columns is not None:
        from ..help.guides import laid_out

        text = laid_out(text, output.columns, tuple(TOPICS))
    if output.shows_styles:
        stream = MarkdownStream(output.columns)
        output.styled(stream.feed(text) + stream.end())
    elif output.columns is not None:
        wrap = WordWrap(output.columns)
        output.text(wrap.feed(text) + wrap.end())
    else:
        output.text(text)
