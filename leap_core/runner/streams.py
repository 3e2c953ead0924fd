"""What a reader of an answer needs of its stream, and the base of streams that wrap another stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..responses import MessageResponse


class Stream(Protocol):
    """A conversation's response stream, or a run with functions."""

    def __next__(self) -> MessageResponse: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class PassingStream:
    """Passes on the responses of another stream; subclasses change or note some of them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __next__(self) -> MessageResponse:
        return self._stream.__next__()

    def stop(self) -> None:
        self._stream.stop()

    def close(self) -> None:
        self._stream.close()
