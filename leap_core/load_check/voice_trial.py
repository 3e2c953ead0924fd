"""What the child process does with a vocoder to see whether it can be spoken with: open it beside its model, make
frames, and turn them into sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..in_process.modalities.voice import open_voice
from ..llama.model import LlamaModel
from ..options import GenerationOptions

FRAMES = 3


def try_voice(path: Path, beside: Mapping[str, Path], stage: Callable[..., object]) -> dict[str, Any]:
    """Speak with the vocoder at ``path``; ``beside`` names its model, and its audio tokenizer where that is another
    file. Raises LeapModelLoadingError for files that cannot be used."""
    import numpy as np

    stage("loading the model")
    model = LlamaModel(beside["model"])
    stage("opening the vocoder")
    voice = open_voice(path, beside.get("audio_tokenizer"), model)
    speech, listener = voice.begin(GenerationOptions(rng_seed=1), interleaved=False)
    stage("making frames")
    hidden = np.random.default_rng(1).standard_normal((1, model.width), dtype=np.float32)
    frames = [speech.source.frames(hidden, [speech.sampler], 1)[0] for _ in range(FRAMES)]
    for frame in frames:
        speech.source.embedding(frame)
    stage("making sound")
    samples = []
    for frame in frames:
        speech.sound.add(frame, last=False)
        samples += listener.take_frame(frame)
    samples += listener.end()
    return {"samples": sum(len(sample.samples) for sample in samples), "warning": voice.warning}
