"""Examples of every command: ``leap COMMAND --help`` ends with them, and the reference shows them.

A line of examples.txt is a command and an example. Run in this order, in one home, each of them works;
tests/end_to_end/test_examples.py does so.
"""

from __future__ import annotations

from pathlib import Path

EXAMPLES: dict[str, tuple[str, ...]] = {}
for _line in (Path(__file__).parent / "examples.txt").read_text("utf-8").splitlines():
    _command, _, _example = _line.partition(" | ")
    EXAMPLES[_command] = (*EXAMPLES.get(_command, ()), _example)
OUTPUTS: dict[str, str] = {
    "generate": "The capital of Italy is Rome.",
    "chat": "Nice to meet you, Ada.\nYour name is Ada.",
    "batch": "The capital of Italy is Rome.",
    "extract": '{"name": "Ann", "city": "Rome"}',
    "tools call": "42",
}
"""What the first example of a command prints, with the built-in model."""
