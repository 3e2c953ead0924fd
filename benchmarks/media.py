"""What a picture and a minute of sound cost, at the shapes of LFM2-VL-450M and LFM2.5-Audio with random weights.

    python benchmarks/media.py [--threads 2] [--rounds 5]

Three claims: the first token after a 512 x 512 picture comes as early as with llama.cpp's own loop (mtmd's
``mtmd_helper_eval_chunks``, which llama-mtmd-cli runs, in the same process and in turns); a second question about the
same picture costs a tenth of the first at most; and 60 s of sound stay within the memory that
docs/vision-and-audio.md names. The models are made in a temporary directory (about 0.6 GB).
"""

from __future__ import annotations

import argparse
import ctypes
import io
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import SHORT
from PIL import Image as pillow

from leap_core.conversation.messages import ChatMessage, Image, Text
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.inference.llama.context import LlamaContext
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.llama.projector import Projector
from leap_core.inference.runner import InProcessRunner
from tests.support.random_models import LFM2_350M, TINY_LFM2, write_random_model
from tests.support.random_projectors import (
    LFM2_AUDIO,
    LFM2_VL_450M,
    TINY_AUDIO,
    TINY_VISION,
    write_random_projector,
)
from tests.support.whole_llama import whole_multimodal_library

SHAPE, VISION, AUDIO = (TINY_LFM2, TINY_VISION, TINY_AUDIO) if SHORT else (LFM2_350M, LFM2_VL_450M, LFM2_AUDIO)
SIDE = 512
QUESTION, ANOTHER = "ab cd ef gh", "ij kl mn op qr"
TARGET_FIRST, TARGET_SECOND = 1.05, 0.10
CELLS, BATCH = 2048, 512


def picture(seed: int) -> bytes:
    """A JPEG that no one has seen."""
    small = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)
    output = io.BytesIO()
    pillow.fromarray(small).resize((SIDE, SIDE), pillow.Resampling.BICUBIC).save(output, "JPEG", quality=90)
    return output.getvalue()


class Theirs:
    """llama.cpp's own way from JPEG bytes to the first token."""

    def __init__(self, path: Path, projector: Path, threads: int) -> None:
        self._lib = whole_multimodal_library()
        self._model = LlamaModel(path)
        self._context = LlamaContext(self._model, cells=CELLS, slots=1, batch_size=BATCH, threads=threads)
        params = self._lib.mtmd_context_params_default()
        params.use_gpu = params.print_timings = params.warmup = False
        params.n_threads = threads
        self._mtmd = self._lib.mtmd_init_from_file(os.fsencode(projector), self._model.pointer, params)

    def first_token(self, jpeg: bytes) -> float:
        """Seconds."""
        lib = self._lib
        begun = time.perf_counter()
        self._context.forget(0)
        data = (ctypes.c_uint8 * len(jpeg)).from_buffer_copy(jpeg)
        bitmap = lib.mtmd_helper_bitmap_init_from_buf(self._mtmd, data, len(jpeg), False)
        texts = [
            lib.mtmd_input_text(text.encode(), len(text), False, True)
            for text in ("<|im_start|>user\n", f"{QUESTION}<|im_end|>\n<|im_start|>assistant\n")
        ]
        parts = [lib.mtmd_input_part() for _ in range(3)]
        parts[0].text, parts[2].text = ctypes.pointer(texts[0]), ctypes.pointer(texts[1])
        parts[1].bitmap = getattr(bitmap, "bitmap", bitmap)
        chunks = lib.mtmd_input_chunks_init()
        pointers = (ctypes.POINTER(lib.mtmd_input_part) * 3)(*map(ctypes.pointer, parts))
        assert lib.mtmd_tokenize_from_parts(self._mtmd, chunks, pointers, 3, True) == 0
        end = ctypes.c_int32(0)
        code = lib.mtmd_helper_eval_chunks(
            self._mtmd, self._context.pointer, chunks, 0, 0, BATCH, True, ctypes.byref(end)
        )
        assert code == 0
        int(self._context.logits(-1).argmax())
        seconds = time.perf_counter() - begun
        lib.mtmd_input_chunks_free(chunks)
        lib.mtmd_bitmap_free(parts[1].bitmap)
        return seconds


