"""A speech model made by hand, not trained: it hums the tone that the prompt names, so that the whole way from a prompt
to a WAV file can be played and measured without a download.

write_miniature_speech_model(directory)      # a model and its vocoder, 11 MB, in a fraction of a second
    python -m leap_core.testing.miniature_speech DIRECTORY      # the same from a shell; prints the model's path

A prompt with the word ``low``, ``mid`` or ``high`` is answered with 450, 600 or 900 Hz of amplitude 0.3, lasting 5, 8
or 12 frames of 80 ms; ``drone`` with 300 Hz that do not end. Of several words the last one counts, if it is a sentence
away from the others. When the prompt has the word ``interleaved``, text and tone alternate as in LFM2.5-Audio's
conversations: six tokens of text, twelve frames, two tokens, four frames. Any other prompt is answered in text alone.

How: each number of the hidden state means one thing: a token that was read, a frame that was heard, the tone that was
asked for. One layer of attention looks for the latest tone word; tables say what follows what. Codes 1 to 7 of a frame
follow from the code before them, so that the depthformer's inner feedback is on the way too.
Needs the ``gguf`` package.

Its layers do nothing (their output projections are zero), so that each frame is a look-up: the first code from what the
hidden state says, each further code from the one before it, and the pitch from the mean of the eight.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Table: TypeAlias = NDArray[np.float32]

ARCHITECTURE = "this model cannot be used as LLM, use it via --model-vocoder in TTS examples"
TEMPLATE = (
    "{{- bos_token -}}{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' + message.content +"
    " '<|im_end|>\\n' -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
WIDTH = 128
TONES = {"low": 450, "mid": 600, "high": 900, "drone": 300}
"""Word -> Hz. A tone keeps its phase from column to column only at multiples of 75 Hz."""
FRAMES = {"low": 5, "mid": 8, "high": 12}
"""Word -> frames of 80 ms in an answer of sound alone. The drone does not end."""
INTERLEAVED_FRAMES = 16
INTERLEAVED_TEXT = ("Here", " comes", " what", " you", " like", " best:", " your", " tone.")
PLAIN_TEXT = ("Give", " me", " the", " name", " of", " a", " tone", " and", " I", " shall", " hum", " it.")


def _places() -> list[str]:
    names = ["always", "tone word", "interleaved word", "interleaved", "answer begins", "end of sound"]
    names += [f"asked {word}" for word in TONES]
    names += [f"read {token}" for token in ("<|audio_start|>", "<|text_end|>", *INTERLEAVED_TEXT, *PLAIN_TEXT)]
    names += [f"heard {word} {n}" for word in TONES for n in range(FRAMES.get(word, 1))]
    return names + [f"heard interleaved {n}" for n in range(INTERLEAVED_FRAMES)]


PLACES = {name: index for index, name in enumerate(_places())}
"""Meaning -> index in the hidden state."""


CODES, CODEBOOKS, N_FFT = 2049, 8, 1280
END_CODE = CODES - 1
STRIDE = 5
"""Codebook j has the first codebook's code plus this many times j."""
DEPTH_WIDTH, DEPTH_HEAD, SOUND_WIDTH, VOCODER_FEED_FORWARD = 64, 32, 64, 32
LAYERS = ("conv", "attention", "conv")
AMPLITUDE = 0.3
SILENCE, LOUDNESS = -15.0, 8.0
"""The log-magnitude of what is not heard, and the size of a tone's number in the detokenizer."""


