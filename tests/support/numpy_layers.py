"""Speech in numpy float32: the reference that the paths through llama.cpp are compared with. Slower, and exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leap_core.inference.speech.frames import Detokenizer, FrameMaker
from leap_core.inference.speech.speaker import Speaker
from leap_core.inference.speech.vocoder import ATTENTION_WINDOW, EPSILON, ROPE_BASE, Attention, Vocoder

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Rows = NDArray[float32]


class NumpySpeaker(Speaker):
    """A speaker whose layers and products are numpy's."""

    def __init__(self, vocoder: Vocoder) -> None:
        self._vocoder = vocoder
        self._frame_maker = FrameMaker(vocoder, NumpyDepthLayers(vocoder))

    def borrow_detokenizer(self) -> Detokenizer:
        return Detokenizer(self._vocoder, NumpyDetokenizerLayers(self._vocoder, ATTENTION_WINDOW))

    def close(self) -> None:
        pass


def rms_norm(rows: Rows, weight: Rows | float = 1.0) -> Rows:
    """Each row divided by its root mean square."""
    import numpy as np

    scale = 1.0 / np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True) + np.float32(EPSILON))
    normalised: Rows = (rows * scale * weight).astype(np.float32)
    return normalised


def _feed_forward(rows: Rows, gate_and_up: Rows, down: Rows) -> Rows:
    import numpy as np

    gate, up = np.split(rows @ gate_and_up.T, 2, axis=-1)
    with np.errstate(over="ignore"):
        return np.asarray((gate / (1.0 + np.exp(-gate)) * up) @ down.T, np.float32)


def _rope_tables(head: int, positions: Rows) -> tuple[Rows, Rows]:
    """Cosine and sine, shape [positions, 1, head / 2]."""
    import numpy as np

    frequencies = ROPE_BASE ** (-np.arange(0, head, 2) / head)
    angles = np.asarray(positions, np.float64)[:, None, None] * frequencies
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _attend(queries: Rows, keys: Rows, values: Rows, attention: Attention, mask: Rows | None = None) -> Rows:
    """Scaled dot products with grouped heads. Shapes: queries [n, heads, head], keys and values [m, kv_heads, head],
    mask [n, m] of what is added to the scores; returns [n, heads * head]."""
    import numpy as np

    group = attention.heads // attention.kv_heads
    grouped = queries.reshape(len(queries), attention.kv_heads, group, attention.head)
    scores = np.einsum("nkgd,mkd->kgnm", grouped, keys) / np.sqrt(np.float32(attention.head))
    if mask is not None:
        scores = scores + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = np.einsum("kgnm,mkd->nkgd", weights, values)
    return np.asarray(mixed.reshape(len(queries), -1), np.float32)


class NumpyDepthLayers:
    """The depthformer's layers; rotary pairs are neighbours (2i, 2i + 1)."""

    most_sequences = 64

    def __init__(self, vocoder: Vocoder) -> None:
        import numpy as np

        file, name = vocoder.file, vocoder.depthformer_name
        self._attention = vocoder.depthformer.attention
        self._layers = []
        for n in range(vocoder.depthformer.layers):
            w1, w3 = (file.float32(name(n, f"feed_forward.{part}")) for part in ("w1", "w3"))
            parts = ["operator_norm", "operator.qkv_proj", "operator.attention.q_layernorm"]
            parts += ["operator.attention.k_layernorm", "operator.out_proj", "ffn_norm", "feed_forward.w2"]
            weights = [file.float32(name(n, part)) for part in parts]
            self._layers.append((*weights, np.concatenate([w1, w3])))
        self.begin()

    def begin(self) -> None:
        self._memory: list[tuple[list[Rows], list[Rows]]] = [([], []) for _ in self._layers]

    def step(self, rows: Rows, position: int, threads: int = 1) -> Rows:
        for layer, memory in zip(self._layers, self._memory, strict=True):
            norm, qkv, q_norm, k_norm, out, ffn_norm, down, gate_and_up = layer
            rows = rows + self._mix(rms_norm(rows, norm) @ qkv.T, q_norm, k_norm, memory, position) @ out.T
            rows = rows + _feed_forward(rms_norm(rows, ffn_norm), gate_and_up, down)
        return rms_norm(rows)

    def _mix(self, qkv: Rows, q_norm: Rows, k_norm: Rows, memory: tuple[list[Rows], list[Rows]], position: int) -> Rows:
        import numpy as np

        shape = self._attention
        heads, n = shape.heads, len(qkv)
        split = qkv.reshape(n, heads + 2 * shape.kv_heads, shape.head)
        queries, keys, values = np.split(split, [heads, heads + shape.kv_heads], axis=1)
        cosine, sine = _rope_tables(shape.head, np.array([position], np.float32))
        memory[0].append(_rotate_neighbours(rms_norm(keys, k_norm), cosine, sine))
        memory[1].append(values)
        queries = _rotate_neighbours(rms_norm(queries, q_norm), cosine, sine)
        all_keys, all_values = np.stack(memory[0]), np.stack(memory[1])  # [positions, sequences, kv heads, head]
        mixed = [_attend(queries[i : i + 1], all_keys[:, i], all_values[:, i], shape) for i in range(n)]
        return np.concatenate(mixed)


