"""Speech at LFM2.5-Audio's own size, with random weights: compute seconds for each second of sound, by stage.

    python benchmarks/speech.py [--frames 74] [--depthformer q8_0] [--threads 1 2] [--busy] [--equality]

A request goes the product's own way: the scheduler decodes the backbone and makes frames, with several threads also
sound of them; with one the reader's thread does. ``wall`` is from the end of the prompt to the last sample, divided
by the length of the sound: below 1 is faster than real time. ``processor`` is the processor time of all threads
instead, from the first sound on: with one thread it tells on a busy machine what ``wall`` would be on a quiet one.
The stages are the time spent in each; with one thread sound is made beside the others. ``first sound`` is from the
end of the prompt on. ``--busy`` repeats all of it with another process keeping one core busy; ``--equality`` holds
codes and samples against the numpy reference instead.

Beside each stands what llama.cpp alone needs for a token of the same backbone, with the same threads, twelve and a half
times a second.

A figure is worth something on a machine that does nothing else; the load average is printed for that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from harness import SHORT

from leap_core.conversation.options import CacheOptions, GenerationOptions
from leap_core.inference.engine.request import Frame, PromptTokens, Request, SequenceEnd, SpeechFrames, Tokens
from leap_core.inference.engine.sampler import Sampler
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.snapshots import SnapshotStore
from leap_core.inference.llama.context import LlamaContext
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.speech.companions import open_vocoder
from leap_core.inference.speech.frames import CodeSampler
from leap_core.inference.speech.speaker import ReplySound, Speaker
from leap_core.inference.voice import Listener
from tests.support.numpy_layers import NumpySpeaker
from tests.support.random_models import TINY_LFM2, Shape, write_random_model
from tests.support.random_vocoder import LFM2_5_AUDIO, TINY, write_random_vocoder

LFM2_1_2B = Shape(16, 2048, 32, 8, 8192, frozenset({2, 5, 8, 10, 12, 14}), 65_536, 32_768)
SHAPE, VOICE = (TINY_LFM2, TINY) if SHORT else (LFM2_1_2B, LFM2_5_AUDIO)
PROMPT = list(range(900, 940))
FRAME_SECONDS = 0.08
BUSY = "while True: pass"


class Pattern:
    """``t`` for a token and ``f`` for a frame, over and over."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._taken = pattern, 0

    @property
    def wants_frame(self) -> bool:
        return self._pattern[self._taken % len(self._pattern)] == "f"

    def take_token(self, token: int) -> None:
        self._taken += 1

    def take_frame(self, codes: Frame) -> Frame:
        """Random weights end the sound at random; here it goes on."""
        self._taken += 1
        return tuple(min(code, VOICE.codes - 2) for code in codes)


class Timed:
    """A speaker that notes the time spent in frames, and when the first one began."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self.fingerprint = speaker.fingerprint
        self.end_code = speaker.end_code
        self.seconds = 0.0
        self.begun: float | None = None

    def frames(self, hidden: Any, samplers: Any, threads: int) -> list[Frame]:
        begun = time.perf_counter()
        self.begun = self.begun or begun
        frames = self._speaker.frames(hidden, samplers, threads)
        self.seconds += time.perf_counter() - begun
        return frames

    def __getattr__(self, name: str) -> Any:
        return getattr(self._speaker, name)


class TimedSound(ReplySound):
    """Notes the time spent in making sound: ``beside`` the steps, in the reader's thread, or ``between`` them."""

    beside = between = 0.0

    def make(self, threads: int) -> None:
        begun = time.perf_counter()
        super().make(threads)
        seconds = time.perf_counter() - begun
        if threads > 1:
            self.between += seconds
        else:
            self.beside += seconds