def first_token(runner: InProcessRunner, jpeg: bytes, question: str) -> float:
    """Seconds from the request to the first token, the reading of the JPEG included."""
    options = GenerationOptions(temperature=0.0, max_tokens=1)
    begun = time.perf_counter()
    for _ in runner.start([ChatMessage("user", [Image(jpeg), Text(question)])], (), options):
        break
    return time.perf_counter() - begun


def pictures(directory: Path, threads: int, rounds: int) -> bool:
    """Both claims about pictures."""
    model = write_random_model(directory / "text.gguf", SHAPE, "q8_0")
    projector = write_random_projector(directory / "mmproj.gguf", SHAPE.width, vision=VISION)
    options = ModelLoadingOptions(
        mm_proj_path=projector, cpu_threads=threads, slots=1, context_size=CELLS, batch_size=BATCH
    )
    theirs = Theirs(model, projector, threads)
    with InProcessRunner(model, "benchmark", options) as runner:
        assert isinstance(runner, InProcessRunner)
        theirs.first_token(picture(0)), first_token(runner, picture(0), QUESTION)  # both load and warm up
        rows = []
        for seed in range(1, rounds + 1):
            jpeg = picture(seed)
            rows.append(
                (theirs.first_token(jpeg), first_token(runner, jpeg, QUESTION), first_token(runner, jpeg, ANOTHER))
            )
    base, first, second = (statistics.median(column) for column in zip(*rows, strict=True))
    ratio = statistics.median(ours / base for base, ours, _ in rows)
    again = statistics.median(second / first for _, first, second in rows)
    print(f"first token after a {SIDE} x {SIDE} picture, {threads} threads, median of {rounds}")
    print(f"  llama.cpp's own loop (mtmd)  {base * 1000:8.0f} ms")
    print(f"  leap                         {first * 1000:8.0f} ms   ratio {ratio:.3f}   target <= {TARGET_FIRST}")
    print(
        f"  leap, second question        {second * 1000:8.0f} ms   {again:.1%} of the first, "
        f"target <= {TARGET_SECOND:.0%}"
    )
    return ratio <= TARGET_FIRST and again <= TARGET_SECOND


def sound(directory: Path, threads: int, seconds: int) -> None:
    """Time and memory of one piece of sound. In a process of its own, whose peak is its own."""
    model = write_random_model(directory / "text.gguf", SHAPE, "q4_0")
    path = write_random_projector(directory / "mmproj-audio.gguf", SHAPE.width, audio=AUDIO)
    text = LlamaModel(model)
    projector = Projector(path, text, threads=threads)
    projector.encode_audio(np.zeros(16_000, np.float32))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    noise = np.random.default_rng(1).uniform(-0.3, 0.3, seconds * 16_000).astype(np.float32)
    begun = time.perf_counter()
    rows: Any = projector.encode_audio(noise)
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = path.stat().st_size / 1e6
    print(
        f"{seconds} s of sound, {threads} threads: {took:.1f} s, {len(rows)} positions, peak {peak:.0f} MB "
        f"(+{peak - before:.0f} MB over one second of sound; the projector's file has {size:.0f} MB)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sound-seconds", type=int, help="measure this much sound alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if arguments.sound_seconds:
            sound(Path(name), arguments.threads, arguments.sound_seconds)
            return 0
        good = pictures(Path(name), arguments.threads, arguments.rounds)
    for seconds in (1,) if SHORT else (10, 30, 60):
        command = f"{sys.executable} {__file__} --threads {arguments.threads} --sound-seconds {seconds}"
        if os.system(command) != 0:
            return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
