"""The order of text and sound in one spoken answer, as LFM2.5-Audio was trained to speak. Knows no weights.

Sequential (speech synthesis): text until ``<|audio_start|>``, then frames of codes until the one that ends the sound,
then text again. Interleaved (conversation): six tokens of text, twelve frames, and so on; after ``<|text_end|>`` only
frames, until the one that ends the sound.
"""

from __future__ import annotations

from dataclasses import dataclass

TEXT_RUN = 6
AUDIO_RUN = 12
"""Lengths of the runs in interleaved answers; LFM2.5-Audio's configuration, which its GGUF files do not carry."""


@dataclass(frozen=True)
class SpeechTokens:
    """Ids of the tokens that steer speech."""

    audio_start: int
    text_end: int | None = None


class SpeechTurn:
    """What one answer does next. Feed it each token and frame in the order in which the model makes them."""

    def __init__(
        self,
        tokens: SpeechTokens,
        *,
        interleaved: bool,
        end_code: int,
        text_run: int = TEXT_RUN,
        audio_run: int = AUDIO_RUN,
    ) -> None:
        self._tokens = tokens
        self._interleaved = interleaved
        self._end_code = end_code
        self._text_run, self._audio_run = text_run, audio_run
        self._left = text_run
        self._text_is_over = False
        self.wants_frame = False
        """Whether the model's next output is read as a frame (from its hidden state) and not as a token."""

    def take_token(self, token: int) -> None:
        """A token of text was sampled."""
        self._left -= 1
        if not self._interleaved:
            self.wants_frame = token == self._tokens.audio_start
            return
        if token == self._tokens.text_end:
            self._text_is_over = True
        if self._left == 0 or self._text_is_over:
            self.wants_frame = True
            self._left = self._audio_run

    def take_frame(self, codes: tuple[int, ...]) -> tuple[int, ...]:
        """A frame was sampled. Returns it as the model has to read it: the frame that ends the sound is all end
        codes. It is no sound (see ``is_end``)."""
        self._left -= 1
        if self._interleaved and self._left == 0 and not self._text_is_over:
            self.wants_frame = False
            self._left = self._text_run
        if self.is_end(codes):
            self.wants_frame = False  # the counter goes on from where it is, as in training
            return (self._end_code,) * len(codes)
        return codes

    def is_end(self, codes: tuple[int, ...]) -> bool:
        """Whether a frame ends the sound."""
        return codes[0] == self._end_code
