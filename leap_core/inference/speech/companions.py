"""Which files speak for a model, and what a file is when it is not the one that was expected."""

from __future__ import annotations

from pathlib import Path

from ...errors import LeapModelLoadingError, LeapModelNotFoundError
from ..gguf.header import GGUFHeader, read_gguf_header
from .vocoder import TensorFile, Vocoder, is_merged


class OtherGenerationError(LeapModelLoadingError):
    """The files are sound, and of a generation whose speech this version cannot make."""


VOCODER, DETOKENIZER, PROJECTOR, LANGUAGE_MODEL = "vocoder", "audio tokenizer", "projector", "language model"
DETOKENIZER_LAYER = "blk.0.attn_norm.weight"


def open_vocoder(decoder: Path, tokenizer: Path | None, *, model: Path, width: int) -> Vocoder:
    """The vocoder of a model whose hidden states are ``width`` wide.

    ``decoder``: the vocoder file; ``tokenizer``: the file with the detokenizer's layers, looked for beside the vocoder
    when it is None and needed. Raises LeapModelLoadingError for files that are missing, damaged, swapped, of another
    model or of a generation that this version cannot speak with.
    """
    check_generation(decoder, tokenizer)
    role = _role(read_gguf_header(decoder))
    if role == DETOKENIZER and tokenizer is not None and _role_of_file(tokenizer) == VOCODER:
        raise LeapModelLoadingError(
            f"the files are swapped: {tokenizer.name} is the vocoder and {decoder.name} the audio tokenizer",
            hint="give the vocoder as the audio decoder",
        )
    if role != VOCODER:
        raise _unexpected(decoder, role, VOCODER)
    file = TensorFile(decoder)
    if not is_merged(file):
        tokenizer = tokenizer or _sibling(decoder)
        check_generation(decoder, tokenizer)
        if (role := _role(read_gguf_header(tokenizer))) != DETOKENIZER:
            raise _unexpected(tokenizer, role, DETOKENIZER)
    vocoder = Vocoder(decoder, tokenizer)
    if vocoder.depthformer.hidden != width:
        raise LeapModelLoadingError(
            f"{decoder.name} speaks for a model of width {vocoder.depthformer.hidden}, and {model.name} has {width}",
            hint="use the vocoder that belongs to the model",
        )
    return vocoder


def tokenizer_beside(decoder: Path) -> Path | None:
    """The file with the detokenizer's layers, if there is one: ``tokenizer-X.gguf`` beside ``vocoder-X.gguf``."""
    path = decoder.with_name(decoder.name.replace("vocoder", "tokenizer", 1))
    return path if path != decoder and path.is_file() else None


def _sibling(decoder: Path) -> Path:
    path = tokenizer_beside(decoder)
    if path is None:
        name = decoder.name.replace("vocoder", "tokenizer", 1)
        expected = name if name != decoder.name else "its audio tokenizer"
        raise LeapModelNotFoundError(
            f"{decoder} needs {expected}, the other half of its detokenizer, and it is not in {decoder.parent}",
            hint="download it, or name it with the audio_tokenizer_path option",
        )
    return path


def _role_of_file(path: Path) -> str | None:
    return _role(read_gguf_header(path)) if path.is_file() and path.suffix == ".gguf" else None


def _role(header: GGUFHeader) -> str | None:
    names = {tensor.name for tensor in header.tensors}
    if "depth_linear.weight" in names:
        return VOCODER
    if header.is_projector:
        return PROJECTOR
    if {"dense_2.weight", DETOKENIZER_LAYER} <= names:
        return DETOKENIZER
    return LANGUAGE_MODEL if "token_embd.weight" in names else None


def check_generation(decoder: Path, tokenizer: Path | None) -> None:
    """Refuse LFM2-Audio 1.0, whose sound is made by another codec (Mimi), and LFM3-Audio, with OtherGenerationError.

    Raises LeapModelLoadingError for a file that is missing or damaged.
    """
    for path in (decoder, tokenizer):
        if path is None:
            continue
        if not path.is_file():
            raise LeapModelNotFoundError(f"there is no file {path}", hint="download it, or name the file that there is")
        if _is_safetensors(path):
            raise _first_generation(path)
        header = read_gguf_header(path)
        if any("lfm3" in text.lower() for text in (path.name, header.architecture, header.name or "")):
            raise OtherGenerationError(
                f"{path.name} belongs to LFM3-Audio, whose speech codec this version cannot run",
                hint="use LFM2.5-Audio",
            )
    names = {tensor.name for tensor in read_gguf_header(decoder).tensors}
    if "depth_linear.weight" in names and "emb.emb.weight" not in names:
        raise _first_generation(decoder)


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as file:
        opening = file.read(9)
    return path.suffix == ".safetensors" or (opening[8:9] == b"{" and opening[:4] != b"GGUF")


def _first_generation(path: Path) -> OtherGenerationError:
    return OtherGenerationError(
        f"{path.name} belongs to LFM2-Audio 1.0, whose sound is made by the Mimi codec, which this version cannot run",
        hint="use LFM2.5-Audio",
    )


def _unexpected(path: Path, role: str | None, expected: str) -> LeapModelLoadingError:
    article = "an" if (role or "")[:1] in "aeiou" else "a"
    what = f"is {article} {role}" if role else "holds no tensors of one"
    return LeapModelLoadingError(
        f"{path} {what}, not the {expected} that was expected" if role else f"{path} is no {expected}: it {what}",
        hint="check which file is given for which part",
    )
