"""What a command has to say: data to stdout, all else to stderr; a question before a removal, a page opened.

Four formats: text for people, json (one document), jsonl (one object a line), quiet (ids or names only, for xargs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click

from .environment import Environment
from .interrupts import raising_on_interrupt
from .wrapping import GAP, NARROWEST, fitted_cell, fitting_widths, wrapped
from .wrapping import columns as columns_of

DIM, PLAIN, CLEAR_LINE = "\x1b[2m", "\x1b[0m", "\r\x1b[K"

DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the direction of others, so that a text looks like another one."""

CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160), *DIRECTIONS) if chr(code) not in "\n\t"}
"""What a model's text must not do to a terminal: move its cursor, change its title, hide what is written."""


ESCAPED_CONTROLS = {code: f"\\u{code:04x}" for code in (*range(127, 160), *DIRECTIONS)}
"""These are escaped in JSON, which escapes the others itself."""


class Format(str, Enum):
    """How data is written to stdout."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    QUIET = "quiet"


class Output:
    """Where a command hands its results to. Everything is flushed as it is written, so pipes see it at once."""

    def __init__(self, env: Environment, format: Format | str = Format.TEXT) -> None:
        self.format = Format(format)
        self._out, self._err = env.stdout, env.stderr
        self._out_is_terminal, self._err_is_terminal = env.stdout_is_terminal, env.stderr_is_terminal
        self.shows_styles = env.use_color(env.stdout_is_terminal)
        """Whether stdout takes escape codes."""
        self._dim_notes = env.use_color(env.stderr_is_terminal)
        self.shows_progress = env.stderr_is_terminal and env.variables.get("TERM") != "dumb"
        """Whether stderr takes lines of progress."""
        self._last_line = env.last_line
        self.columns = env.terminal_columns if env.stdout_is_terminal else None
        """The width that text for people is wrapped to; None where stdout is no terminal."""
        self.aside_columns = env.terminal_columns if env.stderr_is_terminal else None
        """The same for stderr."""

    def text(self, piece: str) -> None:
        """A piece of the data itself: as it is, but without control characters for a terminal."""
        self._write_data(piece.translate(CONTROLS) if self._out_is_terminal else piece)

    def styled(self, piece: str) -> None:
        """A piece of the data with escape codes of leap's own, for a terminal that takes them."""
        self._write_data(piece)

    def document(self, value: object) -> None:
        """One JSON document, indented for reading."""
        self._write_data(_json(value, indent=2))

    def event(self, value: object) -> None:
        """One JSON object on a line of its own."""
        self._write_data(_json(value, separators=(",", ":")))

    def record(self, record: Mapping[str, Any], *, name: str) -> None:
        """One thing with fields; ``name`` is the field that quiet prints."""
        if self.format is Format.JSON:
            self.document(record)
        elif self.format is Format.JSONL:
            self.event(record)
        elif self.format is Format.QUIET:
            self.text("" if record[name] is None else f"{record[name]}\n")
        else:
            width = max(len(key) for key in record)
            lines = (f"{key:<{width}}  {_cell(value)}" for key, value in record.items())
            self.text("".join(f"{self._fitted(line, ' ' * (width + 2))}\n" for line in lines))

    def records(
        self,
        records: Iterable[Mapping[str, Any]],
        columns: Sequence[str],
        *,
        name: str,
        none: str = "",
        wraps: bool = False,
    ) -> None:
        """Many things with fields. Text shows ``columns`` in a table with a heading, json all fields in an array.
        ``none``: the note in the place of a table without rows. ``wraps``: the last column is wrapped
        where a terminal is too narrow, instead of being shortened."""
        if self.format is Format.JSON:
            self.document(list(records))
        elif self.format is Format.JSONL:
            for record in records:
                self.event(record)
        elif self.format is Format.QUIET:
            for record in records:
                self.text(f"{record[name]}\n")
        else:
            rows = list(records)
            self._table(rows, columns, whole=columns[0] == name, wraps=wraps)
            if none and not rows:
                self.note(none)

    def note(self, message: str) -> None:
        """One line for the person at the keyboard."""
        self._write_line(f"leap: {one_line(message)}")

    def warning(self, message: str, *, once: bool = False) -> None:
        """One line about something that was not done as asked. ``once``: in the whole run."""
        if not (once and message in self._last_line.said):
            self._last_line.said.add(message)
            self._write_line(f"leap: warning: {one_line(message)}")

    def error(self, message: str, hint: str | None = None) -> None:
        """One line about what failed, and what to do about it."""
        advice = f" (hint: {one_line(hint)})" if hint else ""
        self._write_line(f"leap: error: {one_line(message)}{advice}")

    def aside(self, piece: str) -> None:
        """Text beside the data, such as reasoning, dimmed on a terminal."""
        if self._err_is_terminal:
            piece = piece.translate(CONTROLS)
        self._write_note(f"{DIM}{piece}{PLAIN}" if self._dim_notes and piece.strip() else piece)

    def progress(self, message: str) -> None:
        """A line that the next one replaces. Shown on a terminal only, and not over text whose line has not ended."""
        line = self._last_line
        with line.guard:
            if self.shows_progress and not (line.is_open or line.is_quiet):
                columns = self.aside_columns or 0
                self._tell(CLEAR_LINE + fitted_cell(one_line(message), columns - 1).rstrip())
                line.has_progress = True

    def end_progress(self) -> None:
        """Erase such a line."""
        with self._last_line.guard:
            if self._last_line.has_progress:
                self._tell(CLEAR_LINE)
                self._last_line.has_progress = False

    def _table(self, records: list[Mapping[str, Any]], columns: Sequence[str], *, whole: bool, wraps: bool) -> None:
        lines, hidden = table_lines(records, columns, self.columns, whole=whole, wraps=wraps)
        self.text("".join(f"{line}\n" for line in lines))
        if hidden:
            self.note(f"not shown for lack of space: {', '.join(hidden)} (--format json has all)")

    def _write_data(self, text: str) -> None:
        with self._last_line.guard:
            self.end_progress()
            self._out.write(text)
            self._out.flush()
            self._note_end(text, self._out_is_terminal)

    def _write_line(self, line: str) -> None:
        if self.aside_columns is not None:
            line = wrapped(line, self.aside_columns, " " * len("leap: "))
        self._write_note(line + "\n")

    def _fitted(self, line: str, indent: str) -> str:
        return line if self.columns is None else wrapped(line, self.columns, indent)

    def _write_note(self, text: str) -> None:
        with self._last_line.guard:
            self.end_progress()
            self._tell(text)
            self._note_end(text, self._err_is_terminal)

    def _note_end(self, text: str, is_terminal: bool) -> None:
        if text and is_terminal:
            self._last_line.is_open = not text.removesuffix(PLAIN).endswith("\n")

    def _tell(self, text: str) -> None:
        """For people: where stderr cannot be written, the work continues."""
        with suppress(OSError, ValueError):  # ValueError: the stream was closed
            self._err.write(text)
            self._err.flush()


