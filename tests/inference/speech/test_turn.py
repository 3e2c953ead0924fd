"""The order of text and sound, held against the rules as loops."""

from __future__ import annotations

import random

import pytest

from leap_core.inference.speech.speaker import SpeechTokens, SpeechTurn

AUDIO_START, TEXT_END, END, WORD, CODES = 128, 130, 7, 500, 2049
END_FRAME = (CODES - 1,) * 8
Event = int | tuple[int, ...]


class Draws:
    """A model that says what a seed makes it say."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self) -> int:
        return self._random.choices([WORD, AUDIO_START, TEXT_END, END], [12, 2, 1, 1])[0]

    def frame(self) -> tuple[int, ...]:
        first = self._random.choices([5, CODES - 1], [8, 1])[0]
        return (first, *(self._random.randrange(CODES - 1) for _ in range(7)))


def loop(seed: int, interleaved: bool, steps: int) -> list[Event]:
    """The rules, as one would write them down. The counter is lowered before each use, and not begun anew by the end
    of the sound."""
    model, events = Draws(seed), list[Event]()
    speaks, left, is_over = False, 6, False
    for _ in range(steps):
        left -= 1
        if speaks:
            frame = model.frame()
            if interleaved and left == 0 and not is_over:
                speaks, left = False, 6
            if frame[0] == CODES - 1:
                frame, speaks = END_FRAME, False
            events.append(frame)
            continue
        token = model.token()
        if token == END:
            break
        events.append(token)
        if not interleaved:
            speaks = token == AUDIO_START
            continue
        is_over = is_over or token == TEXT_END
        if left == 0 or is_over:
            speaks, left = True, 12
    return events


def machine(seed: int, interleaved: bool, steps: int) -> list[Event]:
    model, events = Draws(seed), list[Event]()
    turn = SpeechTurn(SpeechTokens(AUDIO_START, TEXT_END), interleaved=interleaved, end_code=CODES - 1)
    for _ in range(steps):
        if turn.wants_frame:
            events.append(turn.take_frame(model.frame()))
            continue
        token = model.token()
        if token == END:
            break
        turn.take_token(token)
        events.append(token)
    return events


@pytest.mark.slow
@pytest.mark.parametrize("interleaved", [False, True])
def test_the_machine_follows_the_rules(interleaved: bool) -> None:
    lengths = []
    for seed in range(1500):
        expected = loop(seed, interleaved, 120)
        assert machine(seed, interleaved, 120) == expected, seed
        lengths.append(len(expected))
    assert max(lengths) == 120


def test_the_frame_that_ends_audio_is_marked() -> None:
    turn = SpeechTurn(SpeechTokens(AUDIO_START), interleaved=False, end_code=CODES - 1)
    turn.take_token(AUDIO_START)
    assert turn.wants_frame
    assert not turn.is_end(turn.take_frame((1, 2, 3, 4, 5, 6, 7, 8)))
    assert turn.wants_frame
    frame = turn.take_frame((CODES - 1, 2, 3, 4, 5, 6, 7, 8))
    assert frame == END_FRAME and turn.is_end(frame) and not turn.wants_frame
