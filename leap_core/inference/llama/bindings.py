"""llama.cpp by ctypes: the functions that leap calls, and the structures that they take, for any build that has them.

llama.h, mtmd.h and ggml-backend.h are the source of the signatures. A function is looked up when it is first called;
one that a build lacks costs the feature that needs it. The structures of parameters change from build to build: their
layout is recognised by what the build itself writes as its defaults, in the table of LAYOUTS, and never guessed.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import LeapModelLoadingError

_Pointer, _Text, _Int, _Uint, _Float = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_float
_Bool, _Size, _Long = ctypes.c_bool, ctypes.c_size_t, ctypes.c_int64
_Floats, _Ints, _Bytes = (ctypes.POINTER(each) for each in (ctypes.c_float, ctypes.c_int32, ctypes.c_uint8))
LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
AbortCallback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)


class LlamaBatch(ctypes.Structure):
    """``llama_batch``."""

    _fields_ = [
        ("n_tokens", _Int),
        ("token", _Ints),
        ("embd", _Floats),
        ("pos", _Ints),
        ("n_seq_id", _Ints),
        ("seq_id", ctypes.POINTER(_Ints)),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class TensorOverride(ctypes.Structure):
    """``llama_model_tensor_override``."""

    _fields_ = [("pattern", _Text), ("type", ctypes.c_int)]


class TensorImportance(ctypes.Structure):
    """``llama_model_imatrix_data``."""

    _fields_ = [("name", _Text), ("data", _Floats), ("size", _Size)]


class InputPart(ctypes.Structure):
    """``mtmd_input_part``."""

    _fields_ = [("text", _Pointer), ("bitmap", _Pointer)]


class ChainParams(ctypes.Structure):
    """``llama_sampler_chain_params``."""

    _fields_ = [("no_perf", _Bool)]


class InitParams(ctypes.Structure):
    """``ggml_init_params``."""

    _fields_ = [("mem_size", _Size), ("mem_buffer", _Pointer), ("no_alloc", _Bool)]


Fields = tuple[tuple[str, Any], ...]
_CODES = {"i": _Int, "u": _Uint, "f": _Float, "b": _Bool, "p": _Pointer, "z": _Size, "a": AbortCallback}


def _fields(text: str) -> Fields:
    """Fields from ``CODE name name …; CODE …``."""
    groups = (group.split() for group in text.split(";"))
    return tuple((name, _CODES[code]) for code, *names in groups for name in names)


def _without(fields: Fields, *names: str) -> Fields:
    return tuple(each for each in fields if each[0] not in names)


_MODEL = _fields(
    "p devices tensor_buft_overrides; i n_gpu_layers split_mode load_mode lazy_mode main_gpu; p tensor_split "
    "progress_callback progress_callback_user_data kv_overrides; b vocab_only check_tensors use_extra_bufts no_host "
    "no_alloc load_mtp"
)
_MODEL_OF_2025 = _fields(
    "p devices tensor_buft_overrides; i n_gpu_layers split_mode main_gpu; p tensor_split progress_callback "
    "progress_callback_user_data kv_overrides; b vocab_only use_mmap use_direct_io use_mlock check_tensors "
    "use_extra_bufts no_host no_alloc"
)
_CONTEXT = _fields(
    "u n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq; i n_threads n_threads_batch "
    "ctx_type rope_scaling_type pooling_type attention_type flash_attn_type; f rope_freq_base rope_freq_scale "
    "yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow; u yarn_orig_ctx; f defrag_thold; p cb_eval "
    "cb_eval_user_data; i type_k type_v; z moe_cache_size; a abort_callback; p abort_callback_data; b embeddings "
    "offload_kqv no_perf op_offload swa_full kv_unified; p samplers; z n_samplers; p ctx_other"
)
_CONTEXT_OF_1_0 = tuple(
    field
    for each in _without(_CONTEXT, "defrag_thold")
    for field in ((each, ("moe_cache_cpu_share", _Float)) if each[0] == "moe_cache_size" else (each,))
)
_CONTEXT_OF_0_5 = _without(_CONTEXT, "moe_cache_size")
_CONTEXT_OF_B9500 = _without(_CONTEXT_OF_0_5, "n_outputs_max_per_seq")
_CONTEXT_OF_B8500 = _without(_CONTEXT_OF_B9500, "n_outputs_max", "ctx_other")
_CONTEXT_OF_B8000 = _without(_CONTEXT_OF_B8500, "n_rs_seq", "ctx_type")
_QUANTIZE = _fields(
    "i nthread ftype output_tensor_type token_embedding_type; b allow_requantize quantize_output_tensor only_copy pure "
    "keep_split dry_run; p imatrix kv_overrides tt_overrides prune_layers; z max_buf_size"
)
_MTMD = _fields(
    "b use_gpu; p device; b print_timings; i n_threads; p image_marker media_marker; i flash_attn_type; b warmup; "
    "i image_min_tokens image_max_tokens; p cb_eval cb_eval_user_data; i batch_max_tokens; p progress_callback "
    "progress_callback_user_data"
)
_MTMD_OF_B9700 = _without(_MTMD, "device")
_MTMD_OF_B9500 = _without(_MTMD_OF_B9700, "progress_callback", "progress_callback_user_data")
_MTMD_OF_B8000 = _without(_MTMD_OF_B9500, "batch_max_tokens")

LAYOUTS: Mapping[str, tuple[Fields, ...]] = {
    "llama_model_default_params": (_MODEL, _MODEL_OF_2025),
    "llama_context_default_params": (
        *(_CONTEXT_OF_1_0, _CONTEXT, _CONTEXT_OF_0_5, _CONTEXT_OF_B9500),
        *(_CONTEXT_OF_B8500, _CONTEXT_OF_B8000),
    ),
    "llama_model_quantize_default_params": (_QUANTIZE, _without(_QUANTIZE, "max_buf_size")),
    "mtmd_context_params_default": (_MTMD, _MTMD_OF_B9700, _MTMD_OF_B9500, _MTMD_OF_B8000),
}
"""By the function that writes its defaults: the layouts of a structure, the newest first."""
DEFAULTS: Mapping[str, Mapping[str, float | None]] = {
    "llama_model_default_params": {
        "devices": None,
        "tensor_buft_overrides": None,
        "split_mode": 1,
        "main_gpu": 0,
        "tensor_split": None,
        "progress_callback": None,
        "progress_callback_user_data": None,
        "kv_overrides": None,
        "vocab_only": False,
        "check_tensors": False,
        "use_extra_bufts": True,
        "no_alloc": False,
    },
    "llama_context_default_params": {
        "n_ctx": 512,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "n_rs_seq": 0,
        "n_threads": 4,
        "n_threads_batch": 4,
        "rope_scaling_type": -1,
        "pooling_type": -1,
        "attention_type": -1,
        "flash_attn_type": -1,
        "rope_freq_base": 0,
        "rope_freq_scale": 0,
        "yarn_ext_factor": -1,
        "yarn_orig_ctx": 0,
        "cb_eval": None,
        "cb_eval_user_data": None,
        "type_k": 1,
        "type_v": 1,
        "abort_callback": None,
        "abort_callback_data": None,
        "embeddings": False,
        "samplers": None,
        "n_samplers": 0,
        "ctx_other": None,
    },
    "llama_model_quantize_default_params": {
        "nthread": 0,
        "quantize_output_tensor": True,
        "only_copy": False,
        "pure": False,
        "keep_split": False,
        "dry_run": False,
        "imatrix": None,
        "kv_overrides": None,
        "tt_overrides": None,
        "prune_layers": None,
    },
    "mtmd_context_params_default": {
        "use_gpu": True,
        "device": None,
        "print_timings": True,
        "n_threads": 4,
        "image_min_tokens": -1,
        "image_max_tokens": -1,
        "cb_eval": None,
        "cb_eval_user_data": None,
        "progress_callback": None,
        "progress_callback_user_data": None,
    },
}
"""What a build writes into the fields, of those in which all builds agree; None for a null pointer."""
BUFFER = 1024
FILLS = (0xA5, 0x5A)
FILLS_REACH_THE_BUFFER = platform.machine().lower() in ("x86_64", "amd64")
"""There a large structure is returned through a pointer that is the first argument. ARM has a register of its own for
it, so a build's size cannot be seen, and its defaults alone decide."""