def speak(scheduler: Scheduler, speaker: Speaker, pattern: str, frames: int) -> dict[str, float]:
    timed = Timed(speaker)
    options = GenerationOptions(temperature=0.0, top_k=1, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
    tokens = frames * (pattern.count("t") + pattern.count("f")) // pattern.count("f")
    request = Request(PromptTokens((Tokens(tuple(PROMPT)),)), Sampler(options, PROMPT), max_tokens=tokens)
    sound = TimedSound(speaker)
    request.speech = SpeechFrames(timed, Pattern(pattern), CodeSampler(0.8, 64, 1), sound)
    listener = Listener(sound)
    computed = 0.0
    scheduler.submit(request)
    made, first = 0, None
    while not isinstance(event := request.events.get(), SequenceEnd):
        if isinstance(event, tuple):
            listener.take_frame(event)
            if first is None:
                first, computed = time.perf_counter(), time.process_time()
            made += 1
    listener.end()
    end, seconds = time.perf_counter(), made * FRAME_SECONDS
    assert event.error is None and timed.begun is not None and first is not None, event.error
    wall = end - timed.begun
    computed = (time.process_time() - computed) / (seconds - FRAME_SECONDS)
    return {
        "wall": wall / seconds,
        "processor": computed,
        "depthformer": timed.seconds / seconds,
        "sound": (sound.between + sound.beside) / seconds,
        "backbone and rest": (wall - timed.seconds - sound.between) / seconds,
        "first sound, ms": (first - timed.begun) * 1000,
    }


def decode_alone(file: Path, threads: int, steps: int = 25) -> None:
    """llama.cpp's own part: one ``llama_decode`` of a token after the other, in seconds for each second of sound."""
    model = LlamaModel(file)
    context = LlamaContext(model, cells=2048, slots=1, batch_size=128, threads=threads)
    for step in range(-3, steps):
        if step == 0:
            begun = time.perf_counter()
        context.clear()
        context.add(0, step + 3, [900 + step], output=True)
        context.decode()
    print((time.perf_counter() - begun) / steps / FRAME_SECONDS)


def in_another_process(backbone: Path, threads: int) -> float:
    """``decode_alone``: in this one its threads would be too many for libgomp, which then stops spinning."""
    command = [sys.executable, __file__, "--decode-alone", str(backbone), "--threads", str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@contextmanager
def one_busy_core():
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def equality(directory: Path, quantization: str, frames: int = 50) -> None:
    path = write_random_vocoder(directory / f"vocoder-{quantization}.gguf", VOICE, quantization)
    vocoder = open_vocoder(path, None, model=Path("model"), width=VOICE.hidden)
    fast, oracle = Speaker(vocoder, directory / "cache"), NumpySpeaker(vocoder)
    hidden = np.random.default_rng(0).standard_normal((frames, VOICE.hidden)).astype(np.float32)
    codes = [fast.frames(row[None], [CodeSampler()])[0] for row in hidden]
    expected = oracle.frames(hidden, [CodeSampler() for _ in hidden])
    equal = sum(a == b for a, b in zip(codes, expected, strict=True))
    stream = [tuple(min(code, VOICE.codes - 2) for code in frame) for frame in expected]
    heard, reference = fast.borrow_detokenizer(), oracle.borrow_detokenizer()
    whole = np.concatenate([heard.feed(stream), heard.end()])
    streamed = np.concatenate([*(heard.feed([frame]) for frame in stream), heard.end()])
    exact = np.concatenate([reference.feed(stream), reference.end()])
    largest = np.abs(exact).max()
    differs, cut = np.abs(whole - exact).max() / largest, np.abs(streamed - whole).max() / largest
    print(
        f"{quantization}: {equal}/{frames} frames equal; samples differ by {differs:.1e}, streamed from whole by "
        f"{cut:.1e} of the largest"
    )
    fast.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=74)
    parser.add_argument("--depthformer", nargs="+", default=["q8_0"], choices=["q4_0", "q8_0", "f16", "f32"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of the backbone")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--equality", action="store_true")
    parser.add_argument("--decode-alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help="keep the random models here")
    options = parser.parse_args()
    if options.decode_alone:
        decode_alone(options.decode_alone, options.threads[0])
        return
    with nullcontext(options.directory) if options.directory else tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.mkdir(parents=True, exist_ok=True)
        if options.equality:
            for quantization in ("f32", "f16"):
                equality(directory, quantization)
            return
        backbone = directory / "backbone-q4_0.gguf"
        if not backbone.is_file():
            write_random_model(backbone, SHAPE, "q4_0")
        model = LlamaModel(backbone)
        for quantization in options.depthformer:
            path = directory / f"vocoder-{quantization}.gguf"
            if not path.is_file():
                write_random_vocoder(path, VOICE, quantization, detokenizer_quantization="f16")
            vocoder = open_vocoder(path, None, model=backbone, width=model.width)
            begun = time.perf_counter()
            speaker = Speaker(vocoder, directory / "cache")
            print(f"depthformer {quantization}: voice ready in {time.perf_counter() - begun:.2f} s")
            for threads in options.threads:
                context = LlamaContext(model, cells=2048, slots=1, batch_size=128, threads=threads)
                scheduler = Scheduler(context, SnapshotStore(CacheOptions(), b""), context_size=2048, threads=threads)
                speak(scheduler, speaker, "f", 5)
                for busy in (False, True) if options.busy else (False,):
                    with one_busy_core() if busy else nullcontext():
                        alone = in_another_process(backbone, threads)
                        for kind, pattern in (("sequential", "f"), ("interleaved", "tttttt" + "f" * 12)):
                            stages = speak(scheduler, speaker, pattern, options.frames)
                            figures = ", ".join(f"{stage} {value:.2f}" for stage, value in stages.items())
                            figures += f"; {stages['wall'] / alone:.2f} of llama_decode's {alone:.2f}"
                            load = f"{'one core busy' if busy else 'alone'}, load {os.getloadavg()[0]:.1f}"
                            print(f"  {kind}, {threads} threads, {load}: {figures}", flush=True)
                scheduler.close()
                context.close()
            speaker.close()
        model.close()


if __name__ == "__main__":
    main()
