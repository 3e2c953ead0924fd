"""One model file in memory: its vocabulary, tokenizer and metadata; and LoRA adapters for it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...conversation.generator import OnGpu
from ...errors import LeapGenerationError, LeapModelLoadingError, LeapOptionsError
from ...system.files import digest_file, digest_samples
from ..gguf.header import POOLINGS
from .devices import SPAWN, Placement
from .library import forget_errors, has_gpu_support, last_errors, library, set_log

LFM2_INFILL = ("<|fim_pre|>", "<|fim_suf|>", "<|fim_mid|>")
"""LFM2's own spelling, which llama.cpp does not know."""
METADATA_BYTES = 4096
NO_GPU = Placement()


class LlamaModel:
    """A GGUF loaded by llama.cpp. Check the file with ``gguf.header.read_gguf_header`` first: llama.cpp may abort the
    process on a damaged one.

    ``placement``: which parts go to which GPU, by default none. ``use_mmap``: map the file instead of reading it.
    """

    def __init__(self, path: Path, *, placement: Placement = NO_GPU, use_mmap: bool = True) -> None:
        self._lib = library()
        self._guard = threading.Lock()
        self.path = path
        self.placement = placement
        self._process = os.getpid()
        self.n_gpu_layers = placement.n_gpu_layers
        params = self._lib.llama_model_default_params()
        self.on_gpu = self.n_gpu_layers != 0 and has_gpu_support()
        """Whether layers are computed on a GPU."""
        kept = placement.fill(params)
        if hasattr(params, "load_mode"):
            params.load_mode = self._lib.LLAMA_LOAD_MODE_MMAP if use_mmap else self._lib.LLAMA_LOAD_MODE_NONE
        else:
            params.use_mmap = use_mmap
        set_log()
        forget_errors()
        self.pointer: Any = self._lib.llama_model_load_from_file(os.fsencode(path), params)
        del kept
        if not self.pointer:
            raise LeapModelLoadingError(f"llama.cpp cannot load {path}: {last_errors() or 'no reason given'}")
        self.llama_vocab: Any = self._lib.llama_model_get_vocab(self.pointer)
        if self._lib.llama_vocab_type(self.llama_vocab) == self._lib.LLAMA_VOCAB_TYPE_NONE:
            self.close()
            raise LeapModelLoadingError(f"{path} has no vocabulary, so it can neither read nor write text")
        self.n_tokens: int = self._lib.llama_vocab_n_tokens(self.llama_vocab)
        self.trained_context: int = self._lib.llama_model_n_ctx_train(self.pointer)
        self.width: int = self._lib.llama_model_n_embd(self.pointer)
        self._pieces: dict[int, bytes] = {}

    @property
    def share_on_gpu(self) -> OnGpu:
        """What of it is on GPUs."""
        return OnGpu(self.n_gpu_layers, sum(self.placement.needs)) if self.on_gpu else OnGpu()

    def close(self) -> None:
        """Free the memory; the object is of no use afterwards."""
        with self._guard:
            pointer, self.pointer = self.pointer, None
            if pointer and not self.is_foreign:
                self._lib.llama_model_free(pointer)

    @property
    def is_foreign(self) -> bool:
        """Whether it is on a GPU, and this process was forked from the one that loaded it: then the GPU's driver ends
        the process at each use, also when memory is freed."""
        return self.on_gpu and os.getpid() != self._process

    def check_process(self) -> None:
        """Raises LeapGenerationError for a model that is foreign."""
        if self.is_foreign:
            raise LeapGenerationError(
                "the model is on a GPU, and was loaded before this process was forked", hint=SPAWN
            )

    @cached_property
    def is_hybrid(self) -> bool:
        """Whether the memory has a state that cannot be cut at any position (LFM2's convolutions)."""
        return bool(self._lib.llama_model_is_hybrid(self.pointer) or self._lib.llama_model_is_recurrent(self.pointer))

    def metadata(self, key: str) -> str | None:
        """A value of the file's header as llama.cpp spells it; None where it has none. ``key`` may begin with
        ``ARCH.``, which means the model's architecture."""
        if key.startswith("ARCH."):
            key = f"{self.metadata('general.architecture')}{key[4:]}"
        buffer = ctypes.create_string_buffer(METADATA_BYTES)
        size = self._lib.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        return None if size < 0 else buffer.value.decode("utf-8", "replace")

    @cached_property
    def pooling(self) -> str | None:
        """How the file says that vectors of tokens become one of the text: none, mean, cls, last or rank; None for a
        model that was not made for embeddings."""
        number = self.metadata("ARCH.pooling_type")
        if number is not None and number.isdigit() and int(number) < len(POOLINGS):
            pooling = POOLINGS[int(number)]
            if pooling != "none" or not self.is_causal:
                return pooling
        return None if self.is_causal else "none"

    @cached_property
    def is_causal(self) -> bool:
        """Whether a token sees only those before it. Encoders see the whole text."""
        has_decoder = bool(self._lib.llama_model_has_decoder(self.pointer))
        return has_decoder and self.metadata("ARCH.attention.causal") != "false"

    @cached_property
    def can_generate(self) -> bool:
        """False for encoders and for models made for embeddings."""
        return self.is_causal and self.pooling is None

    @cached_property
    def output_width(self) -> int:
        """Numbers of an embedding."""
        return int(self._lib.llama_model_n_embd_out(self.pointer))

    @cached_property
    def chat_template(self) -> str | None:
        """The model's own Jinja template, or None when it has none."""
        return self.template_named(None)

    def template_named(self, name: str | None) -> str | None:
        """One of the file's further templates by its name, or its chat template for None; None where it has none."""
        text = self._lib.llama_model_chat_template(self.pointer, None if name is None else name.encode())
        return None if text is None else bytes(text).decode("utf-8", "replace")

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the model's tensors."""
        return int(self._lib.llama_model_size(self.pointer))

    @cached_property
    def eog_tokens(self) -> frozenset[int]:
        """Tokens that end a generation."""
        lib, vocab = self._lib, self.llama_vocab
        named = {int(lib.llama_vocab_eos(vocab)), int(lib.llama_vocab_eot(vocab))}
        candidates = {token for token in named if token >= 0} | set(self.special_tokens.values())
        return frozenset(token for token in candidates if lib.llama_vocab_is_eog(vocab, token))

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """Control and user-defined tokens by their text: what must not be read out of a user's words."""
        lib, vocab = self._lib, self.llama_vocab
        control = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        tokens = {}
        for token in range(self.n_tokens):
            if lib.llama_vocab_get_attr(vocab, token) & control:
                tokens[bytes(lib.llama_vocab_get_text(vocab, token)).decode("utf-8", "replace")] = token
        return tokens

    @property
    def tokenize_address(self) -> int:
        """The address of ``llama_tokenize``."""
        return int(ctypes.cast(self._lib.llama_tokenize, ctypes.c_void_p).value or 0)

    @property
    def eos_token(self) -> int:
        """The token that closes a text, -1 for none."""
        return int(self._lib.llama_vocab_eos(self.llama_vocab))

    @cached_property
    def control_tokens(self) -> frozenset[int]:
        """Tokens that are not text: turn markers and the like."""
        is_control = self._lib.llama_vocab_is_control
        return frozenset(token for token in self.special_tokens.values() if is_control(self.llama_vocab, token))

    @cached_property
    def infill_markers(self) -> tuple[str, str, str] | None:
        """The tokens before a text, before what follows the gap, and before what fills it; None for a model that was
        not trained to fill in."""
        lib, vocab = self._lib, self.llama_vocab
        ids = [int(ask(vocab)) for ask in (lib.llama_vocab_fim_pre, lib.llama_vocab_fim_suf, lib.llama_vocab_fim_mid)]
        if min(ids) >= 0:
            before, after, middle = map(self.token_text, ids)
            return before, after, middle
        return LFM2_INFILL if self.special_tokens.keys() >= set(LFM2_INFILL) else None

    @cached_property
    def bos_token(self) -> int | None:
        """The token that opens a sequence, when the model wants one."""
        token = int(self._lib.llama_vocab_bos(self.llama_vocab))
        return token if token >= 0 and self._lib.llama_vocab_get_add_bos(self.llama_vocab) else None

    def token_text(self, token: int) -> str:
        """The vocabulary's own spelling of a token, empty for none."""
        return (
            "" if token < 0 else bytes(self._lib.llama_vocab_get_text(self.llama_vocab, token)).decode(errors="replace")
        )

    @cached_property
    def bos_text(self) -> str:
        """Spelling of the opening token, for chat templates."""
        return self.token_text(int(self._lib.llama_vocab_bos(self.llama_vocab)))

    @cached_property
    def eos_text(self) -> str:
        """Spelling of the closing token, for chat templates."""
        return self.token_text(int(self._lib.llama_vocab_eos(self.llama_vocab)))

    def tokenize(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        """Token ids of a text. With ``parse_special``, spelled-out special tokens become tokens; without, they are text
        like any other. ``add_special`` opens and closes the text as the model's vocabulary says."""
        raw = text.encode("utf-8", "surrogatepass")
        room = len(raw) + 8
        buffer = (ctypes.c_int32 * room)()
        count = self._lib.llama_tokenize(self.llama_vocab, raw, len(raw), buffer, room, add_special, parse_special)
        if count < 0:
            buffer = (ctypes.c_int32 * -count)()
            count = self._lib.llama_tokenize(
                self.llama_vocab, raw, len(raw), buffer, -count, add_special, parse_special
            )
        return buffer[:count]

    def piece(self, token: int) -> bytes:
        """The bytes of a token, spelled out also when it is special; a part of a character is possible."""
        text = self._pieces.get(token)
        if text is None:
            with self._guard:  # an answer is still read while its model is unloaded
                if self.pointer is None:
                    raise LeapGenerationError("the model is unloaded")
                text = self._pieces[token] = self._read_piece(token)
        return text

    def _read_piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        size = self._lib.llama_token_to_piece(self.llama_vocab, token, buffer, len(buffer), 0, True)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = self._lib.llama_token_to_piece(self.llama_vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[:size]

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raises LeapOptionsError for a number that is no token."""
        wrong = next((token for token in tokens if not 0 <= token < self.n_tokens), None)
        if wrong is not None:
            raise LeapOptionsError("tokens", f"{wrong} is no token of {self.path.stem}")

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones spelled out."""
        return b"".join(map(self.piece, tokens)).decode("utf-8", "replace")

    @cached_property
    def fingerprint(self) -> bytes:
        """Distinguishes model files by content, see ``file_fingerprint``."""
        return file_fingerprint(self.path)


def file_fingerprint(path: Path) -> bytes:
    """Distinguishes large files by content: size and samples spread over the file (16 bytes)."""
    digest = blake2b(digest_size=16)
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        digest_samples(digest, file, size)
    return digest.digest()


class LlamaAdapter:
    """A GGUF adapter loaded for ``model``, with which it is freed. Check the file with ``gguf.checks.check_adapter``
    first. ``id`` (16 bytes) names its content. Raises LeapModelLoadingError."""

    def __init__(self, path: Path, model: LlamaModel) -> None:
        model.check_process()
        self.path = path
        self.id = content_id(path)
        forget_errors()
        self.pointer: Any = library().llama_adapter_lora_init(model.pointer, os.fsencode(path))
        if not self.pointer:
            raise LeapModelLoadingError(
                f"llama.cpp cannot use the adapter {path} with {model.path.name}: {last_errors() or 'no reason given'}",
                hint="an adapter belongs to the model it was trained on",
            )


Adapters = Sequence[tuple[LlamaAdapter, float]]
"""Adapters with their scales."""


def switch_adapters(context: Any, adapters: Adapters) -> None:
    """Compute with these adapters and scales in a llama.cpp context from now on; none clears them. Raises
    LeapGenerationError."""
    lib, count = library(), len(adapters)
    pointers = (ctypes.c_void_p * count)(*(adapter.pointer for adapter, _ in adapters))
    scales = (ctypes.c_float * count)(*(scale for _, scale in adapters))
    if lib.llama_set_adapters_lora(context, pointers, count, scales) != 0:
        raise LeapGenerationError(f"llama.cpp cannot set the adapters: {last_errors() or 'no reason given'}")


def content_id(path: Path) -> bytes:
    """Names the content of a file (16 bytes). Raises OSError."""
    return bytes(digest_file(blake2b(digest_size=16), path).digest())
