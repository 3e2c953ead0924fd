"""Pages of documents that are pictures, for models that take none: they get the rest of the document. And which of
several pictures a model refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ..errors import LeapEndpointError, LeapUnsupportedMediaError
from .generator import Generation, PassingGeneration
from .messages import ChatMessage, PagePicture
from .responses import Complete, MessageResponse


def without_pages(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], tuple[str, ...]]:
    """The messages without pages that are pictures, and a sentence for each document that names them. Pages of a
    document that has no text stay."""
    pages: dict[str, list[int]] = {}
    kept = []
    for message in messages:
        gone = [part for part in message.content if isinstance(part, PagePicture) and not part.is_needed]
        for part in gone:
            pages.setdefault(part.file, []).append(part.page)
        if gone:
            message = replace(message, content=tuple(part for part in message.content if part not in gone))
        kept.append(message)
    return kept, tuple(left_out(file, numbers) for file, numbers in pages.items())


def left_out(file: str, pages: Sequence[int]) -> str:
    """The sentence that names pages of a document which the model is not given."""
    if len(pages) == 1:
        return f"page {pages[0]} of {file} is a picture and was left out"
    return f"pages {numbers_text(pages)} of {file} are pictures and were left out"


def numbers_text(numbers: Sequence[int]) -> str:
    """Numbers in words: "1, 3 to 5 and 9"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [each for first, last in runs for each in _run(first, last)]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def _run(first: int, last: int) -> list[str]:
    return [f"{first} to {last}"] if last > first + 1 else [str(each) for each in range(first, last + 1)]


class RefusedPart(Exception):
    """The cause of a refusal: the part of the messages that a model does not take."""


@contextmanager
def naming_media(messages: Sequence[ChatMessage]) -> Iterator[None]:
    """Put what was refused before the error of a model that does not take it: documents that have pages only, or the
    name or the number of a picture or sound."""
    try:
        yield
    except LeapUnsupportedMediaError as error:
        refused = error.__cause__.args[0] if isinstance(error.__cause__, RefusedPart) else None
        same = [part for message in messages for part in message.content if isinstance(part, type(refused))]
        files = dict.fromkeys(part.file for part in same if isinstance(part, PagePicture))
        at = next((n for n, part in enumerate(same, 1) if part is refused), 0)
        name = getattr(refused, "name", "")
        if files:
            error.message = f"pages of {', '.join(files)} are pictures: {error.message}"
        elif name or len(same) > 1:
            which = f"{at} of {len(same)}" if len(same) > 1 else ""
            error.message = f"{name}{f' ({which})' if name and which else which}: {error.message}"
        error.args = (error.message,)
        raise


class UnseenPagesGeneration(PassingGeneration):
    """The answer to messages with pages that are pictures, of a model that nobody knows to see: where it refuses them
    before its first word, the answer to the messages without. ``whole`` and ``without`` start the one and the other."""

    def __init__(
        self, whole: Callable[[], Generation], without: Callable[[], Generation], left_out: tuple[str, ...]
    ) -> None:
        super().__init__()
        self._without, self._pages = without, left_out
        self._left_out: tuple[str, ...] = ()
        self._has_begun = False
        try:
            self._begin(whole)
        except LeapEndpointError as error:
            self._begin_without(error)

    def _begin_without(self, error: LeapEndpointError) -> None:
        if self._has_begun or self._left_out or not error.of_request or not self._begin(self._without):
            raise error
        self._left_out = self._pages

    def _read(self) -> MessageResponse:
        try:
            response = super()._read()
        except LeapEndpointError as error:
            self._begin_without(error)
            response = super()._read()
        self._has_begun = True
        return replace(response, left_out=self._left_out) if isinstance(response, Complete) else response