class UnknownLayoutError(LeapModelLoadingError):
    """A build of llama.cpp whose structures leap does not know."""


class _Raw(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint8 * BUFFER)]


def layout_of(function: Any, name: str) -> type[ctypes.Structure]:
    """The structure that ``function``, llama.cpp's ``name``, returns. Raises UnknownLayoutError."""
    if FILLS_REACH_THE_BUFFER:
        writes = [_written(function, fill) for fill in FILLS]
        same = [first == second for first, second in zip(*writes, strict=True)]
        size = max((n + 1 for n in range(BUFFER) if same[n]), default=0)
    else:
        function.restype, function.argtypes = _Raw, []
        writes, same, size = [bytes(function().data)], [True] * BUFFER, None
    for fields in LAYOUTS[name]:
        kind = type(name, (ctypes.Structure,), {"_fields_": list(fields)})
        if _fits(kind, writes[0], same, size, DEFAULTS[name]):
            return kind
    shown = "" if size is None else f" ({size} bytes: {writes[0][:32].hex()}…)"
    raise UnknownLayoutError(
        f"this llama.cpp has a structure of {name.replace('_default', '')} that leap does not know{shown}",
        hint="a newer leap may know it; `leap engine use default` takes the engine that came with leap",
    )


def _written(function: Any, fill: int) -> bytes:
    buffer = (ctypes.c_uint8 * BUFFER)(*[fill] * BUFFER)
    function.restype, function.argtypes = None, [ctypes.c_void_p]
    function(buffer)
    return bytes(buffer)


