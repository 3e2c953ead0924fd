"""Lines that a person or a pipe gives to a conversation."""

from __future__ import annotations

from collections.abc import Iterator

from .environment import Environment
from .prompt import decode_text

PROMPT = "> "


def read_lines(env: Environment) -> Iterator[str]:
    """Each line that is not blank, without its end, until the input ends.

    On a terminal a prompt is shown, Ctrl-D ends and Ctrl-C drops the line being typed; from a pipe nothing is shown.
    """
    if env.stdin_is_terminal:
        yield from _typed_lines(env)
        return
    for number, data in enumerate(env.stdin, start=1):
        line = decode_text(data, f"line {number} of standard input").rstrip("\r\n")
        if line.strip():
            yield line


def _typed_lines(env: Environment) -> Iterator[str]:
    while True:
        try:
            line = env.read_typed_line(PROMPT)
        except EOFError:
            env.stderr.write("\n")
            return
        except KeyboardInterrupt:
            env.stderr.write("\n")
            continue
        if line.strip():
            yield line
