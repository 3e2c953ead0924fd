"""What a reader of an answer needs of its stream, and the base of streams that wrap another stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from ..responses import Chunk, Complete, require_complete

if TYPE_CHECKING:
    from ..responses import MessageResponse


class Stream(Protocol):
    """A conversation's response stream, or a run with functions."""

    def __iter__(self) -> Iterator[MessageResponse]: ...
    def __next__(self) -> MessageResponse: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


def last_of(stream: Stream, on_text: Callable[[str], object] | None = None) -> Complete:
    """Read a stream to its end and close it; how it ended. ``on_text`` gets each piece of text. Raises
    LeapGenerationError where the generation failed."""
    complete = None
    with closing(stream):
        for response in stream:
            if isinstance(response, Complete):
                complete = response
            elif isinstance(response, Chunk) and on_text is not None:
                on_text(response.text)
    return require_complete(complete)


class PassingStream:
    """Passes on the responses of another stream; subclasses change or note some of them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[MessageResponse]:
        return self

    def __next__(self) -> MessageResponse:
        return self._stream.__next__()

    def stop(self) -> None:
        self._stream.stop()

    def close(self) -> None:
        self._stream.close()
