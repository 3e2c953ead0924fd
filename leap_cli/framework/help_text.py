"""How help is laid out: what an option takes and means, in words, wrapped to the terminal.

Below ``NARROW`` columns a meaning is under what it explains instead of beside it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import click

from .environment import terminal_columns
from .rare_names import is_by_name
from .wrapping import columns, wrapped

WIDEST, NARROWEST, NARROW = 80, 20, 60
MOST_OF_A_TYPE = 2**63 - 1
"""The upper end of a range that is none: what a database can hold."""
WORD_OF_KIND = {
    "integer": "N",
    "integer range": "N",
    "float": "N",
    "float range": "N",
    "text": "TEXT",
    "path": "FILE",
    "filename": "FILE",
    "directory": "DIR",
    "moment": "TIME",
    "since": "TIME",
}
"""What represents a value in help, by the name of its type; others are called as their type. An option whose value has
another name says so by ``metavar``."""


class HelpFormatter(click.HelpFormatter):
    """Wraps between words only, to the terminal's width, however narrow."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        if width is None:
            width = max(min(terminal_columns(), max_width or WIDEST) - 2, NARROWEST)
        super().__init__(indent_increment, width, max_width)

    @property
    def is_narrow(self) -> bool:
        """Whether two columns of text do not fit."""
        return self.width < NARROW

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        usage = f"{prefix or 'Usage:'} {prog} {args}".rstrip()
        self.write(wrapped(usage, self.width, " " * 4) + "\n")

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text.strip())]
        self.write("\n".join("\n".join(self._lines(each, indent)) + "\n" for each in paragraphs))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        if self.is_narrow:
            for term, meaning in rows:
                self._write_term(term)
                self._write_meaning(meaning, self.current_indent + 4)
            return
        widest = max((columns(term) for term, _ in rows), default=0)
        left = self.current_indent + min(widest, col_max) + col_spacing
        for term, meaning in rows:
            head = " " * self.current_indent + term
            if meaning and columns(head) <= left - col_spacing:
                first, *others = self._lines(meaning, " " * left)
                self.write("\n".join([head + first[columns(head) :], *others]) + "\n")
            else:
                self._write_term(term)
                self._write_meaning(meaning, left)

    def write_example(self, line: str) -> None:
        """A line of shell; where it is too long it continues after a backslash, never within quotes."""
        indent = " " * self.current_indent
        for piece in broken_shell(line, self.width - self.current_indent):
            self.write(f"{indent}{piece}\n")
            indent = " " * (self.current_indent + 4)

    def _write_term(self, term: str) -> None:
        """What is explained, broken after the bars of a long list of choices."""
        line = " " * self.current_indent
        for piece in re.findall(r"[^|\s]+\|?|\s+", term):
            if columns(line + piece) > self.width and line.strip():
                self.write(line.rstrip() + "\n")
                line = " " * (self.current_indent + 2) + piece.lstrip()
            else:
                line += piece
        self.write(line.rstrip() + "\n")

    def _write_meaning(self, meaning: str, left: int) -> None:
        if meaning:
            self.write("\n".join(self._lines(meaning, " " * left)) + "\n")

    def _lines(self, text: str, indent: str) -> list[str]:
        lines = wrapped(" ".join(text.split()), max(self.width - len(indent), 10)).split("\n")
        return [indent + line for line in lines]


def metavar(option: click.Option, ctx: click.Context) -> str:
    """What represents the option's value, such as ``N``, ``FILE`` or ``[text|json]``; nothing for a flag."""
    if option.is_flag or option.count:
        return ""
    if option.metavar is None and (word := WORD_OF_KIND.get(option.type.name)):
        return word
    return option.make_metavar(ctx)


def names_and_value(option: click.Option, ctx: click.Context) -> str:
    """``-n, --count N``, or ``--stream / --no-stream``."""
    names = " / ".join(", ".join(_short_first(each)) for each in (option.opts, option.secondary_opts) if each)
    return with_value(names, metavar(option, ctx), option)


def with_value(names: str, value: str, option: click.Option) -> str:
    """``--count N``, ``--option NAME=N``."""
    return f"{names}{'=' if is_by_name(option) else ' '}{value}" if value else names


def meaning(option: click.Option, ctx: click.Context) -> str:
    """What the option does, whether it may be repeated, its default and its range."""
    extra = option.get_help_extra(ctx)
    notes = [f"default: {extra['default']}"] if "default" in extra else []
    notes += [words] if (words := range_in_words(option.type)) else []
    notes += ["required"] if option.required else []
    repeated = " May be repeated." if option.multiple else ""
    return f"{option.help or ''}{repeated}" + (f"  [{'; '.join(notes)}]" if notes else "")


def range_in_words(kind: click.ParamType[Any, Any]) -> str:
    """``1 to 256``, ``1 or more``; nothing for a type without a range."""
    if not isinstance(kind, (click.IntRange, click.FloatRange)):
        return ""
    low, high = kind.min, kind.max
    if high is None or high >= MOST_OF_A_TYPE:
        return "" if low is None else f"more than {low}" if kind.min_open else f"{low} or more"
    return f"{high} or less" if low is None else f"{low} to {high}"


def row_of(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    """The option's row in help."""
    return names_and_value(option, ctx), meaning(option, ctx)


def short_row_of(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    """The row in short: two names at most, no long list of choices, and the help up to its first semicolon."""
    names = " / ".join(", ".join(_short_first(each[:2])) for each in (option.opts, option.secondary_opts) if each)
    value = metavar(option, ctx)
    value = value if len(value) < 24 else max(option.opts, key=len).lstrip("-").upper()
    default = option.get_help_extra(ctx).get("default")
    note = "" if default is None else f"  [default: {default}]"
    return f"{names} {value}".rstrip(), (option.help or "").partition(";")[0].rstrip(".") + "." + note


def text_of(command: click.Command) -> str:
    """What the command says of itself, its paragraphs divided by empty lines."""
    return inspect.cleandoc(command.help or "").replace("\b", "").strip()


def broken_shell(line: str, width: int) -> list[str]:
    """A line of shell as lines that end with a backslash, of at most ``width`` columns where its words allow that."""
    words = re.findall(r"(?:[^\s'\"]|'[^']*'|\"(?:\\.|[^\"\\])*\")+", line)
    lines: list[str] = []
    current = ""
    for number, word in enumerate(words, start=1):
        room = width - (4 if lines else 0) - (2 if number < len(words) else 0)
        if current and columns(current) + 1 + columns(word) > room:
            lines.append(current + " \\")
            current = word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current]


def _short_first(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: name.startswith("--"))
