"""Random replies with calls, fragments of calls and prose: streamed in random pieces they give what they give whole.

    python scripts/torture_calls.py [COUNT] [--seed N]      # 30,000 replies over all parsers of calls by default

Prints each reply that differs with the pieces it came in, then the number by parser.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall, parser_named
from leap_core.conversation.calls.dialects import DIALECTS
from leap_core.conversation.calls.fitting import fits
from leap_core.conversation.calls.parsers import PARSERS, CallEvent, CallsFound, CallStream, CallText, CallWarning

SCHEMA = {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}}}
FUNCTIONS = [LeapFunction.from_openai({"name": name, "parameters": SCHEMA}) for name in ("f", "get_weather")]
PARSER_NAMES = (*PARSERS, *DIALECTS)
VALUES = ("x", "", "a\nb", 'say "hi"', "</tool_call>", "[f()]", "ü€😀", "{", "```", "\\")
BITS = (
    *("The call is ", "\n", " ", "f", "(", ")", "[", "]", "{", "}", '"', "'", ",", "=", "```json\n", "```", "n=07"),
    *('{"name": "f", ', '"arguments": {}', "[f(a='x'", "<think>", "null", "😀", "<|", "</", "functions."),
)


def random_reply(draw: random.Random, name: str) -> str:
    """A text such as a model of this parser may write, whole or broken."""
    parser = parser_named(name)
    parts = []
    for _ in range(draw.randint(1, 4)):
        values = {"a": draw.choice(VALUES), "n": draw.randint(-9, 99), "o": {"k": [draw.choice(VALUES), None]}}
        arguments = {key: values[key] for key in draw.sample(sorted(values), draw.randint(0, 3))}
        call = LeapFunctionCall(draw.choice(("f", "get_weather", "other")), arguments)
        written = parser.dump([call] * draw.randint(1, 2))
        plain = json.dumps({"name": call.name, draw.choice(("arguments", "parameters")): arguments})
        kinds = (written, written, plain, f"```json\n{plain}\n```", "".join(draw.choices(BITS, k=draw.randint(1, 6))))
        part = draw.choice(kinds)
        if draw.random() < 0.3 and part:  # broken: cut, or with something in it
            place = draw.randrange(len(part))
            part = part[:place] + draw.choice(("", part[place + 1 :], parser.end_marker, draw.choice(BITS)))
        parts.append(part)
    return "".join(parts)


def random_pieces(draw: random.Random, text: str) -> list[str]:
    """The text, cut at random."""
    if draw.random() < 0.2:
        return list(text)
    cuts = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(1, 8)))
    return [text[low:high] for low, high in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def outcome(name: str, pieces: list[str]) -> list[object]:
    """Text, calls and warnings of a reply that comes in these pieces, in their order."""
    stream = CallStream(parser_named(name), [each.name for each in FUNCTIONS], None, lambda call: fits(call, FUNCTIONS))
    events: list[CallEvent] = [event for piece in pieces for event in stream.feed(piece)] + stream.finish()
    found: list[object] = []
    for event in events:
        if isinstance(event, CallText) and found and isinstance(found[-1], str):
            found[-1] += event.text
        elif isinstance(event, CallText):
            found.append(event.text)
        elif isinstance(event, CallsFound):
            found += [(call.name, dict(call.arguments)) for call in event.calls]
        elif isinstance(event, CallWarning):
            found.append([event.message])
    return found


def differing(count: int, seed: int) -> tuple[list[tuple[str, str, list[str]]], Counter[str]]:
    """Parser, text and pieces of each reply that differs, and how many replies of each parser had calls."""
    draw, wrong, called = random.Random(seed), [], Counter[str]()
    for number in range(count):
        name = PARSER_NAMES[number % len(PARSER_NAMES)]
        text = random_reply(draw, name)
        pieces = random_pieces(draw, text)
        whole = outcome(name, [text])
        called[name] += any(isinstance(each, tuple) for each in whole)
        if outcome(name, pieces) != whole:
            wrong.append((name, text, pieces))
    return wrong, called


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong, called = differing(given.count, given.seed)
    for name, text, pieces in wrong:
        print(f"{name}: {text!r}\n  {outcome(name, [text])}\n  {pieces}\n  {outcome(name, pieces)}")
    print(f"{given.count} replies, {sum(called.values())} of them with calls {dict(called)}; {len(wrong)} differ")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