def table_lines(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    width: int | None,
    *,
    whole: bool = False,
    wraps: bool = False,
) -> tuple[list[str], Sequence[str]]:
    """The lines of a table with a heading, in at most ``width`` columns of a terminal, and the ``columns`` for which
    there was no space; no lines without records. ``whole``: the first column is not shortened; ``wraps``: nor is the
    last."""
    if not records:
        return [], ()
    rows = [[column.replace("_", " ").upper() for column in columns]]
    rows += [[_cell(record.get(column)) for column in columns] for record in records]
    widths = [max(columns_of(row[n]) for row in rows) for n in range(len(columns))]
    rest = 0 if width is None else width - sum(each + GAP for each in widths[:-1])
    if wraps and NARROWEST <= rest < widths[-1]:
        widths[-1] = rest
        rows = [[*head, part] for *row, last in rows for head, part in _wrapped_rows(row, last, rest)]
    elif width is not None:
        widths = fitting_widths(widths, width, whole=whole)
    lines = ("  ".join(fitted_cell(cell, room) for cell, room in zip(row, widths, strict=False)) for row in rows)
    return [line.rstrip() for line in lines], columns[len(widths) :]


def _wrapped_rows(cells: list[str], last: str, width: int) -> Iterator[tuple[list[str], str]]:
    """The rows of one whose last cell is wider than ``width``; the further ones have nothing else."""
    for word in wrapped(last, width).split("\n"):
        for begin in range(0, max(len(word), 1), width):  # a path has no spaces
            yield cells, word[begin : begin + width]
            cells = [""] * len(cells)


