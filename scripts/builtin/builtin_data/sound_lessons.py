"""Lessons for `builtin-audio`: clips of notes and beeps, what sounds when in them, and questions about them."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from builtin_data.conformer import MELS, AudioShape, Conformer, log_mel, tokens_of
from builtin_data.media_rows import MEDIUM, Rows, Turn, encode, learned_texts, render
from builtin_data.tokenizer import Vocabulary, learn_closed
from tokenizers import Tokenizer
from torch import Tensor, nn

from leap_core.testing.sounds import SOUNDS, Clip, random_clip
from tests.support.sound_questions import KINDS, TRANSCRIBE, ask, transcribe

NAMES = list(SOUNDS)
SPECIAL = ["<audio>"]
"""What the chat template writes in a clip's place."""
NO_CLIP = "I hear no audio. Give me some with --audio."
HELLO = {
    "Hello": "Hello! Let me hear notes or beeps.",
    "Hi": "Hello! Let me hear notes or beeps.",
    "Who are you?": "I am leap's built-in demo model for audio. I know the notes do to ti, and beeps.",
    "What can you do?": "I tell which notes I hear, how many, and in which order.",
    "Thank you.": "You are welcome.",
}
MOST_TOKENS = 600
TOKEN_SECONDS = 0.08
BATCH, LONG_BATCH = 16, 5
LONG, LONG_CLIPS = (3.0, 14.0), 0.2
"""Seconds of the long clips, which are only to be transcribed, and how often a batch is of such, once the short ones
have been begun."""
MOST_TURNS, TRANSCRIBED = 4, 0.15
"""Questions asked about a clip one after the other, and how often it is sent alone, mostly with the system prompt with
which LFM2-Audio transcribes."""


class ClipBatch(NamedTuple):
    mels: Tensor
    frames: list[int]
    labels: Tensor
    rows: list[Rows]


def vocabulary(rng: random.Random) -> Vocabulary:
    talks = [_turns(random_clip(rng), rng, 3) for _ in range(4000)]
    talks += [[Turn(*pair)] for pair in HELLO.items()] * 30 + [[Turn(TRANSCRIBE, NO_CLIP)]] * 100
    return learn_closed(learned_texts(talks, rng), MOST_TOKENS, SPECIAL)


def _turns(clip: Clip, rng: random.Random, count: int) -> list[Turn]:
    questions = (ask(clip, kind, rng) for kind in rng.choices(list(KINDS), k=count))
    return [Turn(question.text, question.answer) for question in questions]


def labels(clip: Clip, count: int) -> np.ndarray:
    """For each token [count, 2]: whether a sound begins in it, and which one sounds in its middle (0: none)."""
    made = np.zeros((count, 2), dtype=np.int64)
    middles = np.arange(count) * TOKEN_SECONDS
    for sound in clip.sounds:
        made[(middles >= sound.start) & (middles < sound.end), 1] = NAMES.index(sound.name) + 1
        made[min(count - 1, round(sound.start / TOKEN_SECONDS)), 0] = 1
    return made


class Sounds:
    """Makes batches of clips and questions."""

    def __init__(self, encoder: Tokenizer, seed: int) -> None:
        self.encoder = encoder
        self.rng = random.Random(seed)
        self.shape = AudioShape()

    def tower(self) -> Conformer:
        return Conformer(self.shape)

    def head(self) -> nn.Linear:
        """What each token should tell of what sounds then; only trained with."""
        return nn.Linear(self.shape.out, 1 + len(NAMES) + 1)

    def batch(self, progress: float) -> ClipBatch:
        rng = self.rng
        long = progress > 0.25 and rng.random() < LONG_CLIPS
        clips = [self._long_clip() if long else random_clip(rng) for _ in range(LONG_BATCH if long else BATCH)]
        mels = [log_mel(self._heard(clip)) for clip in clips]
        frames = [len(mel) for mel in mels]
        longest = max(frames)
        padded = np.zeros((len(clips), longest, MELS), dtype=np.float32)
        told = np.full((len(clips), tokens_of(longest), 2), -1, dtype=np.int64)
        rows = []
        for index, (clip, mel) in enumerate(zip(clips, mels, strict=True)):
            count = tokens_of(len(mel))
            padded[index, : len(mel)] = mel
            told[index, :count] = labels(clip, count)
            rows.append((render(self._talk(clip, long), MEDIUM, rng), index, count))
        rows += [(self._without_clip(), 0, 0)]
        return ClipBatch(torch.from_numpy(padded), frames, torch.from_numpy(told), encode(self.encoder, rows))

    def _long_clip(self) -> Clip:
        seconds = self.rng.uniform(*LONG)
        return random_clip(self.rng, seconds, max(3, int(seconds * self.rng.uniform(0.5, 1.4))))

    def _heard(self, clip: Clip) -> np.ndarray:
        """As clips come: some with a hiss, some rounded to 16 bits."""
        rng = self.rng
        samples = clip.play(10 ** rng.uniform(-4.5, -2) if rng.random() < 0.5 else 0.0, rng.getrandbits(32))
        return samples if rng.random() < 0.5 else np.round(samples * 32767) / 32768

    def _talk(self, clip: Clip, long: bool) -> list[Turn]:
        if long or self.rng.random() < TRANSCRIBED:
            return [Turn("", transcribe(clip), system=TRANSCRIBE if self.rng.random() < 0.8 else "")]
        return _turns(clip, self.rng, self.rng.randint(1, MOST_TURNS))

    def _without_clip(self) -> list[tuple[str, bool]]:
        rng = self.rng
        if rng.random() < 0.4:
            question = rng.choice(list(HELLO))
            return render([Turn(question, HELLO[question])], "", rng)
        return render([Turn(ask(random_clip(rng), rng.choice(list(KINDS)), rng).text, NO_CLIP)], "", rng)

    def tokens(self, tower: Conformer, batch: ClipBatch) -> tuple[Tensor, list[int]]:
        """What the tower makes of the batch's clips, and how many tokens each has."""
        return tower(batch.mels, batch.frames), [tokens_of(frames) for frames in batch.frames]

    def extra_loss(self, head: nn.Linear, tokens: Tensor, batch: ClipBatch) -> Tensor:
        begins, sounding = head(tokens).float().split([1, len(NAMES) + 1], -1)
        told = batch.labels
        here = told[..., 0] >= 0
        loss = F.binary_cross_entropy_with_logits(
            begins[..., 0][here], told[..., 0][here].float(), pos_weight=torch.tensor(4.0)
        )
        return loss + F.cross_entropy(sounding.flatten(0, 1), told[..., 1].flatten(), ignore_index=-1)