def write_miniature_vocoder(path: Path) -> None:
    """Write the vocoder in the merged layout."""
    import gguf

    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_uint32("depthformer_n_layer", 1)
    writer.add_uint32("depthformer_n_embd", DEPTH_WIDTH)
    tables = _depthformer() | _sounds()
    for name, table in tables.items():
        is_exact = table.ndim == 1 or table.shape[1] == 3 or name == "lin.weight"
        writer.add_tensor(name, table if is_exact else table.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _steps() -> list[tuple[str, str, str]]:
    """(tone, what the hidden state says before the frame, what it says after): the frames, in the order of codes."""
    steps = []
    for word in TONES:
        for n in range(FRAMES.get(word, 1)):
            steps.append((word, f"heard {word} {n - 1}" if n else "read <|audio_start|>", f"heard {word} {n}"))
        if word not in FRAMES:
            steps.append((word, f"heard {word} 0", f"heard {word} 0"))
    for word in TONES:
        for n in range(INTERLEAVED_FRAMES):
            before = {0: f"read {INTERLEAVED_TEXT[5]}", 12: "read <|text_end|>"}.get(n, f"heard interleaved {n - 1}")
            steps.append((word, before, f"heard interleaved {n}"))
    return steps


def _depthformer() -> dict[str, Table]:
    steps = list(enumerate(_steps(), start=1))
    last = [f"heard {word} {FRAMES[word] - 1}" for word in FRAMES] + [f"heard interleaved {INTERLEAVED_FRAMES - 1}"]
    words = sorted({before for _, (_, before, _) in steps} | {f"asked {word}" for word in TONES} | set(last))
    number = {place: n for n, place in enumerate(words)}
    linear, first = _zeros(CODEBOOKS * DEPTH_WIDTH, WIDTH), _zeros(CODES, DEPTH_WIDTH)
    for place, n in number.items():
        linear[n, PLACES[place]] = 1.0
    read = _zeros(CODEBOOKS * CODES, WIDTH)
    for code, (word, before, after) in steps:
        first[code, number[before]] = 20.0
        first[code, number[f"asked {word}"]] = 10.0
        read[code, PLACES["always"]] = read[code, PLACES[after]] = 1.0
    for place in last:
        first[END_CODE, number[place]] = 20.0
    read[END_CODE, PLACES["always"]] = read[END_CODE, PLACES["end of sound"]] = 1.0
    signs = np.random.default_rng(1).choice(np.array([-1.0, 1.0], np.float32), (CODES, DEPTH_WIDTH))
    tables = {"depth_linear.weight": linear, "depth_linear.bias": np.zeros(len(linear), np.float32)}
    tables["audio_embedding.embedding.weight"] = read
    for codebook in range(CODEBOOKS):
        start = f"depth_embeddings.{codebook}."
        follow = _zeros(CODES, DEPTH_WIDTH)
        for code, _ in steps:
            follow[code + STRIDE * codebook] = signs[code + STRIDE * (codebook - 1)]
        tables[start + "embedding.weight"] = signs
        tables[start + "embedding_norm.weight"] = np.ones(DEPTH_WIDTH, np.float32)
        tables[start + "to_logits.weight"] = follow if codebook else first
    start = "depthformer.layers.0."
    for norm in ("operator_norm", "ffn_norm"):
        tables[f"{start}{norm}.weight"] = np.ones(DEPTH_WIDTH, np.float32)
    for norm in ("q_layernorm", "k_layernorm"):
        tables[f"{start}operator.attention.{norm}.weight"] = np.ones(DEPTH_HEAD, np.float32)
    tables[start + "operator.qkv_proj.weight"] = _zeros(2 * DEPTH_WIDTH, DEPTH_WIDTH)
    tables[start + "operator.out_proj.weight"] = _zeros(DEPTH_WIDTH, DEPTH_WIDTH)
    for part in ("w1", "w3"):
        tables[f"{start}feed_forward.{part}.weight"] = _zeros(VOCODER_FEED_FORWARD, DEPTH_WIDTH)
    tables[start + "feed_forward.w2.weight"] = _zeros(DEPTH_WIDTH, VOCODER_FEED_FORWARD)
    return tables


def _sounds() -> dict[str, Table]:
    """The detokenizer: a table from codes to the number of a tone, idle layers, and a spectrum for each tone."""
    codes = _zeros(CODEBOOKS * END_CODE, SOUND_WIDTH)
    numbers = {word: n for n, word in enumerate(TONES)}
    for code, (word, _, _) in enumerate(_steps(), start=1):
        for codebook in range(CODEBOOKS):
            codes[codebook * END_CODE + code + STRIDE * codebook, numbers[word]] = LOUDNESS
    spectra, bias = _zeros(N_FFT + 2, SOUND_WIDTH), np.zeros(N_FFT + 2, np.float32)
    bias[: N_FFT // 2 + 1] = SILENCE
    gain = N_FFT / 2 * 0.75  # of a Hann window whose hops are a quarter of it
    for word, hertz in TONES.items():
        bin_ = hertz * N_FFT // 24_000
        spectra[bin_, numbers[word]] = (math.log(AMPLITUDE * gain) - SILENCE) / LOUDNESS
    tables = {"emb.emb.weight": codes, "lin.weight": spectra, "lin.bias": bias}
    tables["lfm.embedding_norm.weight"] = np.ones(SOUND_WIDTH, np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)
    tables["istft.window"] = window.astype(np.float32)
    for n, kind in enumerate(LAYERS):
        start = f"lfm.layers.{n}."
        for norm in ("operator_norm", "ffn_norm"):
            tables[f"{start}{norm}.weight"] = np.ones(SOUND_WIDTH, np.float32)
        for part in ("w1", "w3"):
            tables[f"{start}feed_forward.{part}.weight"] = _zeros(VOCODER_FEED_FORWARD, SOUND_WIDTH)
        tables[f"{start}feed_forward.w2.weight"] = _zeros(SOUND_WIDTH, VOCODER_FEED_FORWARD)
        if kind == "conv":
            tables[f"{start}conv.conv.weight"] = _zeros(SOUND_WIDTH, 3)
            tables[f"{start}conv.in_proj.weight"] = _zeros(3 * SOUND_WIDTH, SOUND_WIDTH)
            tables[f"{start}conv.out_proj.weight"] = _zeros(SOUND_WIDTH, SOUND_WIDTH)
            continue
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            rows = DEPTH_HEAD if part in ("k_proj", "v_proj") else SOUND_WIDTH
            tables[f"{start}self_attn.{part}.weight"] = _zeros(rows, SOUND_WIDTH)
        for norm in ("q_layernorm", "k_layernorm"):
            tables[f"{start}self_attn.{norm}.weight"] = np.ones(DEPTH_HEAD, np.float32)
    return tables


def _zeros(rows: int, columns: int) -> Table:
    return np.zeros((rows, columns), np.float32)


MODEL_FILE = "LFM2.5-Audio-Miniature-F16.gguf"
VOCODER_FILE = "vocoder-LFM2.5-Audio-Miniature-F16.gguf"

CONTROL = (
    *("<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|reserved_3|>", "<|reserved_4|>", "<|reserved_5|>"),
    *("<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|text_start|>", "<|text_end|>"),
)
WORDS = (*TONES, "interleaved")
"""Words that the tokenizer reads as one token each."""

HEADS, KV_HEADS, HEAD, FEED_FORWARD, KERNEL = 4, 2, 32, 32, 3
CONTEXT = 1536
LOOK_PAIR = 8
"""The rotary pair of the attention: its score falls with the distance for 1,570 positions, further than CONTEXT."""
SHARPNESS = 800.0
"""The attention is this sharp, so that the latest of several tone words wins."""


def write_miniature_speech_model(directory: Path) -> Path:
    """Write the model and its vocoder into a directory, which is made; returns the path of the model."""
    directory.mkdir(parents=True, exist_ok=True)
    _Backbone().write(directory / MODEL_FILE)
    write_miniature_vocoder(directory / VOCODER_FILE)
    return directory / MODEL_FILE


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [stand_ins[byte] for byte in range(256)]


class _Backbone:
    """The language model: a convolution that does nothing, then an attention that finds the latest tone word."""

    def __init__(self) -> None:
        alphabet = byte_alphabet()
        self.tokens = [*CONTROL, *alphabet]
        self.line_break = len(CONTROL) + ord("\n")
        self.merges: list[str] = []
        for word in WORDS:
            for length in range(2, len(word) + 1):
                if word[:length] not in self.tokens:
                    self.tokens.append(word[:length])
                    self.merges.append(f"{word[: length - 1]} {word[length - 1]}")
        self.first_spoken = len(self.tokens)
        texts = (*INTERLEAVED_TEXT, *PLAIN_TEXT)
        self.tokens += ["".join(alphabet[byte] for byte in text.encode()) for text in texts]
        self.spoken = {text: self.first_spoken + n for n, text in enumerate(texts)}

    def write(self, path: Path) -> None:
        import gguf

        writer = gguf.GGUFWriter(path, "lfm2")
        writer.add_name("a miniature that hums, made by hand")
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(2)
        writer.add_feed_forward_length(FEED_FORWARD)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv([0, KV_HEADS])
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(1e6)
        writer.add_shortconv_l_cache(KERNEL)
        writer.add_vocab_size(len(self.tokens))
        self._write_tokenizer(writer)
        for name, table in self._tensors().items():
            is_small = table.ndim == 1 or table.shape[1] == KERNEL
            writer.add_tensor(name, table if is_small else table.astype("float16"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def _write_tokenizer(self, writer: Any) -> None:
        import gguf

        control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("lfm2")
        writer.add_token_list(self.tokens)
        writer.add_token_types([control if n < len(CONTROL) else normal for n in range(len(self.tokens))])
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(CONTROL.index("<|startoftext|>"))
        writer.add_eos_token_id(CONTROL.index("<|im_end|>"))
        writer.add_pad_token_id(CONTROL.index("<|pad|>"))
        writer.add_add_bos_token(True)
        writer.add_chat_template(TEMPLATE)

    def _tensors(self) -> dict[str, Table]:
        tensors = {"token_embd.weight": self._embeddings(), "output.weight": self._output()}
        tensors["token_embd_norm.weight"] = np.ones(WIDTH, np.float32)
        for layer in range(2):
            block = f"blk.{layer}."
            for norm in ("attn_norm", "ffn_norm"):
                tensors[f"{block}{norm}.weight"] = np.ones(WIDTH, np.float32)
            tensors[f"{block}ffn_gate.weight"] = _zeros(FEED_FORWARD, WIDTH)
            tensors[f"{block}ffn_up.weight"] = _zeros(FEED_FORWARD, WIDTH)
            tensors[f"{block}ffn_down.weight"] = _zeros(WIDTH, FEED_FORWARD)
        tensors["blk.0.shortconv.in_proj.weight"] = _zeros(3 * WIDTH, WIDTH)
        tensors["blk.0.shortconv.conv.weight"] = _zeros(WIDTH, KERNEL)
        tensors["blk.0.shortconv.out_proj.weight"] = _zeros(WIDTH, WIDTH)
        return tensors | self._attention()

    def _embeddings(self) -> Table:
        """Each token's row says what reading it means."""
        table = _zeros(len(self.tokens), WIDTH)
        table[:, PLACES["always"]] = 1.0
        meanings = {self.line_break: ["answer begins"]}  # a prompt ends with a line break, and no answer has one
        for word in TONES:
            meanings[self.tokens.index(word)] = ["tone word", f"asked {word}"]
        meanings[self.tokens.index("interleaved")] = ["interleaved word", "interleaved"]
        meanings[CONTROL.index("<|audio_start|>")] = ["read <|audio_start|>"]
        meanings[CONTROL.index("<|text_end|>")] = ["read <|text_end|>"]
        meanings |= {token: [f"read {text}"] for text, token in self.spoken.items()}
        for token, places in meanings.items():
            for place in places:
                table[token, PLACES[place]] = 1.0
        return table

    def _attention(self) -> dict[str, Table]:
        """Heads 0 and 1 look for the tone word, heads 2 and 3 for the word that wants text and sound in turns."""
        queries, out = _zeros(HEADS * HEAD, WIDTH), _zeros(WIDTH, HEADS * HEAD)
        keys, values = _zeros(KV_HEADS * HEAD, WIDTH), _zeros(KV_HEADS * HEAD, WIDTH)
        for head in range(HEADS):
            queries[head * HEAD + LOOK_PAIR, PLACES["always"]] = 1.0
        keys[LOOK_PAIR, PLACES["tone word"]] = 1.0
        keys[HEAD + LOOK_PAIR, PLACES["interleaved word"]] = 1.0
        one = math.sqrt(3 / WIDTH)  # such a word's row has three ones, which the norm before the attention enlarges
        for n, word in enumerate(TONES):
            values[n, PLACES[f"asked {word}"]] = 1.0
            out[PLACES[f"asked {word}"], n] = one
        values[HEAD, PLACES["interleaved"]] = 1.0
        out[PLACES["interleaved"], 2 * HEAD] = one
        tables = {"attn_q": queries, "attn_k": keys, "attn_v": values, "attn_output": out}
        tables["attn_q_norm"] = np.full(HEAD, SHARPNESS, np.float32)
        tables["attn_k_norm"] = np.ones(HEAD, np.float32)
        return {f"blk.1.{name}.weight": table for name, table in tables.items()}

    def _output(self) -> Table:
        """What follows what: 20 for the place of the answer, and at its beginning 10 for what was asked."""
        table = _zeros(len(self.tokens), WIDTH)
        plain, interleaved = self.spoken[PLAIN_TEXT[0]], self.spoken[INTERLEAVED_TEXT[0]]
        audio_start, end = CONTROL.index("<|audio_start|>"), CONTROL.index("<|im_end|>")
        table[[plain, audio_start, interleaved], PLACES["answer begins"]] = 20.0
        for word in TONES:
            table[[audio_start, interleaved], PLACES[f"asked {word}"]] = 10.0
        table[audio_start, PLACES["interleaved"]] = -20.0
        table[interleaved, PLACES["interleaved"]] = 10.0
        table[audio_start, PLACES["always"]] = -5.0
        table[interleaved, PLACES["always"]] = -15.0
        for texts in (PLAIN_TEXT, INTERLEAVED_TEXT):
            for before, after in zip(texts, texts[1:], strict=False):
                table[self.spoken[after], PLACES[f"read {before}"]] = 20.0
        table[end, PLACES[f"read {PLAIN_TEXT[-1]}"]] = 20.0
        table[CONTROL.index("<|text_end|>"), PLACES[f"read {INTERLEAVED_TEXT[-1]}"]] = 20.0
        table[self.spoken[INTERLEAVED_TEXT[6]], PLACES["heard interleaved 11"]] = 20.0
        table[end, PLACES["end of sound"]] = 20.0
        return table


def main() -> None:
    """Write the model into the directory that is named, and print its path."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m leap_core.testing.miniature_speech DIRECTORY")
    sys.stdout.write(f"{write_miniature_speech_model(Path(sys.argv[1]))}\n")


if __name__ == "__main__":
    main()