class NumpyDetokenizerLayers:
    """The detokenizer's layers with a stream's memory: convolutions, and attention over the last ``window`` columns
    (rotary pairs are halves). ``run`` continues the stream."""

    def __init__(self, vocoder: Vocoder, window: int) -> None:
        import numpy as np

        file, name, shape = vocoder.layers_file, vocoder.detokenizer_name, vocoder.detokenizer
        self._shape, self._window = shape, window
        self._layers: list[dict[str, Rows]] = []
        for n, heads in enumerate(shape.attention):
            mixer = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
            parts = mixer if heads else ("shortconv.in_proj", "shortconv.conv", "shortconv.out_proj")
            layer = {part: file.float32(name(n, part)) for part in (*parts, "attn_norm", "ffn_norm", "ffn_down")}
            if not heads:
                layer["shortconv.conv"] = layer["shortconv.conv"].reshape(shape.width, shape.kernel)
            layer["gate_and_up"] = np.concatenate([file.float32(name(n, part)) for part in ("ffn_gate", "ffn_up")])
            self._layers.append(layer)
        self._norm = file.float32(vocoder.output_name("token_embd_norm.weight"))
        self._out = file.float32(vocoder.output_name("dense_2.weight"))
        self._bias = file.float32(vocoder.output_name("dense_2.bias"))
        self.clear()

    def clear(self) -> None:
        """Begin a new stream."""
        import numpy as np

        shape = self._shape
        self._position = 0
        self._memory: list[list[Rows]] = []
        for heads in shape.attention:
            if heads:
                self._memory.append([np.zeros((0, heads.kv_heads, heads.head), np.float32) for _ in range(2)])
            else:
                self._memory.append([np.zeros((shape.kernel - 1, shape.width), np.float32)])

    def run(self, rows: Rows, threads: int = 1) -> Rows:
        """The spectra of the next columns, shape [n, n_fft + 2], from their embeddings, shape [n, width]. numpy has
        threads of its own, or one."""
        import numpy as np

        for layer, heads, memory in zip(self._layers, self._shape.attention, self._memory, strict=True):
            normalised = rms_norm(rows, layer["attn_norm"])
            rows = rows + (
                self._attention(normalised, layer, heads, memory) if heads else self._conv(normalised, layer, memory)
            )
            rows = rows + _feed_forward(rms_norm(rows, layer["ffn_norm"]), layer["gate_and_up"], layer["ffn_down"])
        self._position += len(rows)
        return np.asarray(rms_norm(rows, self._norm) @ self._out.T + self._bias, np.float32)

    def _conv(self, rows: Rows, layer: dict[str, Rows], memory: list[Rows]) -> Rows:
        import numpy as np

        b, c, x = np.split(rows @ layer["shortconv.in_proj"].T, 3, axis=1)
        inputs = np.concatenate([memory[0], b * x])
        memory[0] = inputs[-(self._shape.kernel - 1) :]
        mixed = sum(inputs[k : k + len(rows)] * layer["shortconv.conv"][:, k] for k in range(self._shape.kernel))
        return np.asarray((c * mixed) @ layer["shortconv.out_proj"].T, np.float32)

    def _attention(self, rows: Rows, layer: dict[str, Rows], shape: Attention, memory: list[Rows]) -> Rows:
        import numpy as np

        n = len(rows)
        cosine, sine = _rope_tables(shape.head, np.arange(self._position, self._position + n, dtype=np.float32))
        queries = (rows @ layer["attn_q"].T).reshape(n, shape.heads, shape.head)
        keys = (rows @ layer["attn_k"].T).reshape(n, shape.kv_heads, shape.head)
        values = (rows @ layer["attn_v"].T).reshape(n, shape.kv_heads, shape.head)
        queries = _rotate_halves(rms_norm(queries, layer["attn_q_norm"]), cosine, sine)
        keys = np.concatenate([memory[0], _rotate_halves(rms_norm(keys, layer["attn_k_norm"]), cosine, sine)])
        values = np.concatenate([memory[1], values])
        distance = np.arange(len(keys) - n, len(keys))[:, None] - np.arange(len(keys))
        mask = np.where((distance >= 0) & (distance < self._window), 0.0, -np.inf).astype(np.float32)
        memory[0], memory[1] = keys[-(self._window - 1) :], values[-(self._window - 1) :]
        return np.asarray(_attend(queries, keys, values, shape, mask) @ layer["attn_output"].T, np.float32)


def _rotate_neighbours(rows: Rows, cosine: Rows, sine: Rows) -> Rows:
    import numpy as np

    even, odd = rows[..., 0::2], rows[..., 1::2]
    rotated = np.empty_like(rows)
    rotated[..., 0::2] = even * cosine - odd * sine
    rotated[..., 1::2] = even * sine + odd * cosine
    return rotated


def _rotate_halves(rows: Rows, cosine: Rows, sine: Rows) -> Rows:
    import numpy as np

    first, second = np.split(rows, 2, axis=-1)
    return np.concatenate([first * cosine - second * sine, first * sine + second * cosine], axis=-1)