def _fits(
    kind: type[ctypes.Structure], data: bytes, same: Sequence[bool], size: int | None, defaults: Mapping[str, Any]
) -> bool:
    """Whether all fields were written, nothing beyond them, and what is known of their values."""
    last = kind._fields_[-1][0]
    end = getattr(kind, last).offset + getattr(kind, last).size
    if size is not None and not end <= size <= ctypes.sizeof(kind):
        return False
    values = kind.from_buffer_copy(data[: ctypes.sizeof(kind)])
    for name, code in kind._fields_:  # type: ignore[misc]
        field = getattr(kind, name)
        if not all(same[field.offset : field.offset + field.size]):
            return False
        if code is _Bool and data[field.offset] > 1:
            return False
        value = getattr(values, name)
        if name in defaults and (bool(value) if defaults[name] is None else value != defaults[name]):
            return False
    return True


_P, _I, _B, _Z = _Pointer, _Int, _Bool, _Size
_SEQUENCE_STATE = (_Z, _P, _Bytes, _Z, _I, _Uint)
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "llama_backend_init": (None,),
    "llama_log_set": (None, LogCallback, _P),
    "llama_version": (_Text,),
    "llama_print_system_info": (_Text,),
    "llama_supports_gpu_offload": (_B,),
    "llama_model_free": (None, _P),
    "llama_model_get_vocab": (_P, _P),
    "llama_model_meta_val_str": (_I, _P, _Text, _Text, _Z),
    "llama_model_chat_template": (_Text, _P, _Text),
    "llama_model_size": (_Z, _P),
    **{f"llama_model_{name}": (_I, _P) for name in ("n_ctx_train", "n_embd", "n_embd_out", "n_swa")},
    **{f"llama_model_{name}": (_B, _P) for name in ("is_hybrid", "is_recurrent", "has_decoder")},
    **{f"llama_vocab_{name}": (_I, _P) for name in ("type", "n_tokens", "bos", "eos", "eot")},
    **{f"llama_vocab_{name}": (_I, _P) for name in ("fim_pre", "fim_suf", "fim_mid")},
    **{f"llama_vocab_{name}": (_B, _P, _I) for name in ("is_eog", "is_control")},
    "llama_vocab_get_add_bos": (_B, _P),
    "llama_vocab_get_attr": (_I, _P, _I),
    "llama_vocab_get_text": (_Text, _P, _I),
    "llama_tokenize": (_I, _P, _Text, _I, _Ints, _I, _B, _B),
    "llama_token_to_piece": (_I, _P, _I, _Text, _I, _I, _B),
    "llama_free": (None, _P),
    "llama_n_ctx": (_Uint, _P),
    "llama_get_memory": (_P, _P),
    "llama_set_n_threads": (None, _P, _I, _I),
    "llama_set_embeddings": (None, _P, _B),
    "llama_batch_init": (LlamaBatch, _I, _I, _I),
    "llama_batch_free": (None, LlamaBatch),
    "llama_decode": (_I, _P, LlamaBatch),
    "llama_get_logits_ith": (_P, _P, _I),
    "llama_set_sampler": (_B, _P, _I, _P),
    "llama_sampler_chain_init": (_P, ChainParams),
    "llama_sampler_chain_add": (None, _P, _P),
    "llama_sampler_init_top_k": (_P, _I),
    "llama_sampler_free": (None, _P),
    **{f"llama_get_sampled_{name}_ith": (_P, _P, _I) for name in ("candidates", "logits")},
    **{f"llama_get_sampled_{name}_count_ith": (_Uint, _P, _I) for name in ("candidates", "logits")},
    "llama_get_embeddings": (_Floats, _P),
    "llama_get_embeddings_ith": (_Floats, _P, _I),
    "llama_get_embeddings_seq": (_Floats, _P, _I),
    "llama_memory_clear": (None, _P, _B),
    "llama_memory_seq_rm": (_B, _P, _I, _I, _I),
    "llama_memory_seq_cp": (None, _P, _I, _I, _I, _I),
    "llama_memory_seq_pos_min": (_I, _P, _I),
    "llama_state_seq_get_size_ext": (_Z, _P, _I, _Uint),
    "llama_state_seq_get_data_ext": _SEQUENCE_STATE,
    "llama_state_seq_set_data_ext": _SEQUENCE_STATE,
    "llama_adapter_lora_init": (_P, _P, _Text),
    "llama_set_adapters_lora": (_I, _P, ctypes.POINTER(_P), _Z, _Floats),
    "llama_model_quantize": (_Uint, _Text, _Text, _P),
    "mtmd_log_set": (None, LogCallback, _P),
    "mtmd_helper_log_set": (None, LogCallback, _P),
    "mtmd_free": (None, _P),
    "mtmd_bitmap_init": (_P, _Uint, _Uint, _Bytes),
    "mtmd_bitmap_init_from_audio": (_P, _Z, _Floats),
    "mtmd_bitmap_free": (None, _P),
    "mtmd_decode_use_mrope": (_B, _P),
    "mtmd_decode_use_non_causal": (_B, _P, _P),
    "mtmd_encode_chunk": (_I, _P, _P),
    "mtmd_get_output_embd": (_Floats, _P),
    "mtmd_tokenize_from_parts": (_I, _P, _P, ctypes.POINTER(ctypes.POINTER(InputPart)), _Z, _B),
    "mtmd_input_chunk_get_type": (_I, _P),
    "mtmd_input_chunk_get_n_tokens": (_Z, _P),
    "mtmd_input_chunks_init": (_P,),
    "mtmd_input_chunks_size": (_Z, _P),
    "mtmd_input_chunks_get": (_P, _P, _Z),
    "mtmd_input_chunks_free": (None, _P),
    "ggml_backend_load_all_from_path": (None, _Text),
    "ggml_backend_cpu_reg": (_P,),
    "ggml_backend_reg_count": (_Z,),
    "ggml_backend_reg_get": (_P, _Z),
    "ggml_backend_reg_name": (_Text, _P),
    "ggml_backend_reg_get_proc_address": (_P, _P, _Text),
    "ggml_backend_reg_dev_get": (_P, _P, _Z),
    "ggml_backend_dev_count": (_Z,),
    "ggml_backend_dev_get": (_P, _Z),
    "ggml_backend_dev_name": (_Text, _P),
    "ggml_backend_dev_description": (_Text, _P),
    "ggml_backend_dev_type": (_I, _P),
    "ggml_backend_dev_by_type": (_P, _I),
    "ggml_backend_dev_buffer_type": (_P, _P),
    "ggml_backend_dev_memory": (None, _P, ctypes.POINTER(_Z), ctypes.POINTER(_Z)),
    "ggml_init": (_P, InitParams),
    "ggml_free": (None, _P),
    "ggml_tensor_overhead": (_Z,),
    "ggml_graph_overhead_custom": (_Z, _Z, _B),
    "ggml_new_tensor_2d": (_P, _P, ctypes.c_int, _Long, _Long),
    "ggml_row_size": (_Z, ctypes.c_int, _Long),
    "ggml_get_data": (_P, _P),
    "ggml_mul_mat": (_P, _P, _P, _P),
    "ggml_new_graph_custom": (_P, _P, _Z, _B),
    "ggml_build_forward_expand": (None, _P, _P),
    "ggml_backend_cpu_init": (_P,),
    "ggml_backend_cpu_set_n_threads": (None, _P, ctypes.c_int),
    "ggml_backend_graph_compute": (ctypes.c_int, _P, _P),
    "ggml_backend_free": (None, _P),
}
"""Results and arguments. Those that take a structure of parameters are in TAKING."""
TAKING = {
    "llama_model_load_from_file": (_P, _Text, "llama_model_default_params"),
    "llama_init_from_model": (_P, _P, "llama_context_default_params"),
    "mtmd_init_from_file": (_P, _Text, _P, "mtmd_context_params_default"),
}
FEATURES = {
    "mtmd_": "pictures and sounds",
    "llama_adapter_": "LoRA adapters",
    "llama_set_adapters": "LoRA adapters",
    "llama_model_quantize": "quantization",
    "llama_state_seq_": "cached prompts",
}
"""What needs functions that begin so."""


