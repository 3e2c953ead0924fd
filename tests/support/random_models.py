"""GGUF models with random weights, in the shapes that tests and benchmarks need. Nothing is downloaded, and the same
seed gives the same file. Needs the ``gguf`` package (extra ``test``).
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.system.dataclass import dataclass
from leap_core.testing.miniature_speech import TEMPLATE, byte_alphabet

if TYPE_CHECKING:
    import numpy as np

CONTROL_TOKENS = (
    *("<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|reserved_3|>", "<|reserved_4|>", "<|reserved_5|>"),
    *("<|im_start|>", "<|im_end|>", "<|tool_list_start|>", "<|tool_list_end|>", "<|tool_call_start|>"),
    *("<|tool_call_end|>", "<|tool_response_start|>", "<|tool_response_end|>", "<think>", "</think>"),
    *("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
    *(f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 10 // row + 1)),
)
_SPACE = "\u0120"
CODES = (
    *(_SPACE + letter for letter in string.ascii_uppercase),
    *(first + second for first in string.ascii_uppercase for second in string.ascii_uppercase),
    *(f"{n:02}" for n in range(100)),
    *("ye", "yes"),
)
"""Words of a model for decisions, each longer one after its beginning."""
COLBERT_MARKERS = ("[Q] ", "[D] ")


@dataclass(frozen=True)
class Shape:
    """The size of a model. ``attention``: layers with attention; the others are LFM2's short convolutions. Without
    convolutions the model is written as a llama, whose memory can be cut anywhere. ``window``: what attention sees, in
    LFM2 in each of its layers, without convolutions in five of six, as in Gemma 3. No layer with attention: a Mamba,
    whose memory is a state alone."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    attention: frozenset[int]
    vocabulary: int
    context: int
    window: int = 0

    @property
    def architecture(self) -> str:
        if not self.attention:
            return "mamba"
        if len(self.attention) < self.layers:
            return "lfm2"
        return "gemma3" if self.window else "llama"


LFM2_350M = Shape(16, 1024, 16, 8, 4608, frozenset({2, 5, 8, 10, 12, 14}), 65_536, 32_768)
TINY_LFM2 = Shape(4, 64, 2, 1, 128, frozenset({1, 3}), 1024, 4096)
TINY_LLAMA = Shape(2, 64, 2, 1, 128, frozenset({0, 1}), 1024, 4096)
TINY_GEMMA = Shape(6, 64, 2, 1, 128, frozenset(range(6)), 1024, 4096, window=96)
TINY_WINDOWED_LFM2 = Shape(4, 64, 2, 1, 128, frozenset({1, 3}), 1024, 4096, window=96)
TINY_MAMBA = Shape(2, 64, 2, 1, 128, frozenset(), 1024, 4096)
MEMORY_KINDS = {
    "full": TINY_LLAMA,
    "window": TINY_GEMMA,
    "recurrent": TINY_MAMBA,
    "hybrid": TINY_LFM2,
    "window beside recurrent": TINY_WINDOWED_LFM2,
}
"""A model of each kind of memory that llama.cpp has."""
KERNEL = 3
STATE, RANK = 16, 32


@dataclass(frozen=True)
class EncoderShape:
    """What makes a model one for embeddings. ``pooling``: none, mean, cls or last. ``causal``: tokens see only those
    before them. ``projection``: width of a last matrix over the vectors, as ColBERT models have it. ``markers``: the
    vocabulary has ColBERT's tokens for queries and documents. ``prefixes``: of queries and documents, in the header."""

    pooling: str = "cls"
    causal: bool = False
    projection: int | None = None
    markers: bool = False
    prefixes: tuple[str, str] | None = None


DECISION_TEMPLATE = """<|startoftext|><|im_start|>user
{% for image in images %}{{ image }}{% endfor %}
{% if state is not none %}{{ state if state is string else state | tojson(indent=2) }}


QUESTION:
{% endif %}
{{ instructions if instructions is string else instructions | tojson }}

{% if type == 'choice' %}
Options:
{% for option in options %}
{{ option.label }} {{ option.description or option.key.replace('_', ' ') }}
{% endfor %}

The code only.
{%- elif type == 'noul' %}
{% if options[0].description or options[1].description %}
Yes: {{ options[0].description }}
No: {{ options[1].description }}

{% endif %}
Yes or no only.
{%- else %}
{% for option in options %}
{{ option.key }} {{ option.description }}
{% endfor %}

One digit only.
{%- endif %}<|im_end|>
<|im_start|>assistant
"""


