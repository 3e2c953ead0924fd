"""No regular expression over a request's text, or a model's, takes more than linear time: ``re`` lets no other thread
run meanwhile. Every pattern on a module's first level is found and tried in the ways in which its module uses it."""

from __future__ import annotations

import base64
import importlib
import itertools
import pkgutil
import random
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leap_core.documents.kinds import kind_by_content
from tests.support.growth import check_growth

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

PACKAGES = (
    *("server", "protocols", "tools", "conversation", "tasks", "schemas"),
    *("inference.template", "inference.constraints"),
)
UNITS = (
    *("a", "A", "7", "_", " ", "\n", "\t", "/", "'", '"', "[", "]", "(", ")", "{", "}", "<", "\\", ",", ".", ":", "-"),
    *("#", "=", "a.", "a ", "1,", "'\\", "a=", "x#,", "a@", "&#", "%a", "//", "([", "a_", "é"),
)
"""What hostile texts repeat; one more is base64."""
CALL = re.compile(r"(?<![\w.])(\w+)\.(\w+)\(")
MOST_CHARACTERS, SECONDS = 5_000, 0.05
"""Of computing time for one text: linear patterns take milliseconds, quadratic ones seconds. What takes longer is slow
only where its time also grows faster than its text."""
MOST_PREFIXES = 4
MOST_SECONDS = 60.0
"""What takes longer is exponential."""


class TooSlow(Exception):
    """A pattern is not linear."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def patterns() -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Each pattern by name, and each method that its module calls on it (search, where others use it)."""
    for package in PACKAGES:
        room = importlib.import_module(f"leap_core.{package}")
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if found.name.endswith("__main__"):
                continue
            module = importlib.import_module(found.name)
            calls = CALL.findall(Path(str(module.__file__)).read_text("utf-8"))
            for name, value in vars(module).items():
                for pattern in value if isinstance(value, tuple) else (value,):
                    if isinstance(pattern, re.Pattern):
                        methods = {method for owner, method in calls if owner == name} or {"search"}
                        for method in sorted(methods):
                            yield f"{found.name}.{name}", pattern, method


def literals(pattern: re.Pattern[Any]) -> list[str]:
    """Characters with which a text begins that gets further into the pattern."""
    found: set[str] = set()

    def walk(items: Any) -> None:
        for item in items:
            kind, value = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
            if str(kind) == "LITERAL":
                found.add(chr(value))
            elif isinstance(value, (tuple, list, parser.SubPattern)):
                walk([each for each in value if isinstance(each, (tuple, list, parser.SubPattern))])

    walk(parser.parse(pattern.pattern, pattern.flags))
    return sorted(found)[:MOST_PREFIXES]


def texts(size: int, units: Sequence[str] = UNITS) -> list[str]:
    noise = base64.b64encode(random.Random(7).randbytes(size)).decode()[:size]
    return [noise, *((unit * size)[:size] for unit in units)]


def use(pattern: re.Pattern[Any], method: str, text: str) -> None:
    given: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
    if method in ("sub", "subn"):
        getattr(pattern, method)(given[:0], given)
    elif method in ("search", "match", "fullmatch", "findall", "split"):
        getattr(pattern, method)(given)
    else:
        deque(pattern.finditer(given), maxlen=0)


Found = list[tuple[str, re.Pattern[Any], str]]


def slow_patterns(found: Found, hostile: Sequence[str], seconds: float, *, prefixed: bool = False) -> set[str]:
    slow = set()
    for name, pattern, method in found:
        heads = ["", *(literals(pattern) if prefixed else ())]
        for text, head in itertools.product(hostile, heads):
            try:
                with within(seconds):
                    use(pattern, method, f"{head}{text}\x01")
            except TooSlow:
                if not is_linear(pattern, method, head, text):
                    slow.add(f"{name}.{method}")
                    break
    return slow


def is_linear(pattern: re.Pattern[Any], method: str, head: str, text: str) -> bool:
    try:
        with within(MOST_SECONDS):
            check_growth(lambda size: use(pattern, method, f"{head}{text[:size]}\x01"), len(text))
    except (AssertionError, TooSlow):
        return False
    return True


posix = pytest.mark.skipif(sys.platform == "win32", reason="needs a clock of computing time")


@posix
@pytest.mark.slow
def test_every_pattern_is_linear():
    found = list(patterns())
    assert len(found) > 80
    assert not slow_patterns(found, texts(MOST_CHARACTERS), SECONDS, prefixed=True)


@posix
@pytest.mark.long
def test_every_pattern_reads_a_long_text():
    """Quadratic patterns whose steps are copies or scans of memory take milliseconds for a short text."""
    assert not slow_patterns(list(patterns()), texts(40 * MOST_CHARACTERS, "a /'\"[\\"), 20 * SECONDS)


@posix
@pytest.mark.slow
def test_a_quadratic_pattern_is_found():
    found = [("end", re.compile(r"\)\s*\]?\s*\Z"), "match"), ("start", re.compile(r"\)\s*\Z"), "match")]
    hostile = texts(2 * MOST_CHARACTERS, " ")[1:]  # a fast machine takes longer than SECONDS, too
    assert slow_patterns(found, hostile, SECONDS, prefixed=True) == {"end.match"}


@posix
def test_the_kind_of_a_text_is_found_in_linear_time():
    """Patterns of documents' beginnings, of which a stored or sent file may have any."""
    for unit in (b"<!---->", b"<!--a-->\n", b"<!--", b"<?xml ", b"<?xml?>", b" ", b"<a:", b"a:\n"):
        for head in (b"", b"<?xml "):
            with within(5.0):  # an ambiguous pattern takes centuries
                kind_by_content(head + (unit * 1024)[:1024] + b"x", None, b"", "a file")
