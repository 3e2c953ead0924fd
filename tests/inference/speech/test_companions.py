"""Files that are missing, damaged, swapped or of another model: one clear error each, and no abort."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from leap_core.errors import LeapModelLoadingError, LeapModelNotFoundError
from leap_core.inference.speech import speaker
from leap_core.inference.speech.companions import open_vocoder
from leap_core.inference.speech.layers import StackModel
from leap_core.inference.speech.vocoder import Vocoder
from tests.support.random_models import write_random_model
from tests.support.random_vocoder import TINY, VocoderSize, write_random_vocoder

from .conftest import opened


@pytest.fixture
def split(tmp_path: Path) -> tuple[Path, Path]:
    vocoder, tokenizer = tmp_path / "vocoder-Tiny-Q8_0.gguf", tmp_path / "tokenizer-Tiny-Q8_0.gguf"
    write_random_vocoder(vocoder, quantization="q8_0", detokenizer_path=tokenizer)
    return vocoder, tokenizer


def test_dimensions_come_from_the_shapes_in_both_layouts(tiny: Vocoder, split: tuple[Path, Path]) -> None:
    for vocoder in (tiny, opened(split[0]), opened(split[0], tokenizer=split[1])):
        depth, sound = vocoder.depthformer, vocoder.detokenizer
        assert (depth.layers, depth.width, depth.hidden, depth.codebooks) == (2, 64, TINY.hidden, 4)
        assert (depth.codes, depth.end_code) == (33, 32)
        assert (depth.attention.heads, depth.attention.kv_heads, depth.attention.head) == (4, 2, 16)
        assert [heads is not None for heads in sound.attention] == [False, True, False]
        assert (sound.width, sound.kernel, sound.codes, sound.n_fft) == (64, 3, 32, 64)


def test_a_missing_vocoder_is_named(tmp_path: Path) -> None:
    with pytest.raises(LeapModelNotFoundError, match=r"there is no file .*vocoder-x\.gguf"):
        opened(tmp_path / "vocoder-x.gguf")


def test_a_missing_companion_is_named(split: tuple[Path, Path]) -> None:
    split[1].unlink()
    with pytest.raises(LeapModelNotFoundError, match=r"needs tokenizer-Tiny-Q8_0\.gguf") as caught:
        opened(split[0])
    assert "audio_tokenizer_path" in (caught.value.hint or "")
    with pytest.raises(LeapModelNotFoundError, match=r"there is no file .*tokenizer-Tiny-Q8_0\.gguf"):
        opened(split[0], tokenizer=split[1])


def test_swapped_files_are_detected(split: tuple[Path, Path]) -> None:
    with pytest.raises(LeapModelLoadingError, match="swapped: vocoder-Tiny-Q8_0.gguf is the vocoder"):
        opened(split[1], tokenizer=split[0])
    with pytest.raises(LeapModelLoadingError, match="is an audio tokenizer, not the vocoder"):
        opened(split[1])
    with pytest.raises(LeapModelLoadingError, match="is a vocoder, not the audio tokenizer"):
        opened(split[0], tokenizer=split[0])


def test_a_language_model_as_vocoder_is_refused(tmp_path: Path, split: tuple[Path, Path]) -> None:
    model = write_random_model(tmp_path / "model.gguf")
    with pytest.raises(LeapModelLoadingError, match="is a language model, not the vocoder"):
        opened(model)
    with pytest.raises(LeapModelLoadingError, match="is a language model, not the audio tokenizer"):
        opened(split[0], tokenizer=model)


def test_a_vocoder_of_a_wider_model_is_refused(tiny_path: Path) -> None:
    with pytest.raises(LeapModelLoadingError, match=r"width 64, and other\.gguf has 2048"):
        open_vocoder(tiny_path, None, model=Path("other.gguf"), width=2048)


def test_a_companion_of_another_size_is_refused(tmp_path: Path, split: tuple[Path, Path]) -> None:
    other = replace(TINY, detokenizer_width=32, detokenizer_heads=2, detokenizer_kv_heads=1)
    path = write_random_vocoder(
        tmp_path / "vocoder-Other.gguf", other, detokenizer_path=tmp_path / "tokenizer-Other.gguf"
    )
    with pytest.raises(LeapModelLoadingError, match=r"tokenizer-Tiny-Q8_0\.gguf is no usable vocoder: the shape of"):
        opened(path, tokenizer=split[1])


def test_the_first_generation_is_refused_by_name(tmp_path: Path, split: tuple[Path, Path]) -> None:
    mimi = tmp_path / "tokenizer-LFM2-Audio-1.5B.safetensors"
    mimi.write_bytes((20).to_bytes(8, "little") + b'{"__metadata__": {}}')
    disguised = tmp_path / "tokenizer.gguf"
    shutil.copy(mimi, disguised)
    for path in (mimi, disguised):
        with pytest.raises(LeapModelLoadingError, match="Mimi"):
            opened(split[0], tokenizer=path)
        with pytest.raises(LeapModelLoadingError, match="Mimi"):
            opened(path)
    assert_mimi_without_table(tmp_path)


def assert_mimi_without_table(tmp_path: Path) -> None:
    """A first-generation decoder has a depthformer, and no table of sounds."""
    import gguf
    import numpy as np

    path = tmp_path / "audiodecoder-LFM2-Audio-1.5B.gguf"
    writer = gguf.GGUFWriter(path, "decoder")
    writer.add_tensor("depth_linear.weight", np.zeros((64, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(LeapModelLoadingError, match="Mimi"):
        opened(path)


def test_the_third_generation_is_refused_by_name(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "vocoder-LFM3-Audio-2B-Q4_0.gguf"
    shutil.copy(tiny_path, path)
    with pytest.raises(LeapModelLoadingError, match="LFM3-Audio"):
        opened(path)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.99])
def test_a_truncated_file_is_refused(tiny_path: Path, tmp_path: Path, keep: float) -> None:
    path = tmp_path / "vocoder-Cut.gguf"
    data = tiny_path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(LeapModelLoadingError):
        opened(path)


BROKEN = [
    {"feed_forward": 128},
    {"heads": 8},
    {"codebooks": 5},
    {"codes": 65},
    {"n_fft": 128},
    {"detokenizer_feed_forward": 64},
    {"detokenizer_kv_heads": 4},
    {"detokenizer_layers": 2},
    {"detokenizer_attention": frozenset({0, 2})},
]


@pytest.mark.slow
@pytest.mark.parametrize("change", BROKEN, ids=lambda change: next(iter(change)))
def test_a_tensor_of_another_size_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """Each tensor of a vocoder is replaced in turn by that of another size; what fits by chance still speaks."""
    other: VocoderSize = replace(TINY, **change)  # type: ignore[arg-type]
    paths = [write_random_vocoder(tmp_path / f"vocoder-{n}.gguf", size) for n, size in enumerate((TINY, other))]
    tensors = [_tensors(path) for path in paths]
    differing = [name for name in tensors[0] if name in tensors[1] and tensors[0][name].shape != tensors[1][name].shape]
    only_here = [name for name in tensors[0] if name not in tensors[1]]
    assert differing or only_here
    for name in differing:
        path = _write(tmp_path / "vocoder-Mixed.gguf", {**tensors[0], name: tensors[1][name]})
        with pytest.raises(LeapModelLoadingError, match="vocoder-Mixed.gguf"):
            opened(path)
    for name in tensors[0]:
        path = _write(tmp_path / "vocoder-Lacking.gguf", {n: t for n, t in tensors[0].items() if n != name})
        if name == "istft.window":
            continue
        with pytest.raises(LeapModelLoadingError):
            opened(path)


def _tensors(path: Path) -> dict[str, object]:
    import gguf

    return {tensor.name: tensor.data.copy() for tensor in gguf.GGUFReader(path).tensors}


def _write(path: Path, tensors: dict[str, object]) -> Path:
    import gguf

    writer = gguf.GGUFWriter(path, "vocoder")
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_voice_that_fails_to_load_frees_its_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_models: list[StackModel] = []

    class Kept(StackModel):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            opened_models.append(self)

    def fail(*_: object) -> None:
        raise MemoryError

    vocoder = opened(write_random_vocoder(tmp_path / "vocoder-Tiny-Q8_0.gguf", quantization="q8_0"))
    monkeypatch.setattr(speaker, "StackModel", Kept)
    monkeypatch.setattr(speaker, "FrameMaker", fail)
    with pytest.raises(MemoryError):
        speaker.Speaker(vocoder, tmp_path / "cache")
    assert [model.pointer for model in opened_models] == [None, None]
