"""A batch over an endpoint, journal included, against the same requests by OpenAI's own client; and the first token.

    python benchmarks/endpoint.py [URL] [--model NAME] [--lines 500] [--concurrency 8] [--repeat 3]

URL is the base of an endpoint, such as http://127.0.0.1:8080/v1; without one `leap serve builtin` is started. The sides
take turns. openai is not part of leap: pip install openai.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from batches import batch, lines_of
from harness import SHORT, Row, alternate, leap_serve, report, sized, user
from openai import OpenAI

from leap_core.batch.input.lines import RequestReader
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.opening import Leap

TOKENS = 16
FIRST_TOKENS = 2 if SHORT else 21
OPTIONS = GenerationOptions(temperature=0.0, max_tokens=TOKENS)


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def official(client: OpenAI, model: str, text: str) -> str | None:
    """One answer by the official client."""
    asked = client.chat.completions.create(
        model=model, temperature=0.0, max_tokens=TOKENS, messages=[{"role": "user", "content": text}]
    )
    return asked.choices[0].message.content


def first_token(begin: Callable[[], Iterator[object]]) -> float:
    """Milliseconds until the first piece; the rest is read too."""
    begun = time.perf_counter()
    pieces = begin()
    next(pieces)
    found = (time.perf_counter() - begun) * 1000
    for _ in pieces:
        pass
    return found


def official_pieces(client: OpenAI, model: str) -> Iterator[object]:
    stream = client.chat.completions.create(
        model=model, stream=True, temperature=0.0, max_tokens=4, messages=[{"role": "user", "content": "Hi"}]
    )
    return (each for each in stream if each.choices and each.choices[0].delta.content)


def rows(url: str, model: str, lines: int, concurrency: int, repeat: int) -> list[Row]:
    texts = [f"Count to {n}." for n in range(lines)]
    asked = RequestReader(OPTIONS)
    work = lines_of(texts, asked)
    client = OpenAI(base_url=url, api_key="none")
    with ExitStack() as stack:
        runner: ModelRunner = stack.enter_context(Leap.connect(url, model=model, api_key="none"))
        pool = stack.enter_context(ThreadPoolExecutor(concurrency))

        def by_leap() -> float:
            with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
                return batch(runner, work, asked, concurrency, Path(directory))[0]

        def by_official() -> float:
            return seconds(lambda: list(pool.map(lambda text: official(client, model, text), texts)))

        def by_leap_first() -> Iterator[object]:
            return iter(runner.start([user("Hi")], (), GenerationOptions(temperature=0.0, max_tokens=4)))

        official(client, model, "warm")
        first_token(by_leap_first)
        whole, other = alternate(repeat, by_official, by_leap)
        first_token(lambda: official_pieces(client, model))
        firsts = [
            (first_token(by_leap_first), first_token(lambda: official_pieces(client, model)))
            for _ in range(FIRST_TOKENS)
        ]
    ours, theirs = (statistics.median(side) for side in zip(*firsts, strict=True))
    return [
        Row(f"{lines} lines, {concurrency} at once, s", "official client", whole, "leap's batch", other, ">= 0.95"),
        Row(f"first token, ms ({ours - theirs:+.1f})", "leap", ours, "official client", theirs, "<= 5 ms more"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--lines", type=int, default=sized(500))
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=1 if SHORT else 3)
    given = parser.parse_args()
    with ExitStack() as stack:
        url = given.url or stack.enter_context(leap_serve())
        found = rows(url, given.model, given.lines, given.concurrency, given.repeat)
    report("Models elsewhere", found)
    return int(found[0].ratio < 0.95 or found[1].left - found[1].right > 5.0)


if __name__ == "__main__":
    sys.exit(main())
