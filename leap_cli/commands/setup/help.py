"""``leap help``: the guides, the help of commands, and the manual pages."""

from __future__ import annotations

import shutil
import subprocess
import sys

import click

from ...framework.click_classes import CommandTable, HelpContext, leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...framework.wrapping import WordWrap
from ...help.topics import topics


@leap_command("help", repairs=True)
@click.argument("words", metavar="[TOPIC|COMMAND|WORDS]...", nargs=-1)
@click.option("--man", is_flag=True, help="Show the manual page of COMMAND, or of leap; a pipe gets its source.")
@click.option("--install-man", is_flag=True, help="Install all manual pages: man leap-generate.")
@click.option("--skill", is_flag=True, help="Print a SKILL.md for coding agents on how to use leap.")
@click.option("--install-skill", is_flag=True, help="Install SKILL.md for agents: ~/.agents/skills, ~/.claude/skills.")
def command(
    env: Environment, /, words: tuple[str, ...], man: bool, install_man: bool, skill: bool, install_skill: bool
) -> None:
    """Print a page of the documentation or the help of a command, or search both for WORDS. Without an argument, list
    the pages.
    """
    from leap_core.system.plugins import plugins

    ctx, output = click.get_current_context(), Output(env)
    if install_man:
        if words:
            raise click.UsageError("--install-man installs all pages, and takes no COMMAND")
        _install_manual(ctx, output)
        return
    if skill or install_skill:
        _give_skill(ctx, output, install=install_skill)
        return
    if man:
        _show_manual_page(ctx, words, output)
        return
    others = plugins("leap.help", env.directories, reserved=topics(), on_warning=output.warning)
    if not words:
        listed = {**topics(), **{name: plugin.summary for name, plugin in others.items()}}
        output.records(
            [{"topic": topic, "about": about} for topic, about in listed.items()], ["topic", "about"], name="topic"
        )
        output.note("leap help TOPIC prints one; leap help COMMAND, or leap COMMAND --help, explains a command")
        return
    if len(words) == 1 and words[0] in others:
        _print_page(str(others[words[0]].load()), output)
        return
    if len(words) == 1 and _is_page(words[0]):
        _print(words[0], output)
        return
    group = ctx.find_root().command
    context = ctx.find_root()
    for word in words:
        subcommand = group.get_command(context, word) if isinstance(group, click.Group) else None
        if subcommand is None:
            _search(words, output, ctx)
            return
        group, context = subcommand, HelpContext(subcommand, info_name=word, parent=context)
    output.text(context.get_help() + "\n")


def _is_page(topic: str) -> bool:
    from ...reference.pages import is_of_no_command

    return topic in topics() or is_of_no_command(topic)


def _search(words: tuple[str, ...], output: Output, ctx: click.Context) -> None:
    """Print the best sections of pages, options and commands for the words. Raises UsageError where nothing fits."""
    from ...help.search import ERROR, nearest, search
    from ...reference.pages import kept_pages

    root = ctx.find_root().command
    assert isinstance(root, CommandTable)
    found = search(words, kept_pages(ctx.ensure_object(Environment).directories.cache))
    if not found:
        near = nearest(words, root.table)
        meant = f"; nearest: {', '.join(near)}" if near else ""
        raise click.UsageError(f"nothing in the documentation fits {' '.join(words)!r}{meant}")
    for each in found:
        lines = [f"error: {each.section}" if each.page == ERROR else f"leap help {each.page}: {each.section}"]
        if each.command:  # what to type comes first; of an error, its message
            lines.insert(1 if each.page == ERROR else 0, each.command)
        output.text("\n    ".join(lines) + "\n")


def _print(topic: str, output: Output) -> None:
    from leap_core.errors import LeapError

    from ...reference.pages import page

    try:
        text = page(topic)
    except FileNotFoundError as error:
        raise LeapError(str(error), hint="leap COMMAND --help explains each command") from None
    _print_page(text, output)


def _print_page(text: str, output: Output) -> None:
    from ...answers.markdown import MarkdownStream

    if output.columns is not None:
        from ...help.guides import laid_out

        text = laid_out(text, output.columns, tuple(topics()))
    if output.shows_styles:
        stream = MarkdownStream(output.columns)
        output.styled(stream.feed(text) + stream.end())
    elif output.columns is not None:
        wrap = WordWrap(output.columns)
        output.text(wrap.feed(text) + wrap.end())
    else:
        output.text(text)


def _show_manual_page(ctx: click.Context, words: tuple[str, ...], output: Output) -> None:
    from ...reference.man_pages import page_of, root_page

    root = ctx.find_root().command
    assert isinstance(root, CommandTable)
    if words and words[0] not in root.table:
        raise click.exceptions.NoSuchCommand(words[0], possibilities=root.table, ctx=ctx.parent)
    text = page_of(root, words[0]) if words else root_page(root)
    env = ctx.ensure_object(Environment)
    if env.stdout is sys.stdout and env.stdout_is_terminal and shutil.which("man"):
        subprocess.run(["man", "-l", "-"], input=text.encode(), check=False)
    else:
        output.text(text)


def _give_skill(ctx: click.Context, output: Output, *, install: bool) -> None:
    from ...help.skill import install_skill, skill

    root = ctx.find_root().command
    assert isinstance(root, CommandTable)
    text = skill({name: entry.summary for name, entry in root.table.items()})
    if not install:
        output.text(text)
        return
    for path in install_skill(text, ctx.ensure_object(Environment).variables):
        output.text(f"{path}\n")


def _install_manual(ctx: click.Context, output: Output) -> None:
    from ...reference.man_pages import install, is_searched, man_directory, pages

    root = ctx.find_root().command
    assert isinstance(root, CommandTable)
    env = ctx.ensure_object(Environment)
    directory = man_directory(env.variables)
    install(pages(root), directory)
    output.text(f"{directory}\n")
    if is_searched(directory, env.variables):
        output.note("man leap, man leap-generate and so on are there")
    else:
        output.note(f"man does not look there: man -M {directory.parent} leap, or put {directory.parent} on MANPATH")
