"""What the miniature speech model's hidden state can say, a number for each; shared by its backbone and its vocoder."""

from __future__ import annotations

WIDTH = 128
TONES = {"low": 450, "mid": 600, "high": 900, "drone": 300}
"""Word -> Hz. A tone keeps its phase from column to column only at multiples of 75 Hz."""
FRAMES = {"low": 5, "mid": 8, "high": 12}
"""Word -> frames of 80 ms in an answer of sound alone. The drone does not end."""
INTERLEAVED_FRAMES = 16
INTERLEAVED_TEXT = ("Here", " comes", " what", " you", " like", " best:", " your", " tone.")
PLAIN_TEXT = ("Give", " me", " the", " name", " of", " a", " tone", " and", " I", " shall", " hum", " it.")


def _places() -> list[str]:
    names = ["always", "tone word", "interleaved word", "interleaved", "answer begins", "end of sound"]
    names += [f"asked {word}" for word in TONES]
    names += [f"read {token}" for token in ("<|audio_start|>", "<|text_end|>", *INTERLEAVED_TEXT, *PLAIN_TEXT)]
    names += [f"heard {word} {n}" for word in TONES for n in range(FRAMES.get(word, 1))]
    return names + [f"heard interleaved {n}" for n in range(INTERLEAVED_FRAMES)]


PLACES = {name: index for index, name in enumerate(_places())}
"""Meaning -> index in the hidden state."""
