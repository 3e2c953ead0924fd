"""Which texts go in circles: honest ones are made here, and taken from the standard library."""

from __future__ import annotations

import itertools
import json
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_core.conversation.responses import GenerationFinishReason as Reason
from leap_core.inference.engine.repetition import DATA, LONGEST, PROSE, SHAPED, RepetitionWatch
from leap_core.inference.engine.request import Request
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.llama.model import LlamaModel
from tests.support.lengths import lengths

from .conftest import finish, request

WORDS = [*("river", "stone", "light", "window", "morning", "people", "letter", "quiet", "green", "water")]


def tokens_of(text: str) -> list[bytes]:
    """Cut about as tokenizers cut: words with their space, digits, marks and line ends by themselves."""

    return [piece.encode() for piece in re.findall(r" ?[A-Za-z]{1,9}| ?\d| ?[^\sA-Za-z\d]|\s", text)]


def circle(text: str, *, shaped: bool = False) -> int | None:
    numbers: dict[bytes, int] = {}
    tokens = [numbers.setdefault(piece, len(numbers)) for piece in tokens_of(text)]
    pieces = list(numbers)
    watch = RepetitionWatch(lambda token: pieces[token], shaped=shaped)
    return next((n for n, token in enumerate(tokens, 1) if watch.goes_in_circles(token)), None)


def sentence(rng: random.Random, words: int = 8) -> str:
    return " ".join(rng.choices(WORDS, k=words)).capitalize() + ". "


def poem(rng: random.Random) -> str:
    refrain = "\n".join(sentence(rng, 6) for _ in range(4))
    return "\n\n".join("\n".join(sentence(rng, 6) for _ in range(4)) + "\n\n" + refrain for _ in range(12))


def log(rng: random.Random) -> str:
    kinds = ["INFO heartbeat ok", "DEBUG poll", "WARN slow answer", "INFO request done"]
    return "".join(f"12:{n // 60 % 60:02}:{n % 60:02} {rng.choice(kinds)}\n" for n in range(300))


def log_without_times(rng: random.Random) -> str:
    return "".join("INFO heartbeat ok\n" * rng.randrange(1, 60) + "WARN retry\n" for _ in range(6))


def table(rng: random.Random) -> str:
    empty = "| " + " | ".join(["0"] * rng.randrange(2, 8)) + " |\n"
    return "| a | b |\n|---|---|\n" + empty * rng.randrange(20, 70)


def equal_numbers(rng: random.Random) -> str:
    return json.dumps({"values": [rng.choice([0, 1, 255, None, True])] * rng.randrange(50, 380)})


def matrix(rng: random.Random) -> str:
    row = json.dumps([0] * rng.randrange(4, 17))
    return "[" + ", ".join([row] * rng.randrange(4, 17)) + "]"


def code(rng: random.Random) -> str:
    lines = [f"    assert {rng.choice(WORDS)}({n % 3}) == {n % 3}\n" for n in range(60)]
    return "def test():\n" + "".join(lines) + "    print(0)\n" * rng.randrange(2, 60)


def markup(rng: random.Random) -> str:
    row = "<tr>" + "<td>0</td>" * rng.randrange(3, 9) + "</tr>\n"
    return "<table>\n" + row * rng.randrange(5, 16) + "</table>"


def rulers(rng: random.Random) -> str:
    return "".join("-" * rng.randrange(20, 120) + "\n" + sentence(rng) + "\n" for _ in range(20))


KINDS = (poem, log, log_without_times, table, equal_numbers, matrix, code, markup, rulers)


def honest_texts() -> Iterator[tuple[str, str]]:
    """2,000 texts with their names."""
    for n in range(1400):
        kind = KINDS[n % len(KINDS)]
        yield f"{kind.__name__} {n}", kind(random.Random(n))
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = sorted(path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    for path in sources[:: max(1, len(sources) // 600)][:600]:
        yield str(path), path.read_text("utf-8", "replace")[:20_000]


@pytest.mark.slow
@lengths(10, 1, "step")
def test_no_ordinary_text_counts_as_repetition(step: int) -> None:
    count, found = 0, []
    for name, text in itertools.islice(honest_texts(), 0, None, step):
        count += 1
        if (place := circle(text)) is not None:
            found.append((name, place))
    assert count >= 1900 // step and found == []


@pytest.mark.parametrize("seed", range(20))
def test_repeated_sentences_end_soon(seed: int) -> None:
    rng = random.Random(seed)
    unit = "".join(sentence(rng, rng.randrange(4, 14)) for _ in range(rng.choice([1, 1, 2, 5])))
    before = "".join(sentence(rng) for _ in range(rng.randrange(30)))
    length = len(tokens_of(unit))
    assert length <= LONGEST
    place = circle(before + unit * 500)
    assert place is not None
    longest = max(PROSE[0], PROSE[1] * length)
    assert place <= len(tokens_of(before)) + longest + length + 8


def test_numbers_may_repeat_longer_and_constrained_output_longest() -> None:
    text = "0, " * 6000
    assert DATA[0] <= (circle(text) or 0) <= DATA[0] + 20
    assert SHAPED[0] <= (circle(text, shaped=True) or 0) <= SHAPED[0] + 20
    assert circle("a b c d " * 90) is None, "below the least"


def test_one_different_token_restarts_the_count() -> None:
    watch = RepetitionWatch(lambda token: b" word")
    for n in range(5000):
        assert not watch.goes_in_circles(9 if n % 300 else n)


@pytest.mark.slow
def test_a_repetitive_generation_ends(make_scheduler, model: LlamaModel) -> None:
    scheduler: Scheduler = make_scheduler(context_size=4096, cells=4096, slots=1)
    for watch, reason in ((RepetitionWatch(lambda token: b" word"), Reason.REPETITION), (None, Reason.MAX_TOKENS)):
        plain = request([300, 301, 302], logit_bias={350: 1000.0})
        sequence = Request(plain.prompt, plain.sampler, max_tokens=700, watch=watch)
        scheduler.submit(sequence)
        tokens, ended = finish(sequence)
        assert ended.reason is reason and set(tokens) == {350}
        assert len(tokens) == (700 if watch is None else PROSE[0])


def test_repetitions_up_to_the_longest_period_are_found():
    def ended(period: int) -> bool:
        watch = RepetitionWatch(lambda token: b" word")
        return any([watch.goes_in_circles(n % period) for n in range(10 * period)])

    assert [ended(LONGEST), ended(LONGEST + 1)] == [True, False]
