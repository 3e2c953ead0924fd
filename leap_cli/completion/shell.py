"""What the shell gets when TAB is pressed. Knows the command line; knows not what models, tools or jobs there are.

The scripts of ``scripts`` start leap with two variables: ``_LEAP_COMPLETE``, the shell's name, and
``_LEAP_LINE``, the command up to the cursor. leap answers with one candidate a line, three fields divided by tabs:

    plain   the whole word that the shell would insert   what it means
    file    what is before the path in the word      nothing

and ``dir`` as ``file``. The shell evaluates nothing of what it gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import click
from click.shell_completion import ShellComplete

from leap_core.errors import LeapError

from ..framework.click_classes import CommandTable
from ..framework.environment import Environment

SHELL_VARIABLE, LINE_VARIABLE, BREAKS_VARIABLE = "_LEAP_COMPLETE", "_LEAP_LINE", "_LEAP_BREAKS"
SHELLS = ("bash", "zsh", "fish", "powershell")
BREAKS = ":="
SPECIAL = frozenset(" \t\\'\"`$&|;<>()*?[]{}~#!^")
LONGEST_HELP = 100


class Typed(NamedTuple):
    """What has been typed: complete words, the beginning of the one at the cursor, and the quote around it."""

    words: list[str]
    begun: str
    quote: str


class Proposal(NamedTuple):
    """A possible word (kind ``plain``), or where paths are wanted (``file``, ``dir``) what is before them."""

    kind: str
    value: str
    help: str


def answer(root: CommandTable, env: Environment) -> int:
    """Answer the shell's question; the exit code. Who asks in an unknown way gets 2 and no answer."""
    shell = env.variables[SHELL_VARIABLE]
    if shell not in SHELLS:
        return 2
    typed = split(env.variables.get(LINE_VARIABLE, ""), escape="`" if shell == "powershell" else "\\")
    breaks = env.variables.get(BREAKS_VARIABLE, "")
    lines = []
    for kind, value, meaning in candidates(root, env, typed):
        inserted = for_readline(value, typed, breaks) if (shell, kind) == ("bash", "plain") else value
        lines.append(f"{kind}\t{inserted}\t{meaning}\n")
    with suppress(BrokenPipeError):
        env.stdout.write("".join(lines))
        env.stdout.flush()
    return 0


def candidates(root: CommandTable, env: Environment, typed: Typed) -> Iterator[Proposal]:
    """Candidates at the cursor, best first."""
    try:
        words = root.with_default(typed.words, env)
        _offer_values(_command_of(root, words, env))
        items = ShellComplete(root, {"obj": env}, "leap", SHELL_VARIABLE).get_completions(words, typed.begun)
    except (click.ClickException, LeapError):  # what comes before is wrong already
        return
    option, equals, _ = typed.begun.partition("=")
    before = option + equals if equals and option.startswith("--") else ""
    for item in items:
        value = str(item.value) if item.type == "plain" else ""
        if (before + value).isprintable():
            yield Proposal(item.type, before + value, _one_line(item.help))


def _command_of(root: CommandTable, words: list[str], env: Environment) -> click.Command:
    """The command that the words lead to."""
    command: click.Command = root
    context = click.Context(root, info_name="leap", obj=env)
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(context, word) or command
    return command


def _offer_values(command: click.Command) -> None:
    """Let each parameter of a command offer the values that leap knows for it."""
    from .candidates import values_of

    for parameter in command.params:
        setattr(parameter, "shell_complete", partial(values_of, parameter))  # noqa: B010 (a method, for this process)


def split(line: str, *, escape: str = "\\") -> Typed:
    """The words of a command up to the cursor, without the command's own name and assignments before it."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    rest = iter(line)
    for char in rest:
        if quote:
            if char == quote:
                quote = ""
            elif char == escape and quote == '"':
                word = (word or "") + next(rest, "")
            else:
                word = (word or "") + char
        elif char in "'\"":
            quote, word = char, word or ""
        elif char == escape:
            word = (word or "") + next(rest, "")
        elif char.isspace():
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + char
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        words.pop(0)
    return Typed(words[1:], word or "", quote)


def for_readline(value: str, typed: Typed, breaks: str) -> str:
    """The part of a word that bash replaces, quoted as the line demands: unquoted words end at its break characters."""
    if typed.quote == "'":
        return value.replace("'", "'\\''")
    if typed.quote:
        return "".join(f"\\{char}" if char in '\\"$`' else char for char in value)
    kept = max((typed.begun.rfind(char) + 1 for char in BREAKS if char in breaks), default=0)
    return "".join(f"\\{char}" if char in SPECIAL else char for char in value[kept:])


def _one_line(text: str | None) -> str:
    words = " ".join((text or "").split())
    return words if len(words) <= LONGEST_HELP else words[: LONGEST_HELP - 1] + "…"
