"""Entries of the log as people read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..framework.options import age
from ..framework.output import Format, shortened

if TYPE_CHECKING:
    from leap_core.conversation.prompt_log import Entry

WIDEST = 60
"""Characters of a prompt or an answer in a table."""


def listed(entries: Sequence[Entry], format: Format) -> list[dict[str, Any]]:
    """A row for each entry."""
    if format is not Format.TEXT:
        return [entry.to_json() for entry in entries]
    now = time.time()
    return [
        {
            "id": entry.id,
            "age": age(now - entry.asked),
            "command": entry.command,
            "model": entry.model,
            "prompt": shortened(entry.prompt[: 4 * WIDEST], WIDEST),
            "answer": shortened(_outcome(entry)[: 4 * WIDEST], WIDEST),
        }
        for entry in entries
    ]


def record_of(entry: Entry) -> dict[str, Any]:
    """What is known of an entry beside its texts."""
    record: dict[str, Any] = {
        "id": entry.id,
        "asked": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.asked)),
        "command": entry.command,
        "model": entry.model,
        "options": ", ".join(f"{name} {value}" for name, value in entry.options.items()) or None,
        "schema": entry.schema,
        "turns": entry.turns or None,
        "finish": entry.finish,
        "rating": entry.rating,
        "error": entry.error,
        "seconds": f"{entry.seconds:.2f}",
        "tokens": _tokens(entry),
    }
    return {name: value for name, value in record.items() if value is not None}


def text_of_entry(entry: Entry) -> str:
    """Its texts, each under a heading."""
    texts = {
        "system": entry.system,
        "prompt": entry.prompt,
        "reasoning": entry.reasoning,
        "calls": _calls(entry),
        "answer": entry.answer,
    }
    return "".join(f"\n# {name}\n\n{text.rstrip()}\n" for name, text in texts.items() if text)


def _calls(entry: Entry) -> str:
    return "\n".join(f"{call.get('name')} {call.get('arguments')}" for call in entry.calls)


def _tokens(entry: Entry) -> str | None:
    if entry.prompt_tokens is None:
        return None
    return f"{entry.prompt_tokens} of the prompt, {entry.answer_tokens} of the answer"


def _outcome(entry: Entry) -> str:
    return f"error: {entry.error}" if entry.error else entry.answer or _calls(entry)
