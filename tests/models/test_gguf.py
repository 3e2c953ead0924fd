"""The GGUF reader: agrees with gguf-py on sound files, and says what is wrong with every other file."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from leap_core.errors import LeapModelLoadingError, LeapModelNotFoundError
from leap_core.inference.gguf.header import SkippedArray, read_gguf_header
from tests.support.random_models import write_random_model


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return write_model(tmp_path / "sound.gguf")


def write_model(path: Path, tokens: int = 3000) -> Path:
    writer = gguf.GGUFWriter(path, "lfm2")
    writer.add_name("A small one")
    writer.add_context_length(4096)
    writer.add_file_type(7)
    writer.add_chat_template("{{ messages }}")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("lfm2")
    writer.add_token_list([f"token {n}" for n in range(tokens)])
    writer.add_token_types([1] * tokens)
    writer.add_token_merges([f"a{n} b{n}" for n in range(2000)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(7)
    writer.add_add_bos_token(True)
    writer.add_array("lfm2.attention.head_count_kv", [0, 8, 0, 8])
    writer.add_tensor("token_embd.weight", np.arange(64 * 96, dtype=np.float32).reshape(96, 64))
    writer.add_tensor("odd", np.ones(7, dtype=np.float16))
    packed = gguf.quants.quantize(np.ones((4, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_reads_what_gguf_py_wrote(sound: Path) -> None:
    header = read_gguf_header(sound)
    assert header.architecture == "lfm2"
    assert header.name == "A small one"
    assert header.context_length == 4096
    assert header.quantization == "Q8_0"
    assert header.chat_template == "{{ messages }}"
    assert header.tokenizer_pre == "lfm2"
    assert header.vocabulary_size == 3000
    assert header.metadata["tokenizer.ggml.tokens"] == SkippedArray("string", 3000)
    assert header.metadata["lfm2.attention.head_count_kv"] == [0, 8, 0, 8]
    assert header.parameter_count == 64 * 96 + 7 + 256
    assert header.size_bytes == sound.stat().st_size
    assert not header.is_projector


@pytest.mark.slow
def test_places_tensors_where_gguf_py_finds_them(sound: Path) -> None:
    theirs = {t.name: (t.data_offset, t.n_bytes, t.tensor_type.name) for t in gguf.GGUFReader(sound).tensors}
    ours = {t.name: (t.offset, t.size_bytes, t.type) for t in read_gguf_header(sound).tensors}
    assert ours == theirs


@pytest.mark.slow
def test_every_truncation_is_refused(sound: Path, tmp_path: Path) -> None:
    data = sound.read_bytes()
    last = max(t.offset + t.size_bytes for t in read_gguf_header(sound).tensors)
    short = tmp_path / "short.gguf"
    for length in [*range(200), *range(200, last, 997), last - 1]:
        short.write_bytes(data[:length])
        with pytest.raises(LeapModelLoadingError) as caught:
            read_gguf_header(short)
        assert str(short) in caught.value.message and "\n" not in caught.value.message


@pytest.mark.slow
def test_flipped_bits_are_read_or_refused_but_never_crash(sound: Path, tmp_path: Path) -> None:
    data = bytearray(sound.read_bytes())
    chance = random.Random(5)
    flipped = tmp_path / "flipped.gguf"
    refused = 0
    for _ in range(600):
        where = chance.randrange(8, 1200) if chance.random() < 0.7 else chance.randrange(8, len(data))
        damaged = bytearray(data)
        damaged[where] ^= 1 << chance.randrange(8)
        flipped.write_bytes(damaged)
        try:
            read_gguf_header(flipped)
        except LeapModelLoadingError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"once upon a time", "is not a GGUF file: it begins with 'once'"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"<!doctype html>", "web page"),
        (b'{"inference_type": 1}', "JSON"),
        (b"PK\x03\x04bundle", "zip archive"),
        (b"GG", "is not a GGUF file"),
        (b"GGUF", "ends after 4 bytes"),
        (b"GGUF" + struct.pack("<I", 1), "GGUF version 1"),
        (b"GGUF" + struct.pack("<I", 99), "GGUF version 99"),
        (b"GGUF" + struct.pack(">I", 3), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2), "claims 1152921504606846976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "more than 24 bytes can hold"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + bytes(64), "claims a length"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 2**50) + bytes(64), "claims 1125899906842624"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1) + bytes(64), "nested value type 9"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77) + bytes(64), "unknown value type 77"),
        (b"GGUF" + struct.pack("<IQQQ1sIQ", 3, 0, 1, 1, b"k", 8, 2**63) + bytes(64), "claims a text of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(64), "does not name its architecture"),
    ],
)
def test_other_file_types_are_named(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(LeapModelLoadingError, match=".") as caught:
        read_gguf_header(path)
    assert expected in caught.value.message


def test_random_bytes_behind_a_good_magic_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "random.gguf"
    chance = random.Random(11)
    for _ in range(200):
        path.write_bytes(b"GGUF" + struct.pack("<I", 3) + chance.randbytes(4096))
        with pytest.raises(LeapModelLoadingError):
            read_gguf_header(path)


def test_arrays_that_llama_cpp_reads_unchecked_must_fit_the_tokens(tmp_path: Path) -> None:
    path = tmp_path / "short-scores.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b", "c"])
    writer.add_token_scores([0.5])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(LeapModelLoadingError, match="'tokenizer.ggml.scores' has 1 elements for 3 tokens"):
        read_gguf_header(path)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda w: w.add_block_count(0), "claims 0 layers"),
        (lambda w: w.add_block_count(513), "claims 513 layers"),
        (lambda w: w.add_layer_norm_rms_eps(-1.0), "layer_norm_rms_epsilon is -1.0"),
        (lambda w: w.add_layer_norm_rms_eps(float("nan")), "layer_norm_rms_epsilon is nan"),
        (lambda w: w.add_token_list(["a", "b", "a"]), "b'a' occurs twice"),
        (lambda w: sentencepiece(w, [f"<0x{n:02X}>" for n in range(256) if n != 0xE2]), "no token for the byte <0xE2>"),
        (lambda w: sentencepiece(w, [f"t{n}" for n in range(3000)]), "no token for the byte <0x00>"),
        (lambda w: w.add_token_list([f"t{n % 2999}" for n in range(3000)]), "b't0' occurs twice"),
    ],
)
def test_values_over_which_llama_cpp_ends_the_process_are_refused(tmp_path: Path, spoil, says: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "spoiled.gguf", "llama")
    spoil(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(LeapModelLoadingError, match=says):
        read_gguf_header(tmp_path / "spoiled.gguf")


def sentencepiece(writer: gguf.GGUFWriter, tokens: list[str]) -> None:
    writer.add_token_list(tokens)
    writer.add_tokenizer_model("llama")


def test_a_raw_byte_can_be_a_token(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "bytes.gguf", "llama")
    sentencepiece(writer, ["a", *(f"<0x{n:02X}>" for n in range(256) if n != ord("a"))])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_gguf_header(tmp_path / "bytes.gguf").vocabulary_size == 256


def test_empty_tokens_may_be_many(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "empty.gguf", "llama")
    writer.add_token_list(["", "a", ""])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_gguf_header(tmp_path / "empty.gguf").vocabulary_size == 3


def test_overlapping_tensors_are_refused(sound: Path, tmp_path: Path) -> None:
    data = bytearray(sound.read_bytes())
    where = data.index(b"blk.0.weight") + len("blk.0.weight") + 4 + 2 * 8 + 4
    data[where : where + 8] = bytes(8)
    path = tmp_path / "overlap.gguf"
    path.write_bytes(data)
    with pytest.raises(LeapModelLoadingError, match="overlap"):
        read_gguf_header(path)


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LeapModelNotFoundError, match="there is no file"):
        read_gguf_header(tmp_path / "nowhere.gguf")
    with pytest.raises(LeapModelLoadingError, match="is a directory"):
        read_gguf_header(tmp_path)
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(LeapModelLoadingError, match="not a regular file"):
        read_gguf_header(tmp_path / "pipe.gguf")


def test_a_further_part_of_a_split_model_is_called_that(tmp_path):
    part = tmp_path / "big-00002-of-00003.gguf"
    write_random_model(part)
    part.write_bytes(part.read_bytes()[:-5000])
    with pytest.raises(LeapModelLoadingError, match="is a further part of a split model") as caught:
        read_gguf_header(part)
    assert "big-00001-of-00003.gguf" in caught.value.hint