class Bindings:
    """The libraries of one build by their paths: ``llama``, and where the build has it ``mtmd``. Attributes are
    llama.cpp's functions; one that the build lacks raises LeapModelLoadingError that names what needs it."""

    LlamaBatch, InputPart, TensorOverride, TensorImportance = LlamaBatch, InputPart, TensorOverride, TensorImportance
    LLAMA_LOAD_MODE_NONE, LLAMA_LOAD_MODE_MMAP = 0, 1
    LLAMA_VOCAB_TYPE_NONE = LLAMA_POOLING_TYPE_NONE = 0
    LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY = 1
    LLAMA_TOKEN_ATTR_UNKNOWN, LLAMA_TOKEN_ATTR_CONTROL, LLAMA_TOKEN_ATTR_USER_DEFINED = 1, 8, 16

    def __init__(self, libraries: Mapping[str, Path], label: str) -> None:
        self._label = label
        self._paths = libraries
        self._handles = {"llama": _opened(libraries["llama"])}
        for name in ("llama_model_default_params", "llama_context_default_params"):
            self.structure(name)

    @cached_property
    def has_projectors(self) -> bool:
        """Whether images and audio can be read."""
        return "mtmd" in self._paths and self.has("mtmd_tokenize_from_parts")

    def has(self, name: str) -> bool:
        """Whether the build has a function."""
        return any(_exports(handle, name) for handle in self._of(name))

    def structure(self, name: str) -> type[ctypes.Structure]:
        """The structure whose defaults the function ``name`` writes. Raises UnknownLayoutError."""
        kind: type[ctypes.Structure] | None = self.__dict__.get(f"_{name}")
        if kind is None:
            kind = self.__dict__[f"_{name}"] = layout_of(self._found(name), name)
        return kind

    def __getattr__(self, name: str) -> Any:
        if name in FUNCTIONS:
            result, *arguments = FUNCTIONS[name]
        elif name in TAKING:
            result, *kinds = TAKING[name]
            arguments = [self.structure(kind) if isinstance(kind, str) else kind for kind in kinds]
        elif name in LAYOUTS:
            result, arguments = self.structure(name), []
        else:
            raise AttributeError(name)
        function = self._found(name)
        function.restype, function.argtypes = result, arguments
        self.__dict__[name] = function
        return function

    def _found(self, name: str) -> Any:
        for handle in self._of(name):
            if _exports(handle, name):
                return handle[name]  # a new object, whose types are its own
        feature = next((what for start, what in FEATURES.items() if name.startswith(start)), "leap")
        raise LeapModelLoadingError(
            f"the engine {self._label} lacks {name}, which {feature} need{'' if feature.endswith('s') else 's'}",
            hint="leap engine list names the others that are here",
        )

    def _of(self, name: str) -> Iterator[ctypes.CDLL]:
        """The libraries that may have a function. Where the system looks into what a library needs, the first does."""
        for library in ("mtmd",) if name.startswith("mtmd_") else ("llama", "ggml", "ggml-base"):
            if library in self._paths:
                if library not in self._handles:
                    self._handles[library] = _opened(self._paths[library])
                yield self._handles[library]


def _exports(handle: ctypes.CDLL, name: str) -> bool:
    return getattr(handle, name, None) is not None


def _opened(path: Path) -> ctypes.CDLL:
    """Raises LeapModelLoadingError for what is no library of this system."""
    try:
        if sys.platform == "win32":
            import os

            os.add_dll_directory(str(path.parent))
            return ctypes.CDLL(str(path), winmode=0)
        return ctypes.CDLL(str(path))
    except OSError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise LeapModelLoadingError(
            f"cannot load the library {path}: {reason}",
            hint="it may be for another system or processor, or a file of it is missing",
        ) from None
