"""The projector over mtmd: what it makes of pixels and samples equals what mtmd makes by itself."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from leap_core.conversation.media.audio import tokens_of
from leap_core.conversation.media.image_plan import plan_image
from leap_core.errors import LeapModelLoadingError
from leap_core.inference.llama.context import LlamaContext
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.llama.projector import Projector
from tests.support.random_models import TINY_LFM2, write_random_model
from tests.support.random_projectors import TINY_AUDIO, TINY_VISION, write_random_projector
from tests.support.whole_llama import whole_multimodal_library

WIDTH = 64


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    model = LlamaModel(write_random_model(tmp_path_factory.mktemp("models") / "lfm2.gguf", TINY_LFM2, "f32"))
    yield model
    model.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("projectors")
    return write_random_projector(directory / "mmproj.gguf", WIDTH, vision=TINY_VISION, audio=TINY_AUDIO)


@pytest.fixture(scope="module")
def projector(path: Path, text_model: LlamaModel) -> Iterator[Projector]:
    loaded = Projector(path, text_model, threads=1)
    yield loaded
    loaded.close()


class Mtmd:
    """mtmd with its own settings: it resizes, cuts and encodes by itself."""

    def __init__(self, path: Path, model: LlamaModel) -> None:
        self.lib = whole_multimodal_library()
        params = self.lib.mtmd_context_params_default()
        params.use_gpu = params.print_timings = params.warmup = False
        params.n_threads = 1
        self.pointer: Any = self.lib.mtmd_init_from_file(os.fsencode(path), model.pointer, params)

    def chunks(self, bitmap: Any, *, encode: bool) -> list[Any]:
        """Rows of every medium among the chunks, or only their number."""
        lib = self.lib
        part = lib.mtmd_input_part()
        part.bitmap = bitmap
        parts = (ctypes.POINTER(lib.mtmd_input_part) * 1)(ctypes.pointer(part))
        chunks = lib.mtmd_input_chunks_init()
        assert lib.mtmd_tokenize_from_parts(self.pointer, chunks, parts, 1, False) == 0
        made: list[Any] = []
        for n in range(lib.mtmd_input_chunks_size(chunks)):
            chunk = lib.mtmd_input_chunks_get(chunks, n)
            if lib.mtmd_input_chunk_get_type(chunk) == 0:
                continue
            rows = int(lib.mtmd_input_chunk_get_n_tokens(chunk))
            if encode:
                assert lib.mtmd_encode_chunk(self.pointer, chunk) == 0
                output = lib.mtmd_get_output_embd(self.pointer)
                made.append(np.ctypeslib.as_array(output, (rows, WIDTH)).copy())
            else:
                made.append(rows)
        lib.mtmd_input_chunks_free(chunks)
        lib.mtmd_bitmap_free(bitmap)
        return made

    def tokens(self, width: int, height: int) -> list[int]:
        return self.chunks(self.lib.mtmd_bitmap_init(width, height, None), encode=False)

    def rows(self, image: Image.Image) -> list[Any]:
        data = image.tobytes()
        pixels = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        return self.chunks(self.lib.mtmd_bitmap_init(*image.size, pixels), encode=True)


@pytest.fixture(scope="module")
def mtmd(path: Path, text_model: LlamaModel) -> Iterator[Mtmd]:
    loaded = Mtmd(path, text_model)
    yield loaded
    loaded.lib.mtmd_free(loaded.pointer)


def picture(width: int, height: int) -> Image.Image:
    down, across = np.mgrid[0:height, 0:width]
    colours = [127 + 120 * np.sin(across / 37 + down / 91), 127 + 120 * np.cos(down / 23), across * down // 64 % 256]
    return Image.fromarray(np.stack(colours, -1).astype(np.uint8))


@pytest.mark.slow
def test_images_are_preprocessed_as_in_mtmd(mtmd: Mtmd) -> None:
    dice = random.Random(5)
    sizes = [(dice.randint(1, 2500), dice.randint(1, 2500)) for _ in range(4000)]
    sizes += [(across * 16, down * 16) for across in range(1, 60) for down in range(1, 60)]
    for width, height in sizes:
        if max(width, height) <= 10 * min(width, height):
            looks = plan_image(width, height, tiles=True).looks
            assert [look.tokens for look in looks] == mtmd.tokens(width, height), (width, height)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(256, 256), (300, 200), (33, 47), (640, 480), (1024, 768), (720, 1280), (1200, 800)])
def test_image_embeddings_equal_mtmds(projector: Projector, mtmd: Mtmd, size: tuple[int, int]) -> None:
    image = picture(*size)
    plan = plan_image(*size, tiles=True)
    own = [projector.encode_image(*look.size, look.tobytes()) for look in plan.cut(image)]
    theirs = mtmd.rows(image)
    assert [rows.shape[0] for rows in own] == [look.tokens for look in plan.looks]
    assert all(np.array_equal(a, b) for a, b in zip(own, theirs, strict=True))


def test_audio_embeddings_equal_mtmds(projector: Projector, mtmd: Mtmd) -> None:
    samples = (np.random.default_rng(2).standard_normal(24_000) * 0.1).astype(np.float32)
    bitmap = mtmd.lib.mtmd_bitmap_init_from_audio(len(samples), samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
    (theirs,) = mtmd.chunks(bitmap, encode=True)
    assert np.array_equal(projector.encode_audio(samples), theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "tokens"), [(1600, 2), (16_000, 13), (160_000, 126), (960_000, 751)])
def test_audio_takes_twelve_and_a_half_tokens_per_second(projector: Projector, samples: int, tokens: int) -> None:
    assert len(projector.encode_audio(np.zeros(samples, np.float32))) == tokens == tokens_of(samples)


def test_too_few_samples_are_refused_before_they_abort_the_process(projector: Projector) -> None:
    for count in (0, 1, 2, 319):
        with pytest.raises(ValueError):
            projector.encode_audio(np.zeros(count, np.float32))
    assert len(projector.encode_audio(np.zeros(320, np.float32))) == 1


def test_a_projector_of_another_width_is_refused(tmp_path: Path, text_model: LlamaModel) -> None:
    path = write_random_projector(tmp_path / "mmproj.gguf", 96, vision=TINY_VISION)
    with pytest.raises(LeapModelLoadingError, match="mismatch"):
        Projector(path, text_model, threads=1).encode_image(32, 32, bytes(32 * 32 * 3))


def test_decoding_the_rows_equals_mtmds_own_helper(projector: Projector, mtmd: Mtmd, text_model: LlamaModel) -> None:
    """Text, a picture, text: evaluated by mtmd's helper, and as leap does it with batches of the same shapes."""
    image, lib = picture(256, 256), mtmd.lib
    before, after = "<|im_start|>user\n", "What is this?<|im_end|>\n"
    data = image.tobytes()
    bitmap = lib.mtmd_bitmap_init(*image.size, (ctypes.c_uint8 * len(data)).from_buffer_copy(data))
    texts = [lib.mtmd_input_text(text.encode(), len(text), False, True) for text in (before, after)]
    parts = [lib.mtmd_input_part() for _ in range(3)]
    parts[0].text, parts[2].text = ctypes.pointer(texts[0]), ctypes.pointer(texts[1])
    parts[1].bitmap = bitmap
    pointers = (ctypes.POINTER(lib.mtmd_input_part) * 3)(*map(ctypes.pointer, parts))
    chunks = lib.mtmd_input_chunks_init()
    assert lib.mtmd_tokenize_from_parts(mtmd.pointer, chunks, pointers, 3, True) == 0
    theirs = context_of(text_model)
    end = ctypes.c_int32(0)
    code = lib.mtmd_helper_eval_chunks(mtmd.pointer, theirs.pointer, chunks, 0, 0, 512, True, ctypes.byref(end))
    assert code == 0
    expected = theirs.logits(-1).copy()
    lib.mtmd_input_chunks_free(chunks)
    lib.mtmd_bitmap_free(bitmap)

    own = context_of(text_model)
    assert text_model.bos_token is not None
    start = [text_model.bos_token, *text_model.tokenize(before + "<|image_start|>", parse_special=True)]
    rest = text_model.tokenize("<|image_end|>" + after, parse_special=True)
    rows = projector.encode_image(*image.size, data)
    at = 0
    for run in (start, rows, rest):
        own.clear()
        if isinstance(run, list):
            index = own.add(0, at, run, output=True)
        else:
            index = own.add_embeddings(0, at, run, output=False)
        assert own.decode() == 0
        at += len(run)
    assert at == end.value
    assert np.array_equal(own.logits(index), expected)
    theirs.close()
    own.close()


def context_of(model: LlamaModel) -> LlamaContext:
    return LlamaContext(model, cells=1024, slots=1, batch_size=512, threads=1)
