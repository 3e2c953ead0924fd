"""``python -m leap_cli.diagnosis.self_test``: load the engine, then let the built-in model answer.

It writes one JSON line after each.

A process of its own, because what is being tested could end it.
"""

from __future__ import annotations

import json
import time
from typing import Any

QUESTION, KNOWN = "What is the capital of France?", "Paris"


def engine() -> dict[str, Any]:
    """What llama.cpp says of itself and this machine."""
    from leap_core.inference.llama.devices import describe

    return {"engine": describe()}


def generation() -> dict[str, Any]:
    """One answer of the built-in model, and how long everything took."""
    from leap_core.conversation.streams import last_of
    from leap_core.opening import Leap

    start = time.monotonic()
    with Leap.load("builtin") as runner:
        loaded = time.monotonic()
        text = last_of(runner.create_conversation().generate_response(QUESTION)).full_message.text
    ended = time.monotonic()
    return {"generation": {"answer": text, "load_seconds": loaded - start, "answer_seconds": ended - loaded}}


if __name__ == "__main__":
    for part in (engine, generation):
        print(json.dumps(part()), flush=True)
