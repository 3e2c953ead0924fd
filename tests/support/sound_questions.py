"""Questions about a clip and the answers that ``builtin-audio`` learned to give, word for word."""

from __future__ import annotations

import random
from collections.abc import Callable

from leap_core.testing.sounds import MOST_SOUNDS, NOTES, Clip

from .picture_questions import Question

ORDINALS = ("first", "second", "third", "fourth")
TRANSCRIBE = "Perform ASR."
NOTHING = "I hear nothing."


def ask(clip: Clip, kind: str, rng: random.Random) -> Question:
    """A question of this kind (see ``KINDS``), in one of its wordings."""
    return Question(kind, *KINDS[kind](clip, rng))


def ask_all(clip: Clip, rng: random.Random) -> list[Question]:
    """One question of each kind."""
    return [ask(clip, kind, rng) for kind in KINDS]


def transcribe(clip: Clip) -> str:
    """The names of all sounds, in order."""
    return f"{' '.join(clip.names)}." if clip.names else NOTHING


def _transcribe(clip: Clip, rng: random.Random) -> tuple[str, str]:
    return TRANSCRIBE, transcribe(clip)


def _sounds(clip: Clip, rng: random.Random) -> tuple[str, str]:
    texts = [
        *("What do you hear?", "Which notes do you hear?", "Which notes are played?", "What is played?"),
        *("Write down the notes.", "Name the notes.", "Transcribe it.", "Transcribe the audio.", "What is this?"),
        *("Which notes are these?", "Describe the sound.", "What sounds do you hear?"),
    ]
    return rng.choice(texts), transcribe(clip)


def _noun(clip: Clip, rng: random.Random) -> str:
    if clip.names and clip.names[0] == "beep":
        return rng.choice(["beep", "beep", "tone", "sound"])
    return rng.choice(["note", "note", "tone", "sound"])


def _number(clip: Clip, rng: random.Random) -> tuple[str, str]:
    noun, count = _noun(clip, rng), len(clip.sounds)
    texts = [
        *(f"How many {noun}s do you hear?", f"How many {noun}s are there?", f"How many {noun}s are played?"),
        *(f"How many {noun}s?", f"Count the {noun}s.", f"What is the number of {noun}s?"),
    ]
    if count == 0:
        return rng.choice(texts), NOTHING
    return rng.choice(texts), f"There is 1 {noun}." if count == 1 else f"There are {count} {noun}s."


def _ordinal(clip: Clip, rng: random.Random) -> tuple[str, str]:
    if not clip.sounds or clip.names[0] == "beep" or len(clip.sounds) > MOST_SOUNDS:
        return _sounds(clip, rng)
    index = rng.randrange(len(clip.sounds))
    word = ORDINALS[index]
    if index == len(clip.sounds) - 1 and rng.random() < 0.5:
        word = "last"
    if rng.random() < 0.05 and len(clip.sounds) < MOST_SOUNDS:
        word = ORDINALS[len(clip.sounds)]
        return f"What is the {word} note?", f"There is no {word} note."
    noun = rng.choice(["note", "note", "tone"])
    texts = [f"What is the {word} {noun}?", f"Which {noun} is the {word}?", f"Which {noun} is {word}?"]
    texts += [f"Which is the {word} {noun}?", f"What {noun} do you hear {word}?", f"Name the {word} {noun}."]
    return rng.choice(texts), f"The {word} {noun} is {clip.names[index]}."


def _exists(clip: Clip, rng: random.Random) -> tuple[str, str]:
    name = rng.choice([*NOTES, "beep"])
    if clip.names and rng.random() < 0.5:
        name = rng.choice(clip.names)
    texts = [f"Is there a {name}?", f"Do you hear a {name}?", f"Is a {name} played?"]
    return rng.choice(texts), "Yes." if name in clip.names else "No."


def _highest(clip: Clip, rng: random.Random) -> tuple[str, str]:
    if not clip.sounds or clip.names[0] == "beep":
        return _number(clip, rng)
    word, choose = rng.choice([("highest", max), ("lowest", min)])
    name = choose(clip.names, key=NOTES.__getitem__)
    texts = [f"Which note is the {word}?", f"What is the {word} note?", f"Name the {word} note."]
    return rng.choice(texts), f"The {word} note is {name}."


def _direction(clip: Clip, rng: random.Random) -> tuple[str, str]:
    pitches = [NOTES.get(name, 0.0) for name in clip.names]
    steps = {(other > one) - (other < one) for one, other in zip(pitches, pitches[1:], strict=False)}
    if not steps or 0.0 in pitches:
        return _exists(clip, rng)
    answer = {frozenset({1}): "Up.", frozenset({-1}): "Down.", frozenset({0}): "They stay."}.get(frozenset(steps))
    texts = ["Do the notes go up or down?", "Do the tones go up or down?", "Does it go up or down?"]
    return rng.choice(texts), answer or "Up and down."


KINDS: dict[str, Callable[[Clip, random.Random], tuple[str, str]]] = {
    "transcribe": _transcribe,
    "sounds": _sounds,
    "number": _number,
    "order": _ordinal,
    "exists": _exists,
    "highest": _highest,
    "direction": _direction,
}
"""Kinds of questions. One that a clip does not allow asks something near to it."""
