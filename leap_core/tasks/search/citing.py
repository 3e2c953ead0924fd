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
from ...system.full_text_search import EMPTY_WORDS
from ..evidence.values import words_of
from .searching import NOTHING, Source, text_of_hit

UNSUPPORTED = "no passage supports the answer"
LEAST_SUPPORT = 0.6
"""Of what a sentence says beside the words of the question, by weight, that a passage has to hold."""
STEM = 6
"""Letters by which words are compared."""
NUMBER = re.compile(r"\w{0,12}\d(?:[\w.,'\u00a0\u202f]{0,40}\w)?")
CLOSING = "\"'\u201d\u2019\u00bb)*_"
SPACE = r"[^\S\n]"
MARKER = re.compile(rf"(?:{SPACE}?\[\d{{1,2}}(?:{SPACE}?,{SPACE}?\d{{1,2}}){{0,9}}\]){{1,9}}")
MARKS = rf"[{CLOSING}]{{0,9}}(?:{MARKER.pattern})?"
WIDE = "\u3002\uff01\uff1f"
END = re.compile(
    rf"(?P<line>[.!?\u2026:]{{0,9}}{MARKS})(?:{SPACE}{{0,9}}\n)"
    r"|(?<!\b[A-Z])(?<!\b[A-Z]\w)(?<!\b[A-Z]\w\w)(?<!\b\d)(?<!\b\d\d)"  # Mr. and 3. end no sentence
    rf"(?P<sentence>[.!?\u2026]{{1,9}}{MARKS})(?:\s{{1,9}}(?=[^\s\[a-z]))"
    rf"|(?P<wide>[{WIDE}]{{1,9}}(?:{MARKER.pattern})?)(?={SPACE}{{0,9}}(?:\n|[^\s\[{WIDE}]))"
)
BEFORE_END, LONGEST_END = 4, 500
"""Characters before the end of a sentence that decide whether it is one, and in it."""
LAST = re.compile(rf"[.!?\u2026:{WIDE}]{{0,9}}{MARKS}\s{{0,9}}\Z")
HELD = re.compile(rf"[.!?\u2026:{CLOSING}\s{WIDE}]{{0,40}}(?:\[|(?<![^\W_])\Z)")
"""What may belong to a marker or the end of a sentence, so that it waits for what follows."""
MOST_PENDING = 4000
"""Characters of a sentence that wait."""
ATTACHED = re.compile(r"(?<=\w)\[")
NO_CITATION = re.compile(rf"[(:]|{SPACE}?=")
"""After a marker: that of a link, its target, an assignment."""
LINE_BEGINNING = 40
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
LIST_NUMBER = re.compile(r"\A\s*\d{1,3}[.)]\s")
CODE_LINE = re.compile(r"(?: {4}|\t)(?!\s*(?:[-*+>]|\d{1,3}[.)])\s)")
"""A line that Markdown shows as code; lists may be indented as far."""


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

    def __contains__(self, number: int) -> bool:
        return number in self._words

    def cited(self, text: str) -> str:
        """An answer with its citations."""
        return self.checked(text)[0]

    def checked(self, text: str) -> tuple[str, bool]:
        """An answer with its citations, and whether it has any, or says nothing."""
        writer = _Writer(self)
        shown = writer.feed(text) + writer.end()
        return shown, writer.is_supported(shown)