@dataclass(frozen=True)
class Decisions:
    """What makes a model one for decisions, in the way of d1-3B: the kind, temperatures by type and number of options,
    and the template named systemone. Its vocabulary has a token for every code."""

    kind: str = "lfm2-d1"
    temperatures: Mapping[str, float] = field(default_factory=dict)
    template: str | None = DECISION_TEMPLATE


def write_random_model(
    path: Path,
    shape: Shape = TINY_LFM2,
    quantization: str = "f16",
    seed: int = 7,
    encoder: EncoderShape | None = None,
    decisions: Decisions | None = None,
) -> Path:
    """Write a model of this shape; ``quantization`` is f32, f16, q8_0 or q4_0 (row lengths multiples of 32)."""
    import gguf

    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name(f"random weights, {shape.layers} layers of {shape.width}, {quantization.upper()}")
    names = gguf.LlamaFileType
    writer.add_file_type(names.ALL_F32 if quantization == "f32" else names[f"MOSTLY_{quantization.upper()}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _write_hyperparameters(writer, shape)
    markers = COLBERT_MARKERS if encoder is not None and encoder.markers else ()
    _write_tokenizer(writer, shape, markers, CODES if decisions is not None else ())
    if decisions is not None:
        _write_decisions(writer, decisions)
    weights = _Weights(writer, shape, gguf.GGMLQuantizationType[quantization.upper()], seed)
    weights.write()
    if encoder is not None:
        _write_encoder(writer, encoder)
        if encoder.projection is not None:
            weights.projection(encoder.projection)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_hyperparameters(writer: Any, shape: Shape) -> None:
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(shape.vocabulary)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.architecture == "mamba":
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(2 * shape.width)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(RANK)
    elif shape.architecture != "lfm2":
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_rope_dimension_count(shape.width // shape.heads)
        if shape.architecture == "gemma3":
            writer.add_key_length(shape.width // shape.heads)
            writer.add_value_length(shape.width // shape.heads)
    else:
        writer.add_head_count_kv([shape.kv_heads if n in shape.attention else 0 for n in range(shape.layers)])
        writer.add_shortconv_l_cache(KERNEL)


def _write_encoder(writer: Any, encoder: EncoderShape) -> None:
    import gguf

    writer.add_pooling_type(gguf.PoolingType[encoder.pooling.upper()])
    writer.add_causal_attention(encoder.causal)
    if encoder.projection is not None:
        writer.add_uint32(f"{writer.arch}.embedding_length_out", encoder.projection)
    if encoder.prefixes is not None:
        writer.add_string("leap.embedding.query_prefix", encoder.prefixes[0])
        writer.add_string("leap.embedding.document_prefix", encoder.prefixes[1])


def _write_decisions(writer: Any, decisions: Decisions) -> None:
    writer.add_string(f"{writer.arch}.decision.type", decisions.kind)
    for name, value in decisions.temperatures.items():
        writer.add_float32(f"{writer.arch}.decision.temperature.{name}", value)
    if decisions.template is not None:
        writer.add_string("tokenizer.chat_template.systemone", decisions.template)


def _write_tokenizer(writer: Any, shape: Shape, markers: tuple[str, ...], words: tuple[str, ...] = ()) -> None:
    import gguf

    special = (*CONTROL_TOKENS, *markers)
    tokens, merges = _vocabulary(shape.vocabulary, special, words)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("lfm2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if n < len(special) else normal for n in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(7)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def _vocabulary(
    size: int, special: tuple[str, ...] = CONTROL_TOKENS, codes: tuple[str, ...] = ()
) -> tuple[list[str], list[str]]:
    """Tokens and merges: control tokens, bytes, these words, then others of two, three and four letters."""
    tokens = [*special, *byte_alphabet(), *codes]
    merges = [f"{code[:-1]} {code[-1]}" for code in codes]
    words = itertools.chain.from_iterable(itertools.product(string.ascii_lowercase, repeat=n) for n in (2, 3, 4))
    new = (word for word in map("".join, words) if word not in codes)
    for word in itertools.islice(new, size - len(tokens)):
        tokens.append(word)
        merges.append(f"{word[:-1]} {word[-1]}")
    return tokens, merges


class _Weights:
    """Adds every tensor of a shape. Matrices are random with a spread of about 1/sqrt(width), norms are ones."""

    def __init__(self, writer: Any, shape: Shape, kind: Any, seed: int) -> None:
        import numpy as np

        self._writer, self._shape, self._kind = writer, shape, kind
        self._rng = np.random.default_rng(seed)

    def write(self) -> None:
        shape = self._shape
        self._matrix("token_embd.weight", shape.vocabulary, shape.width)
        self._ones("token_embd_norm.weight" if shape.architecture == "lfm2" else "output_norm.weight", shape.width)
        for layer in range(shape.layers):
            self._layer(f"blk.{layer}.", layer in shape.attention)

    def projection(self, rows: int) -> None:
        """The last matrix of an encoder."""
        self._matrix("dense_2.weight", rows, self._shape.width)

    def _layer(self, prefix: str, attention: bool) -> None:
        shape = self._shape
        width, head = shape.width, shape.width // shape.heads
        self._ones(prefix + "attn_norm.weight", width)
        if shape.architecture == "mamba":
            self._state_space(prefix)
            return
        self._ones(prefix + "ffn_norm.weight", width)
        self._matrix(prefix + "ffn_gate.weight", shape.feed_forward, width)
        self._matrix(prefix + "ffn_up.weight", shape.feed_forward, width)
        self._matrix(prefix + "ffn_down.weight", width, shape.feed_forward)
        if not attention:
            self._matrix(prefix + "shortconv.in_proj.weight", 3 * width, width)
            self._matrix(prefix + "shortconv.out_proj.weight", width, width)
            conv = self._rng.normal(0, 0.5, (width, KERNEL)).astype("float32")
            self._writer.add_tensor(prefix + "shortconv.conv.weight", conv)
            return
        self._matrix(prefix + "attn_q.weight", width, width)
        self._matrix(prefix + "attn_k.weight", shape.kv_heads * head, width)
        self._matrix(prefix + "attn_v.weight", shape.kv_heads * head, width)
        self._matrix(prefix + "attn_output.weight", width, width)
        if shape.architecture != "llama":
            self._ones(prefix + "attn_q_norm.weight", head)
            self._ones(prefix + "attn_k_norm.weight", head)
        if shape.architecture == "gemma3":
            self._ones(prefix + "post_attention_norm.weight", width)
            self._ones(prefix + "post_ffw_norm.weight", width)

    def _state_space(self, prefix: str) -> None:
        import numpy as np

        width, inner = self._shape.width, 2 * self._shape.width
        self._matrix(prefix + "ssm_in.weight", 2 * inner, width)
        self._matrix(prefix + "ssm_x.weight", RANK + 2 * STATE, inner)
        self._matrix(prefix + "ssm_dt.weight", inner, RANK)
        self._matrix(prefix + "ssm_out.weight", width, inner)
        conv = self._rng.normal(0, 0.5, (inner, 4)).astype(np.float32)
        self._writer.add_tensor(prefix + "ssm_conv1d.weight", conv)
        self._writer.add_tensor(prefix + "ssm_conv1d.bias", np.zeros(inner, np.float32))
        self._ones(prefix + "ssm_dt.bias", inner)
        decay = -np.tile(np.arange(1, STATE + 1, dtype=np.float32), (inner, 1))
        self._writer.add_tensor(prefix + "ssm_a", decay)
        self._ones(prefix + "ssm_d", inner)

    def _ones(self, name: str, size: int) -> None:
        import numpy as np

        self._writer.add_tensor(name, np.ones(size, np.float32))

    def _matrix(self, name: str, rows: int, columns: int) -> None:
        import gguf
        import numpy as np

        kinds = gguf.GGMLQuantizationType
        if self._kind in (kinds.F16, kinds.F32):
            values = self._rng.normal(0, columns**-0.5, (rows, columns))
            self._writer.add_tensor(name, values.astype(np.float16 if self._kind == kinds.F16 else np.float32))
            return
        self._writer.add_tensor(name, self._random_blocks(rows, columns), raw_dtype=self._kind)

    def _random_blocks(self, rows: int, columns: int) -> np.ndarray[Any, Any]:
        """Quantized rows made directly in the block format: a 16-bit scale, then random bits."""
        import gguf
        import numpy as np

        block, size = gguf.GGML_QUANT_SIZES[self._kind]
        largest = {gguf.GGMLQuantizationType.Q4_0: 4.6, gguf.GGMLQuantizationType.Q8_0: 74.0}[self._kind]
        data = self._rng.integers(0, 256, (rows, columns // block, size), np.uint8)
        scale = np.float16(columns**-0.5 / largest)
        data[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
        return data.reshape(rows, -1)