def one_line(text: str) -> str:
    """The text on one line, without control characters that a file name may have carried in."""
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))


def shortened(text: str, most: int) -> str:
    """The text on one line of at most so many characters."""
    line = one_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def printable(text: str) -> str:
    """The text as it is, but for characters that a terminal would obey or hide, which are spelled out."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(map(_cell, value)) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value)
    return one_line(str(value))


def _json(value: object, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """A line or lines of JSON, without characters that control a terminal."""
    import json  # here, because help would pay for it

    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return text.translate(ESCAPED_CONTROLS) + "\n"


Decorated = TypeVar("Decorated", bound=Callable[..., Any])


YES = click.option("-y", "--yes", is_flag=True, help="Remove without confirmation, for scripts.")


def removal_flags(function: Decorated) -> Decorated:
    """Add ``--yes`` and ``--dry-run``; the function receives ``yes`` and ``dry_run``, for ``confirm_removal``."""
    function = YES(function)
    return click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")(function)


def confirm_meant(env: Environment, meant: Mapping[str, str], *, yes: bool) -> bool:
    """Whether to remove what names represent that are not whole, ``meant`` by what was given: the beginning of a name
    is enough to use a thing, and not to destroy it. A terminal is asked; without one ``--yes`` is needed, or UsageError
    is raised."""
    if not meant:
        return True
    if not yes and not (env.stdin_is_terminal and env.stderr_is_terminal):
        given, whole = next(iter(meant.items()))
        raise click.UsageError(f"{given!r} is no whole name: give {whole}, or --yes to remove that")
    return confirm_removal(env, ", ".join(meant.values()), yes=yes, dry_run=False)


def confirm_removal(env: Environment, what: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to remove ``what``, such as "3 jobs". A terminal is asked; without one ``--yes`` is needed, or UsageError
    is raised."""
    if dry_run:
        Output(env).note(f"{what} would be removed")
        return False
    if yes:
        return True
    if not (env.stdin_is_terminal and env.stderr_is_terminal):
        raise click.UsageError(f"{what} would be removed: give --yes to remove, or --dry-run to see them")
    if not answers_yes(env, f"remove {what}? [y/N] ", otherwise=False):
        Output(env).note("nothing was removed")
        return False
    return True


def answers_yes(env: Environment, question: str, *, otherwise: bool) -> bool:
    """Whether the person at the terminal says yes; ``otherwise``: what an empty line says. Ctrl-D says no."""
    try:
        with raising_on_interrupt():
            answer = env.read_typed_line(question).strip().lower()
    except EOFError:
        return False
    return answer in ("y", "yes") or (not answer and otherwise)


@contextmanager
def page_opener(env: Environment) -> Iterator[Callable[[str], None]]:
    """Opens addresses in the default web browser, by way of a private file that is there as long as the context: what a
    program is started with can be read by others."""

    def open_page(address: str) -> None:
        import tempfile  # here, because every start would pay for it
        import webbrowser

        private = using.enter_context(tempfile.TemporaryDirectory(dir=env.directories.run, prefix="page-"))
        way = Path(private) / "open.html"
        way.write_text(f'<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">\n')
        if not webbrowser.open(way.as_uri()):
            Output(env).warning("there is no web browser that can be opened from here")

    with ExitStack() as using:
        yield open_page
