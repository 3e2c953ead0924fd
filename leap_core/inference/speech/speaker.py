"""A model's voice: frames of codes from hidden states, sound from frames, in the order of one spoken answer.

How many go together depends on their number alone, so that equal frames sound equal, and grows with the sound that is
out already: made in at most 0.88 s a second, it never lets a loudspeaker wait.

Sequential (speech synthesis): text until ``<|audio_start|>``, then frames of codes until the one that ends the sound,
then text again. Interleaved (conversation): six tokens of text, twelve frames, and so on; after ``<|text_end|>`` only
frames, until the one that ends the sound.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ...errors import LeapModelLoadingError
from ...system.dataclass import dataclass
from .frames import CodeSampler, Detokenizer, FileProducts, Frame, FrameMaker
from .layers import MOST_SPEAKERS, LlamaColumnLayers, LlamaDepthLayers, StackModel
from .repacking import repacked_files
from .vocoder import COLUMNS_A_FRAME, Vocoder
from .waveform import OVERLAP

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Samples = NDArray[float32]


class Speaker:
    """Speaks with the weights of ``vocoder``.

    ``cache``: directory for the files repacked for llama.cpp. Where none can be written there, they are made in a
    temporary directory, and ``warning`` says why.
    """

    def __init__(self, vocoder: Vocoder, cache: Path) -> None:
        self._vocoder = vocoder
        self.fingerprint = vocoder.file.fingerprint
        self.warning: str | None = None
        self._models = self._load(cache)
        self._guard = threading.Lock()
        self._depth_layers: LlamaDepthLayers | None = None
        self._products = FileProducts(MOST_SPEAKERS)
        self._columns: list[LlamaColumnLayers] = []
        self._idle: list[Detokenizer] = []
        self._closed = False
        try:
            self._frame_maker = self._make_frame_maker()
        except BaseException:
            self.close()
            raise

    @property
    def end_code(self) -> int:
        """The first code of a frame that ends a sound."""
        return self._vocoder.depthformer.end_code

    @property
    def frame_samples(self) -> int:
        """Samples of a frame's sound."""
        return COLUMNS_A_FRAME * self._vocoder.detokenizer.n_fft // OVERLAP

    @property
    def codebooks(self) -> int:
        """Codes of a frame."""
        return self._vocoder.depthformer.codebooks

    def frames(self, hidden: NDArray[float32], samplers: Sequence[CodeSampler], threads: int = 1) -> list[Frame]:
        """See ``FrameMaker.frames``. From one thread at a time."""
        return self._frame_maker.frames(hidden, samplers, threads)

    def embedding(self, frame: Frame) -> NDArray[float32]:
        """See ``FrameMaker.embedding``. From any thread."""
        return self._frame_maker.embedding(frame)

    def borrow_detokenizer(self) -> Detokenizer:
        """A detokenizer for one stream. Hand it back with ``give_back``."""
        with self._guard:
            if self._idle:
                return self._idle.pop()
        layers = LlamaColumnLayers(self._models[1])
        with self._guard:
            self._columns.append(layers)
        return Detokenizer(self._vocoder, layers)

    def give_back(self, detokenizer: Detokenizer) -> None:
        """The stream is over, or given up."""
        detokenizer.reset()
        with self._guard:
            self._idle.append(detokenizer)  # as many as streams ever ran at once: a context takes 10 ms to make

    def close(self) -> None:
        """Free the memory. Nothing may speak any more."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            for layers in (*self._columns, self._depth_layers):
                if layers is not None:
                    layers.close()
            for model in self._models:
                model.close()
            self._products.close()

    def _make_frame_maker(self) -> FrameMaker:
        vocoder = self._vocoder
        exact = vocoder.file.type(vocoder.depthformer_name(0, "feed_forward.w1")) == "F32"
        self._depth_layers = LlamaDepthLayers(self._models[0], vocoder.depthformer, exact=exact)
        return FrameMaker(vocoder, self._depth_layers, self._products.product)

    def _load(self, cache: Path) -> tuple[StackModel, StackModel]:
        try:
            return _stack_models(repacked_files(self._vocoder, cache))
        except OSError as error:
            reason = f"cannot write {cache}: {error.strerror or error}"
        try:
            with TemporaryDirectory(prefix="leap-speech-", ignore_cleanup_errors=True) as directory:
                models = _stack_models(repacked_files(self._vocoder, Path(directory)))
        except OSError as error:
            raise LeapModelLoadingError(
                f"{reason}, nor a temporary file: {error.strerror or error}",
                hint="free disk space, or set LEAP_HOME to another disk",
            ) from None
        self.warning = f"a voice takes longer to load than it could: {reason}"
        return models


def _stack_models(paths: tuple[Path, Path]) -> tuple[StackModel, StackModel]:
    first = StackModel(paths[0])
    try:
        return first, StackModel(paths[1])
    except BaseException:
        first.close()
        raise


MOST_TOGETHER = 5
"""Frames of one pass; each is 80 ms, and comes that much later."""
ONE_MORE_AFTER = 8
"""Frames of a sound after which one more goes with the others."""


class ReplySound:
    """One thread adds frames, another takes their sound; either may make it."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._guard = threading.Lock()
        self._detokenizer: Detokenizer | None = None
        self._group: list[Frame] = []
        self._due: deque[list[Frame]] = deque()
        self._ready: deque[Samples] = deque()
        self._sounding = 0
        """Frames of this sound that are in a group that is due or made."""
        self._heard = self._given = self._samples_due = 0
        """Frames that the reader has; pieces that it got, one a frame; samples that its frames still represent."""

    def add(self, frame: Frame, *, last: bool) -> None:
        """A frame of the reply; after the ``last`` one there is text, or nothing."""
        is_end = frame[0] == self._speaker.end_code
        if not is_end:
            self._group.append(frame)
        if is_end or last or len(self._group) >= min(MOST_TOGETHER, 1 + self._sounding // ONE_MORE_AFTER):
            self._close_group()
        if is_end:
            self._due.append([])
            self._sounding = 0

    def make(self, threads: int) -> None:
        """Make the sound that is due, with so many threads."""
        with self._guard:
            while self._due:
                group = self._due.popleft()
                if group:
                    self._feed(group, threads)
                else:
                    self._end()

    def take(self, frame: Frame) -> list[Samples]:
        """The reader has a further frame: the sound that there is of its frames, one piece for each. What is due and
        not made yet is made now."""
        self._heard += 1
        if frame[0] != self._speaker.end_code:
            self._samples_due += self._speaker.frame_samples
        self.make(1)
        pieces = []
        while self._ready and self._given < self._heard:
            pieces.append(self._ready.popleft())
            self._given += 1
            self._samples_due -= len(pieces[-1])
        return pieces

    def finish(self) -> Samples:
        """The rest of what the reader's frames represent: nothing is added any more. Frames that were made ahead of a
        reader who stopped are not played."""
        import numpy as np

        self._close_group()
        self._due.append([])
        self.make(1)
        return np.concatenate([*self._ready, np.zeros(0, np.float32)])[: self._samples_due]

    def close(self) -> None:
        """The reply is given up; nothing is added any more."""
        with self._guard:
            self._give_back()

    def _close_group(self) -> None:
        if self._group:
            self._sounding += len(self._group)
            self._due.append(self._group)
            self._group = []

    def _feed(self, group: list[Frame], threads: int) -> None:
        import numpy as np

        if self._detokenizer is None:
            self._detokenizer = self._speaker.borrow_detokenizer()
        self._ready.extend(np.split(self._detokenizer.feed(group, threads), len(group)))

    def _end(self) -> None:
        import numpy as np

        tail = np.zeros(0, np.float32) if self._detokenizer is None else self._detokenizer.end()
        self._ready.append(tail)
        self._give_back()

    def _give_back(self) -> None:
        detokenizer, self._detokenizer = self._detokenizer, None
        if detokenizer is not None:
            self._speaker.give_back(detokenizer)


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
    ) -> None:
        self._tokens = tokens
        self._interleaved = interleaved
        self._end_code = end_code
        self._left = TEXT_RUN
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
            self._left = AUDIO_RUN

    def take_frame(self, codes: tuple[int, ...]) -> tuple[int, ...]:
        """A frame was sampled. Returns it as the model has to read it: the frame that ends the sound is all end
        codes. It is no sound (see ``is_end``)."""
        self._left -= 1
        if self._interleaved and self._left == 0 and not self._text_is_over:
            self.wants_frame = False
            self._left = TEXT_RUN
        if self.is_end(codes):
            self.wants_frame = False  # the counter goes on from where it is, as in training
            return (self._end_code,) * len(codes)
        return codes

    def is_end(self, codes: tuple[int, ...]) -> bool:
        """Whether a frame ends the sound."""
        return codes[0] == self._end_code
