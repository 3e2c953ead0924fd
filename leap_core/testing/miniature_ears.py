"""Ears for the miniature speech model: the notes that ``leap_core.testing.sounds`` plays call for its tones, so that a
spoken conversation is held and measured without a download.

    write_hearing_miniature(directory)     # the model, its vocoder and its projector
    python -m leap_core.testing.miniature_ears DIRECTORY     # the same, and talk.wav, which asks it for three tones

``do`` and ``re`` ask for the low tone, ``mi`` and ``fa`` for the mid one, ``so``, ``la`` and ``ti`` for the high one,
and a beep for the drone. How: the projector is that of ``builtin-audio``, whose rows say which note sounds; its last
layer is followed by a linear map, fitted to some clips, that writes them as the miniature's tone words. Needs ``gguf``.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

from ..models.builtin import model_path
from .miniature_speech import PLACES, WIDTH, Table, write_miniature_speech_model
from .sounds import RATE, SOUNDS, Clip, Sound, random_clip

PROJECTOR_FILE = "mmproj-LFM2.5-Audio-Miniature-F16.gguf"
TONE_OF = {
    **dict.fromkeys(("do", "re"), "low"),
    **dict.fromkeys(("mi", "fa"), "mid"),
    **dict.fromkeys(("so", "la", "ti"), "high"),
    "beep": "drone",
}
CLIPS = 120
LEAST_SOUNDING = 0.7
"""A row in which less of a note sounds says no tone: the latest one counts, and where a note ends it is misread."""
HISS = 0.0005
"""Of a quiet room: in perfect silence the projector, which looks at contrasts, mistakes some notes."""
ROW_SECONDS = 0.08
LAST = "mm.a.mlp.3"
"""The projector's last layer."""


def write_hearing_miniature(directory: Path) -> Path:
    """Write the miniature speech model with ears; the path of the model."""
    model = write_miniature_speech_model(directory)
    _write_projector(directory / PROJECTOR_FILE)
    return model


def _write_projector(path: Path) -> None:
    import gguf

    reader = gguf.GGUFReader(_builtin_projector())
    writer = gguf.GGUFWriter(path, "clip")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0], *field.types[1:2])
    after, bias = _tone_words()
    tensors = {each.name: each for each in reader.tensors}
    weight = np.asarray(tensors.pop(f"{LAST}.weight").data, np.float32)
    last_bias = np.asarray(tensors.pop(f"{LAST}.bias").data, np.float32)
    writer.add_tensor(f"{LAST}.weight", after @ weight)
    writer.add_tensor(f"{LAST}.bias", after @ last_bias + bias)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tone_words() -> tuple[Table, Table]:
    """The map from a row of ``builtin-audio`` to one of the miniature, and what is added to it. A row in which no note
    sounds is the opposite of a tone word, so that the attention passes it by."""
    rows, sounding = _heard_clips()
    fitted, *_ = np.linalg.lstsq(np.c_[rows, np.ones(len(rows))], sounding, rcond=None)
    after, bias = np.zeros((WIDTH, rows.shape[1]), np.float32), np.zeros(WIDTH, np.float32)
    bias[PLACES["always"]], bias[PLACES["tone word"]] = 1.0, -2.0 * LEAST_SOUNDING
    for column, name in zip(fitted.T, SOUNDS, strict=True):
        for place, share in ((f"asked {TONE_OF[name]}", 1.0), ("tone word", 2.0)):
            after[PLACES[place]] += share * column[:-1]
            bias[PLACES[place]] += share * column[-1]
    return after, bias


def _heard_clips() -> tuple[Table, Table]:
    """Rows of the built-in projector, and which of SOUNDS sounds in each."""
    from ..inference.llama.model import LlamaModel
    from ..inference.llama.projector import Projector

    random_numbers = random.Random(3)
    model = LlamaModel(model_path("builtin-audio"))
    projector = Projector(_builtin_projector(), model, threads=1)
    rows, sounding = [], []
    try:
        for seed in range(CLIPS):
            clip = random_clip(random_numbers)
            heard = projector.encode_audio(clip.play(noise=random_numbers.choice([0, 0.001, 0.005]), seed=seed))
            rows.append(heard)
            sounding.append(_sounding(clip, len(heard)))
    finally:
        projector.close()
        model.close()
    return np.concatenate(rows), np.concatenate(sounding)


def _sounding(clip: Clip, rows: int) -> Table:
    table = np.zeros((rows, len(SOUNDS)), np.float32)
    for row in range(rows):
        middle = (row + 0.5) * ROW_SECONDS
        for sound in clip.sounds:
            if sound.start < middle < sound.end:
                table[row, list(SOUNDS).index(sound.name)] = 1.0
    return table


def _builtin_projector() -> Path:
    path = model_path("builtin-audio")
    return path.with_name(f"mmproj-{path.name}")


def main() -> None:
    """Write the model and a recording into the directory that is named, and print the model's path."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m leap_core.testing.miniature_ears DIRECTORY")
    import soundfile

    directory = Path(sys.argv[1])
    model = write_hearing_miniature(directory)
    asked = [Sound(name, start, 0.6) for name, start in (("do", 1.0), ("mi", 4.5), ("la", 8.0))]
    soundfile.write(directory / "talk.wav", Clip(tuple(asked), 9.5).play(noise=HISS), RATE, subtype="PCM_16")
    sys.stdout.write(f"{model}\n")


if __name__ == "__main__":
    main()
