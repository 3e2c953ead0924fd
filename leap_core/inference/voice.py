"""How a loaded model speaks: what its requests need to make frames, and what their readers need to play them."""

from __future__ import annotations

from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..conversation.media.wav import pcm16, wav_header
from ..conversation.messages import Speech as SpeechPart
from ..conversation.options import GenerationOptions
from ..conversation.responses import AudioSample
from ..errors import LeapModelLoadingError
from ..system.directories import Directories
from .engine.request import Frame, FrameRows, Segment, SpeechFrames, Tokens
from .llama.model import LlamaModel
from .media import MediaSegments
from .speech.companions import open_vocoder
from .speech.frames import CodeSampler
from .speech.speaker import ReplySound, Speaker, SpeechTokens, SpeechTurn
from .speech.vocoder import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

AUDIO_START, TEXT_END = "<|audio_start|>", "<|text_end|>"
CACHE = "speech"
"""The directory of the cache for repacked files."""
SYNTHESIS, CONVERSATION = (0.8, 64), (1.0, 4)
"""Temperature and top_k of the codes, as the model's authors use them: for speech synthesis, and where text and sound
take turns."""


class ModelVoice:
    """The voice of one model. Any thread may call."""

    def __init__(self, speaker: Speaker, tokens: SpeechTokens, vocabulary: int) -> None:
        self._speaker = speaker
        self._tokens = tokens
        self._vocabulary = vocabulary

    @property
    def warning(self) -> str | None:
        """A sentence for the user when speech is not as fast as it could be."""
        return self._speaker.warning

    def begin(self, options: GenerationOptions, *, interleaved: bool) -> tuple[SpeechFrames, Listener]:
        """What one request speaks with, and the ear of its reader."""
        temperature, top_k = CONVERSATION if interleaved else SYNTHESIS
        sampler = CodeSampler(
            temperature if options.audio_temperature is None else options.audio_temperature,
            top_k if options.audio_top_k is None else options.audio_top_k,
            options.rng_seed,
        )
        turn = SpeechTurn(self._tokens, interleaved=interleaved, end_code=self._speaker.end_code)
        sound = ReplySound(self._speaker)
        return SpeechFrames(self._speaker, turn, sampler, sound), Listener(sound)

    def can_read(self, speech: SpeechPart) -> bool:
        """Whether this model may have said that: its codes and tokens are among this one's."""
        frames = [item for item in speech.turn if isinstance(item, tuple)]
        tokens = [item for item in speech.turn if isinstance(item, int)]
        return (
            bool(frames)
            and all(len(frame) == self._speaker.codebooks and max(frame) <= self._speaker.end_code for frame in frames)
            and all(token < self._vocabulary for token in tokens)
        )

    def segments(self, speech: SpeechPart) -> MediaSegments:
        """What was said, as the model itself has read it."""
        segments: list[Segment] = []
        for is_token, items in groupby(speech.turn, lambda item: isinstance(item, int)):
            run: list[Any] = list(items)
            segments.append(Tokens(tuple(run)) if is_token else FrameRows.of(run, self._speaker))
        key = blake2b(repr(speech.turn).encode(), key=self._speaker.fingerprint, digest_size=16).digest()
        return MediaSegments(key, tuple(segments))

    def close(self) -> None:
        """Free the memory."""
        self._speaker.close()


class Listener:
    """Decodes one reply's ``sound`` in the thread of its reader, and keeps what the next turn needs."""

    def __init__(self, sound: ReplySound) -> None:
        self._source = sound
        self._turn: list[int | Frame] = []
        self._sound = bytearray()

    def take_token(self, token: int) -> None:
        """A token of the reply."""
        self._turn.append(token)

    def take_frame(self, frame: Frame) -> list[AudioSample]:
        """The sound that is there after a frame of the reply."""
        self._turn.append(frame)
        return self._heard(self._source.take(frame))

    def end(self) -> list[AudioSample]:
        """What is held back of a sound that ends here."""
        return self._heard([self._source.finish()])

    def close(self) -> None:
        """The reply is given up."""
        self._source.close()

    @property
    def speech(self) -> SpeechPart | None:
        """All that was said, for the message; None where nothing was."""
        if not self._sound:
            return None
        return SpeechPart(wav_header(len(self._sound), SAMPLE_RATE) + bytes(self._sound), tuple(self._turn))

    def _heard(self, sound: list[NDArray[float32]]) -> list[AudioSample]:
        pieces = [tuple(piece.tolist()) for piece in sound if len(piece)]
        for piece in pieces:
            self._sound += pcm16(piece)
        return [AudioSample(piece, SAMPLE_RATE) for piece in pieces]


def open_voice(decoder: Path, tokenizer: Path | None, model: LlamaModel) -> ModelVoice:
    """The voice in these files. Raises LeapModelLoadingError for files that are missing, damaged, swapped or of
    another model, and for a model that was not made to speak."""
    vocoder = open_vocoder(decoder, tokenizer, model=model.path, width=model.width)
    audio_start = model.special_tokens.get(AUDIO_START)
    if audio_start is None:
        raise LeapModelLoadingError(
            f"{model.path.name} was not made to speak: its vocabulary has no {AUDIO_START}",
            hint="load it without the audio decoder",
        )
    tokens = SpeechTokens(audio_start, model.special_tokens.get(TEXT_END))
    return ModelVoice(Speaker(vocoder, Directories.from_environment().cache / CACHE), tokens, model.n_tokens)
