"""The prompt of one answer: from arguments, standard input, or both, in a text with places.

Only names that have a value are places; all other braces, such as those of JSON, are kept.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import click

from leap_core.system.dataclass import dataclass

from ..framework.arguments import reading
from ..framework.environment import Environment
from ..framework.output import Output
from .files import MOST_BYTES, check_size, decode_text, read_text_file, say_notes

INPUT = "{input}"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLACE = re.compile(rf"\{{\{{ *({NAME.pattern}) *\}}\}}|\{{({NAME.pattern})\}}")
"""``{name}``, or ``{{name}}`` as other programs write it."""


@dataclass(frozen=True)
class Pattern:
    """``text`` and the values of its variables, by name."""

    text: str = INPUT
    values: Mapping[str, str] = field(default_factory=dict)

    def fill(self, question: str) -> str:
        """The text with ``question`` in the place of ``{input}``, or after it where it has none; empty where the place
        has no text. What a value says is not looked at again."""
        if any(_name(place) == "input" for place in PLACE.finditer(self.text)):
            return self._filled({**self.values, "input": question}) if question else ""
        text = self._filled(self.values)
        return f"{text}\n\n{question}" if question else text

    def fill_variables(self) -> str:
        """The text with its variables filled in; ``{input}`` stays as it is."""
        return self._filled(self.values)

    def escaped(self, names: Iterable[str]) -> str:
        """The text as patterns of lines are written: places of ``{input}``, of the values and of these names stay, all
        other braces are doubled."""
        places = {*self.values, *names, "input"}
        pieces, at = [], 0
        for place in PLACE.finditer(self.text):
            if _name(place) in places:
                pieces += [_doubled(self.text[at : place.start()]), f"{{{_name(place)}}}"]
                at = place.end()
        return "".join([*pieces, _doubled(self.text[at:])])

    def _filled(self, values: Mapping[str, str]) -> str:
        return PLACE.sub(lambda place: values.get(_name(place), place[0]), self.text)


def _name(place: re.Match[str]) -> str:
    return place[1] or place[2]


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def names_in(*texts: str | None) -> tuple[str, ...]:
    """The names in braces in these texts, each once, without ``input``."""
    names = (_name(place) for text in texts for place in PLACE.finditer(text or ""))
    return tuple(dict.fromkeys(name for name in names if name != "input"))


PATIENCE_SECONDS = 3.0
STDIN = "standard input"


def read_prompt(
    words: Sequence[str],
    env: Environment,
    output: Output,
    *,
    before: Sequence[str] = (),
    pattern: Pattern | None = None,
    stdin_is_taken: bool = False,
    may_be_empty: bool = False,
) -> str:
    """The parts ``before``, the words, joined by spaces, then standard input unless that is a terminal, with a blank
    line between them.

    One ``-`` among the words means standard input, a terminal included. All of it is filled into
    ``pattern``, where there is one. An empty prompt is a usage error, unless it ``may_be_empty``.
    ``stdin_is_taken``: standard input is not text but a picture or a sound.
    """
    if words.count("-") > 1 or ("-" in words and stdin_is_taken):
        raise click.UsageError("'-' means standard input and can be given only once")
    if "-" in words:
        at = words.index("-")
        parts = [" ".join(words[:at]), read_text(env, output), " ".join(words[at + 1 :])]
    else:
        parts = [" ".join(words), "" if env.stdin_is_terminal or stdin_is_taken else read_text(env, output)]
    source = "\n\n".join(part for part in (*before, *parts) if part.strip())
    prompt = source if pattern is None else pattern.fill(source)
    if not prompt.strip() and not may_be_empty:
        chat = "; leap chat talks with a model" if env.stdin_is_terminal else ""
        raise click.UsageError(f"the prompt is empty: give it as an argument, on standard input, or both{chat}")
    return prompt


def read_text(env: Environment, output: Output) -> str:
    """Standard input as text, without its last line end."""
    return read_standard_input(env, output).rstrip("\r\n")


def read_standard_input(env: Environment, output: Output) -> str:
    """All of standard input as text, a document's too. Raises UnreadableDocumentError for what is none."""
    data = _read_stdin(env, output, MOST_BYTES + 1)
    check_size(data, STDIN)
    if not data:
        return ""
    from leap_core.documents.kinds import TEXTS
    from leap_core.documents.reading import check_has_text, read_document
    from leap_core.documents.text import decode

    document = read_document(data, STDIN)
    say_notes(document, STDIN, env)
    if document.kind in TEXTS:
        return decode(data)[0]
    check_has_text(document, STDIN)
    return document.text


def numbered_lines(name: str, env: Environment, output: Output) -> list[tuple[int, str]]:
    """The lines of a file that are not blank, without their ends, each after its number in the file, from 1; ``-`` is
    standard input. There may be any number of them. Raises UsageError naming the file, and what is wrong with it."""
    source = STDIN if name == "-" else name
    with reading(name):
        data = _read_stdin(env, output) if name == "-" else (env.cwd / name).read_bytes()
    if b"\0" in data:
        raise click.UsageError(f"{source} is binary, and no lines of text")
    lines = enumerate(decode_text(data, source).split("\n"), 1)
    return [(number, line.rstrip("\r")) for number, line in lines if line.strip()]


def _read_stdin(env: Environment, output: Output, most: int = -1) -> bytes:
    waiting = threading.Timer(PATIENCE_SECONDS, output.note, ["waiting for standard input (</dev/null gives none)"])
    waiting.daemon = True
    if env.stdin_is_terminal:
        output.note("type the text, then Ctrl-D on a line of its own")
    else:
        waiting.start()
    try:
        return env.read_stdin(most)
    finally:
        waiting.cancel()


def read_system(value: str, env: Environment) -> str:
    """The system prompt that an argument means: ``@FILE`` is the file's text, ``@@`` a literal ``@`` at the beginning.

    Raises UsageError.
    """
    if not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    return read_text_file(value[1:], env).rstrip("\r\n")