class _Writer:
    """Puts citations into a text as it comes."""

    def __init__(self, citations: Citations) -> None:
        self._citations = citations
        self._told, self._held, self._searched = "", "", 0
        self._line, self._ticks, self._fence = "", 0, ""
        self._has_cited = False

    def is_supported(self, shown: str) -> bool:
        """Whether what was shown has a citation, or says nothing."""
        return self._has_cited or not shown.strip() or NOTHING in shown

    def feed(self, piece: str) -> str:
        """What can be shown after the next piece."""
        self._held += piece
        before = self._told[-BEFORE_END:]
        text, at = before + self._held, len(before)
        shown = ""
        for found in END.finditer(text, at + max(0, self._searched - LONGEST_END)):
            mark = found[found.lastgroup or 0]
            after = found.start() + len(mark)
            shown += self._sentence(text[at : found.start()], mark, text[after : after + 2]) + text[after : found.end()]
            if found[0].endswith("\n"):
                self._end_line()
            at = found.end()
        self._held = text[at:]
        waits = HELD.search(self._held, max(0, len(self._held) - MOST_PENDING))
        ready = self._held if waits is None else self._held[: waits.start()]
        self._held = self._held[len(ready) :]
        self._searched = len(self._held)
        self._told += ready
        return shown + ready

    def end(self) -> str:
        """The rest."""
        last = LAST.search(self._held)
        mark = "" if last is None else last[0]
        return self._sentence(self._held.removesuffix(mark), mark.rstrip(), "") + mark[len(mark.rstrip()) :]

    def _end_line(self) -> None:
        fence = FENCE.match(self._line)
        if fence is not None and self._fence:
            is_end = fence[1].startswith(self._fence) and not self._line[fence.end() :].strip()
            self._fence = "" if is_end else self._fence
        elif fence is not None and self._ticks == fence[1].count("`"):
            self._fence = fence[1]
        self._line, self._ticks = "", 0

    def _sentence(self, rest: str, mark: str, after: str) -> str:
        """The end of a sentence, whose beginning is shown already, with its citation before the last mark."""
        shown, whole, self._told = len(self._told), self._told + rest + mark, ""
        if not whole.strip():
            return rest + mark
        begun, ticks = self._line, self._ticks
        line = (begun + whole[:LINE_BEGINNING])[:LINE_BEGINNING]
        self._line, self._ticks = line, ticks + whole.count("`")
        is_code = bool(self._fence or FENCE.match(line) or CODE_LINE.match(line))
        text, waited = whole + after, len(whole) + LINE_BEGINNING - MOST_PENDING

        def in_code(at: int) -> bool:
            return is_code or (ticks + whole.count("`", 0, at)) % 2 == 1

        def sources(match: re.Match[str], at: int = 0) -> set[int]:
            """What a marker cites; nothing where it is no citation."""
            start, end = at + match.start(), at + match.end()
            if start < waited or in_code(start) or NO_CITATION.match(text, end):
                return set()
            return {int(each) for each in DIGITS.findall(match[0]) if int(each) in self._citations}

        said = MARKER.sub("", whole if begun else LIST_NUMBER.sub("", whole))
        own = {number for match in MARKER.finditer(whole) for number in sources(match)}
        kept = {number for number in own if self._citations.best(said, [number]) is not None}

        def checked(part: str, at: int) -> str:
            def kept_of(match: re.Match[str]) -> str:
                if not sources(match, at) or ATTACHED.match(text, at + match.start()):
                    return match[0]
                numbers = "".join(f"[{each}]" for each in DIGITS.findall(match[0]) if int(each) in kept)
                return numbers and f"{match[0][0] if match[0][0].isspace() else ''}{numbers}"

            return MARKER.sub(kept_of, part)

        place = shown + len(rest)
        is_statement = line.lstrip()[:1] not in ("|", "#") and not mark.startswith(":") and not in_code(place)
        best = self._citations.best(said) if not kept and is_statement else None
        self._has_cited |= bool(kept) or best is not None
        return f"{checked(rest, shown)}{'' if best is None else f' [{best}]'}{checked(mark, place)}"


class CitedStream(PassingStream):
    """An answer from passages, with its citations, and a warning where no passage supports it."""

    def __init__(self, stream: Stream, question: str, sources: Sequence[Source]) -> None:
        super().__init__(stream)
        citations = Citations(question, {source.number: text_of_hit(source.hit) for source in sources})
        self._writer = _Writer(citations) if sources else None
        self._shown: list[str] = []
        self._last: MessageResponse | None = None

    def __next__(self) -> MessageResponse:
        while True:
            response, self._last = self._last or super().__next__(), None
            text = None
            if self._writer is not None and isinstance(response, Chunk):
                text = self._writer.feed(response.text)
            elif self._writer is not None and isinstance(response, Complete):
                text = self._writer.end()
                self._last, self._writer = self._finished(response, self._writer, text), None
            if text is None:
                return response
            if text:
                self._shown.append(text)
                return Chunk(text)

    def _finished(self, complete: Complete, writer: _Writer, end: str) -> Complete:
        """How it ended, with the text that was shown."""
        text = "".join(self._shown) + end
        warnings = complete.warnings if writer.is_supported(text) else (*complete.warnings, UNSUPPORTED)
        message = ChatMessage(complete.full_message.role, text, complete.full_message.reasoning_content)
        return replace(complete, full_message=message, warnings=warnings)
