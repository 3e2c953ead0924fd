"""Random replies with calls, fragments of calls and prose: streamed in random pieces they give what they give whole.

    python scripts/torture_calls.py [COUNT] [--seed N] [--templates DIRECTORY]

There are 30,000 replies over all parsers of calls by default, and over the formats that are learned from the templates
(*.jinja) of a directory.
Prints each reply that differs with the pieces it came in, then the number by parser. Each third reply has a call that
is only quoted, which must stay text.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall, parser_named
from leap_core.conversation.calls.dialects import CHANNELS, DIALECTS, RECIPIENTS
from leap_core.conversation.calls.parsers import PARSERS, DialectParser, LeapFunctionCallParser
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Chunk, Complete, FunctionCalls, GenerationFinishReason, ReasoningChunk
from leap_core.errors import GenerationStats
from leap_core.inference.template.chat_template import ChatTemplate
from leap_core.inference.template.learning import Probe
from leap_core.inference.template.reply import ReplyBuilder

SCHEMA = {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}}}
FUNCTIONS = [LeapFunction.from_openai({"name": name, "parameters": SCHEMA}) for name in ("f", "get_weather")]
PARSER_NAMES = (*PARSERS, *DIALECTS)
VALUES = ("x", "", "a\nb", 'say "hi"', "</tool_call>", "[f()]", "ü€😀", "{", "```", "\\")
BITS = (
    *("The call is ", "\n", " ", "f", "(", ")", "[", "]", "{", "}", '"', "'", ",", "=", "```json\n", "```", "n=07"),
    *('{"name": "f", ', '"arguments": {}', "[f(a='x'", "<think>", "null", "😀", "<|", "</", "functions."),
)


QUOTATIONS = (
    *(
        "Like this:\n```\n{}\n```\nNow you.",
        "So:\n\n```xml\n{}\n```",
        "So:\n~~~~\n{}\n~~~~\nDone.",
        "Text:\n\n    {}\n\nDone.",
    ),
    *(
        "Write `{}` there.",
        "Write ``{}``!",
        'He said "{}" to me.',
        "It is called “{}”, see?",
        "Le « {} » est bien.",
        "「{}」です",
    ),
    *("It is ‹{}› or »{}«.", "It says:\n> {}\n\nThat is cited.", "A '{}' is a call.", "Say ‘{}’.", 'Let it be ("{}").'),
    *(
        'So:\n```python\ns = "```"\n{}\n```\n',
        "So:\n````\n```\n{}\n````",
        "So:\n```\n~~~\n{}\n```",
        "So:\n~~~\n```\n{}\n~~~",
        "So:\n```\n```json\n{}\n```",
        "So:\n```\na\n    ```\n{}\n```",
        "Here: ```\na ``` b\n\n{}\n```",
        "- So:\n  ```\n  ``` x\n{}\n  ```",
        "```python\nprint('''\n{}\n''')\n```",
        "> ```\n> {}\n> ```",
        "Cite:\n- > {}\n",
    ),
    *(
        "Don’t say ‘it’s {}’ there.",
        "Don't say 'it's {}' there.",
        "They call ‘rock ’n’roll {}’.",
        "He “said\nthat {}” once.",
        "«a «b» {}»",
        "《{}》",
        '**"{}"**',
        "‚wie geht’s {}‘",
        "『it’s {}』",
    ),
)
"""Texts around a call that is only shown."""
MARKERLESS = (CHANNELS.name, RECIPIENTS.name, "json")
"""Parsers whose calls are whole messages or replies, so that none is within a text."""


LEARNED: dict[str, LeapFunctionCallParser] = {}
"""Formats that were learned, by the name of the template."""


def learn_from(templates: Mapping[str, str]) -> list[str]:
    """The names of the templates, by name their texts, of which a format can be learned."""
    names = []
    for name, source in templates.items():
        dialect = Probe(ChatTemplate(source, bos_text="", eos_text="", special_texts=())).learn()
        if dialect is not None:
            LEARNED[name] = DialectParser(dialect)
            names.append(name)
    return names


def parser_of(name: str) -> LeapFunctionCallParser:
    return LEARNED.get(name) or parser_named(name)


def quoted_reply(draw: random.Random, name: str) -> str:
    """A text with a call that is only quoted."""
    call = LeapFunctionCall(draw.choice(("f", "get_weather")), {"a": draw.choice(("x", "it is", "ü€😀")), "n": 1})
    quotation = draw.choice(QUOTATIONS)
    written = parser_of(name).dump([call])
    for before in ("\n> ", "\n    "):
        if f"{before}{{}}" in quotation:
            written = written.replace("\n", before)
    return draw.choice(("", "I explain. ", "Ein Beispiel.\n\n")) + quotation.replace("{}", written)


def random_reply(draw: random.Random, name: str) -> str:
    """A text such as a model of this parser may write, whole or broken."""
    parser = parser_of(name)
    parts = []
    for _ in range(draw.randint(1, 4)):
        values = {"a": draw.choice(VALUES), "n": draw.randint(-9, 99), "o": {"k": [draw.choice(VALUES), None]}}
        arguments = {key: values[key] for key in draw.sample(sorted(values), draw.randint(0, 3))}
        call = LeapFunctionCall(draw.choice(("f", "get_weather", "other")), arguments)
        written = parser.dump([call] * draw.randint(1, 2))
        plain = json.dumps({"name": call.name, draw.choice(("arguments", "parameters")): arguments})
        written = written.replace(CHANNELS.start, ">>>").replace(CHANNELS.end, "")
        kinds = (written, written, plain, f"```json\n{plain}\n```", "".join(draw.choices(BITS, k=draw.randint(1, 6))))
        part = draw.choice(kinds)
        if draw.random() < 0.3 and part:  # broken: cut, or with something in it
            place = draw.randrange(len(part))
            part = part[:place] + draw.choice(("", part[place + 1 :], written[-9:], draw.choice(BITS)))
        parts.append(part)
    return "".join(parts)


def random_pieces(draw: random.Random, text: str) -> list[str]:
    """The text, cut at random."""
    if draw.random() < 0.2:
        return list(text)
    cuts = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(1, 8)))
    return [text[low:high] for low, high in zip([0, *cuts], [*cuts, len(text)], strict=True)]


class Pieces:
    """A vocabulary in which each piece of text is a token, and none is special."""

    special_tokens: dict[str, int] = {}
    control_tokens: frozenset[int] = frozenset()

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces

    def piece(self, token: int) -> bytes:
        return self._pieces[token].encode()


STATS = GenerationStats(1, 1, 2, 0.0)


def outcome(name: str, pieces: list[str]) -> list[object]:
    """Text, reasoning, calls and warnings of a reply that comes in these pieces, in their order."""
    vocabulary: Any = Pieces(pieces)
    reply = ReplyBuilder(vocabulary, GenerationOptions(enable_thinking=True), parser_of(name), functions=FUNCTIONS)
    responses = [each for token in range(len(pieces)) for each in reply.feed(token)]
    found: list[object] = []
    for each in responses + reply.finish(GenerationFinishReason.STOP, STATS):
        if isinstance(each, Chunk) and found and isinstance(found[-1], str):
            found[-1] += each.text
        elif isinstance(each, Chunk):
            found.append(each.text)
        elif isinstance(each, ReasoningChunk) and found and isinstance(found[-1], bytes):
            found[-1] += each.reasoning.encode()
        elif isinstance(each, ReasoningChunk):
            found.append(each.reasoning.encode())
        elif isinstance(each, FunctionCalls):
            found += [(call.name, dict(call.arguments)) for call in each.function_calls]
        elif isinstance(each, Complete):
            found.append(list(each.warnings))
    return found


def differing(
    count: int, seed: int, names: Sequence[str] = PARSER_NAMES
) -> tuple[list[tuple[str, str, list[str]]], Counter[str]]:
    """Parser, text and pieces of each reply that differs, or runs what it quotes, and how many replies of each parser
    had calls."""
    draw, wrong, called = random.Random(seed), [], Counter[str]()
    for number in range(count):
        name = names[number % len(names)]
        is_quoted = number // len(names) % 3 == 2 and name not in MARKERLESS
        text = quoted_reply(draw, name) if is_quoted else random_reply(draw, name)
        pieces = random_pieces(draw, text)
        whole = outcome(name, [text])
        called[name] += any(isinstance(each, tuple) for each in whole)
        if outcome(name, pieces) != whole or (is_quoted and whole != [text, []]):
            wrong.append((name, text, pieces))
    return wrong, called


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--templates", type=Path)
    given = parser.parse_args()
    found = sorted(given.templates.glob("*.jinja")) if given.templates else []
    names = [*PARSER_NAMES, *learn_from({each.stem: each.read_text("utf-8") for each in found})]
    wrong, called = differing(given.count, given.seed, names)
    for name, text, pieces in wrong:
        print(f"{name}: {text!r}\n  {outcome(name, [text])}\n  {pieces}\n  {outcome(name, pieces)}")
    print(f"{given.count} replies, {sum(called.values())} of them with calls {dict(called)}; {len(wrong)} differ")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
