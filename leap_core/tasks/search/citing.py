"""Citations of an answer: each sentence gets the number of the passage that says the same, found by words and numbers.

A model's own [1] stays where that passage holds what the sentence says; elsewhere it is replaced or left out, since a
wrong citation is worse than none. Needs no model, so it works for models that cite nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...conversation.messages import ChatMessage
from ...conversation.responses import Chunk, Complete, MessageResponse
from ...conversation.streams import PassingStream, Stream
from ...schemas.grounding import DIGITS
from ...schemas.grounding import Source as Facts
from ...system.text_index import EMPTY_WORDS
from ..evidence.values import words_of
from .searching import NOTHING, Source, text_of_hit

UNSUPPORTED = "no passage supports the answer"
LEAST_SUPPORT = 0.6
"""Of what a sentence says beside the words of the question, by weight, that a passage has to hold."""
STEM = 6
"""Letters by which words are compared."""
NUMBER = re.compile(r"\w{0,12}\d(?:[\w.,'\u00a0\u202f]{0,40}\w)?")
CLOSING = "\"'\u201d\u2019\u00bb)*_"
MARKER = re.compile(r"(?:\s?\[\d{1,2}(?:\s?,\s?\d{1,2}){0,9}\]){1,9}")
MARKS = rf"[{CLOSING}]{{0,9}}(?:{MARKER.pattern})?"
END = re.compile(
    rf"(?P<line>[.!?\u2026:]{{0,9}}{MARKS})(?:[^\S\n]{{0,9}}\n\s{{0,9}})"
    r"|(?<!\b[A-Z])(?<!\b[A-Z]\w)(?<!\b[A-Z]\w\w)(?<!\b\d)(?<!\b\d\d)"  # Mr. and 3. end no sentence
    rf"(?P<sentence>[.!?\u2026]{{1,9}}{MARKS})(?:\s{{1,9}}(?=[^\s\[a-z]))"
    rf"|(?P<wide>[\u3002\uff01\uff1f]{{1,9}}(?:{MARKER.pattern})?)(?=[^\[])"
)
LAST = re.compile(rf"[.!?\u2026:\u3002\uff01\uff1f]{{0,9}}{MARKS}\s{{0,9}}\Z")
HELD = re.compile(rf"[.!?\u2026:{CLOSING}\s\u3002\uff01\uff1f]{{0,40}}(?:\[|(?<!\w)\Z)")
"""What may belong to a marker or the end of a sentence, so that it waits for what follows."""
MOST_PENDING = 4000
"""Characters of a sentence that wait."""


def _stems(text: str) -> set[str]:
    found = {word for word, _, _ in words_of(text) if word.isalpha()}
    return {word[:STEM] for word in found - EMPTY_WORDS}


class Citations:
    """The passages behind an answer, by their numbers, and what each supports."""

    def __init__(self, question: str, passages: Mapping[int, str]) -> None:
        self._asked, self._numbers_asked = _stems(question), set(DIGITS.findall(question))
        self._words = {number: _stems(text) for number, text in passages.items()}
        self._facts = {number: Facts(text) for number, text in passages.items()}
        self._counts = Counter(word for words in self._words.values() for word in words)

    def best(self, sentence: str, among: Sequence[int] | None = None) -> int | None:
        """The passage that supports a sentence best; None where none does."""
        said = _stems(sentence)
        numbers = [each for each in NUMBER.findall(sentence) if not self._numbers_asked >= set(DIGITS.findall(each))]
        new = said - self._asked
        new = new or (set() if numbers else said)
        if not new and not numbers:
            return None
        scores = {}
        for number in self._words if among is None else among:
            words, facts = self._words.get(number, set()), self._facts.get(number)
            if facts is None or any(facts.lacks(each) for each in numbers):
                continue
            support = self._share(new, words) if new else 1.0
            if support >= (LEAST_SUPPORT if new is not said or numbers else 1.0):
                scores[number] = support + self._share(self._asked, words)
        return max(scores, key=lambda number: scores[number], default=None)

    def _share(self, words: set[str], held: set[str]) -> float:
        weights = {word: math.log(1 + len(self._words) / (self._counts[word] or 0.5)) for word in words}
        return sum(weights[word] for word in words & held) / (sum(weights.values()) or 1.0)

    def cited(self, text: str) -> str:
        """An answer with its citations."""
        writer = _Writer(self)
        return writer.feed(text) + writer.end()


class _Writer:
    """Puts citations into a text as it comes."""

    def __init__(self, citations: Citations) -> None:
        self._citations = citations
        self._told, self._held = "", ""
        self._in_code = False

    def feed(self, piece: str) -> str:
        """What can be shown after the next piece."""
        self._held += piece
        shown = ""
        at = 0
        for found in END.finditer(self._held):
            mark = found[found.lastgroup or 0]
            shown += self._sentence(self._held[at : found.start()], mark) + found[0][len(mark) :]
            at = found.end()
        self._held = self._held[at:]
        waits = HELD.search(self._held)
        if waits is None or len(self._held) > MOST_PENDING:
            ready, self._held = self._held, ""
        else:
            ready, self._held = self._held[: waits.start()], self._held[waits.start() :]
        self._told += ready
        return shown + ready

    def end(self) -> str:
        """The rest."""
        last = LAST.search(self._held)
        mark = "" if last is None else last[0]
        return self._sentence(self._held.removesuffix(mark), mark.rstrip()) + mark[len(mark.rstrip()) :]

    def _sentence(self, rest: str, mark: str) -> str:
        """The end of a sentence, whose beginning is shown already, with its citation before the last mark."""
        whole, shown, self._told = self._told + rest, len(self._told), ""
        was_code = self._in_code
        self._in_code ^= whole.count("`") % 2 == 1
        if was_code or self._in_code:
            return rest + mark
        said = MARKER.sub("", whole)
        own = {int(each) for found in MARKER.findall(rest + mark) for each in DIGITS.findall(found)}
        kept = {number for number in own if self._citations.best(said, [number]) is not None}

        def checked(match: re.Match[str]) -> str:
            if "`" in whole and whole.count("`", 0, shown + match.start()) % 2:
                return match[0]
            numbers = "".join(f"[{each}]" for each in DIGITS.findall(match[0]) if int(each) in kept)
            return numbers and f"{match[0][0] if match[0][0].isspace() else ''}{numbers}"

        rest, mark = MARKER.sub(checked, rest), MARKER.sub(checked, mark)
        is_statement = said.strip()[:1] not in ("|", "#") and not mark.startswith(":")
        best = self._citations.best(said) if not kept and is_statement else None
        return f"{rest}{'' if best is None else f' [{best}]'}{mark}"


class CitedStream(PassingStream):
    """An answer from passages, with its citations, and a warning where no passage supports it."""

    def __init__(self, stream: Stream, question: str, sources: Sequence[Source]) -> None:
        super().__init__(stream)
        self._citations = Citations(question, {source.number: text_of_hit(source.hit) for source in sources})
        self._writer = _Writer(self._citations) if sources else None
        self._last: MessageResponse | None = None

    def __next__(self) -> MessageResponse:
        while True:
            response, self._last = self._last or super().__next__(), None
            text = None
            if self._writer is not None and isinstance(response, Chunk):
                text = self._writer.feed(response.text)
            elif self._writer is not None and isinstance(response, Complete):
                text, self._last, self._writer = self._writer.end(), self._finished(response), None
            if text is None:
                return response
            if text:
                return Chunk(text)

    def _finished(self, complete: Complete) -> Complete:
        message = complete.full_message
        text = self._citations.cited(message.text)
        warnings = complete.warnings if is_supported(text) else (*complete.warnings, UNSUPPORTED)
        message = ChatMessage(message.role, text, message.reasoning_content)
        return replace(complete, full_message=message, warnings=warnings)


def is_supported(cited: str) -> bool:
    """Whether an answer with its citations has any, or says nothing."""
    return not cited.strip() or NOTHING in cited or MARKER.search(cited) is not None
