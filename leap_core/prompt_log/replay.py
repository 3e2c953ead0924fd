"""A logged request asked again: what it was, and how the new answer differs."""

from __future__ import annotations

import re
from typing import Any

from ..errors import LeapOptionsError
from ..messages import ChatMessage
from ..options import GenerationOptions
from .entry import Entry

NOT_KEPT = re.compile(r"^\[(image|audio|imagefile|audiofile|picture|sound)\w*\]$", re.MULTILINE | re.IGNORECASE)
AROUND = 20
MAKERS = {"weights": "another file of the model", "leap": "another version of leap or of llama.cpp"}


def request_of(entry: Entry) -> tuple[list[ChatMessage], GenerationOptions]:
    """The messages and options of an entry. Raises LeapOptionsError where the log does not hold all of them."""
    if entry.turns:
        raise LeapOptionsError("entry", f"{entry.id} goes on from {entry.turns} messages, which the log does not hold")
    if NOT_KEPT.search(entry.prompt):
        raise LeapOptionsError("entry", f"{entry.id} has a picture or a sound, which the log does not hold")
    if entry.calls:
        raise LeapOptionsError("entry", f"{entry.id} calls functions, whose declarations the log does not hold")
    if entry.error is not None:
        raise LeapOptionsError("entry", f"{entry.id} has no whole answer: {entry.error}")
    options = dict(entry.options)
    if entry.schema is not None:
        options["json_schema_constraint"] = entry.schema
    messages = [ChatMessage("system", entry.system)] if entry.system is not None else []
    return [*messages, ChatMessage("user", entry.prompt)], GenerationOptions.from_json(options)


def difference(before: Entry, again: Entry) -> dict[str, Any]:
    """Whether text, reasoning and reason of the end are ``same``; else from which character on the texts differ, and
    what may be why."""
    same = (before.answer, before.reasoning, before.finish) == (again.answer, again.reasoning, again.finish)
    if same:
        return {"same": True}
    pairs = enumerate(zip(before.answer, again.answer, strict=False))
    place = next((n for n, (old, new) in pairs if old != new), min(len(before.answer), len(again.answer)))
    around = slice(max(0, place - AROUND), place + AROUND)
    return {
        "same": False,
        "from_character": place,
        "was": before.answer[around],
        "is": again.answer[around],
        "ended": before.finish,
        "ends": again.finish,
        "reasons": reasons(before, again),
    }


def reasons(before: Entry, again: Entry) -> list[str]:
    """What may make two answers to one request differ."""
    found = []
    if before.model != again.model:
        found.append(f"another model: {before.model} answered, now {again.model}")
    if before.options.get("rng_seed") is None and before.options.get("temperature") != 0:
        found.append("the request has no seed, and chance decides above temperature 0")
    if found:
        return found
    old, new = before.made_by, again.made_by
    shared = [name for name in MAKERS if name in old and name in new]
    found = [f"{MAKERS[name]}: {old[name]} answered, now {new[name]}" for name in shared if old[name] != new[name]]
    unknown = [text for name, text in MAKERS.items() if name not in shared]
    return found or [", or ".join([*unknown, "other options of loading, as of the cache's types or of a GPU"])]
