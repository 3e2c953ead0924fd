"""What was said aloud earlier in a conversation, as its model reads it: its own answers as the tokens and frames that
it made, everything else as text or sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...messages import Audio, ChatMessage, ChatMessageContent, ChatMessageRole, Speech
from ...options import GenerationOptions
from .reads_media import MediaSegments, ReadsMedia

if TYPE_CHECKING:
    from .voice import ModelVoice


class SpokenHistory:
    """Reads the parts of messages for a model with ``voice``, or with none; ``media`` reads what is no speech."""

    def __init__(self, voice: ModelVoice | None, media: ReadsMedia) -> None:
        self._voice = voice
        self._media = media

    def readable(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """The messages with speech only where this model has said it. Such a message is nothing else: the tokens of its
        text are in the speech. What another model said is its text, and what a user said is sound."""
        return [self._readable(message) for message in messages]

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments:
        """The segments of a part that is no text."""
        if self._voice is not None and isinstance(part, Speech):
            return self._voice.segments(part)
        return self._media.read(part, options)

    def _readable(self, message: ChatMessage) -> ChatMessage:
        speech = [part for part in message.content if isinstance(part, Speech)]
        if not speech:
            return message
        if message.role is not ChatMessageRole.ASSISTANT:
            parts = (Audio(part.data) if isinstance(part, Speech) else part for part in message.content)
            return replace(message, content=tuple(parts))
        if self._voice is not None and all(map(self._voice.can_read, speech)):
            return replace(message, content=tuple(speech))
        return replace(message, content=tuple(part for part in message.content if not isinstance(part, Speech)))
