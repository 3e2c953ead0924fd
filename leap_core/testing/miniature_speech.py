"""A speech model made by hand, not trained: it hums the tone that the prompt names, so that the whole way from a prompt
to a WAV file can be heard and measured without a download.

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
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .miniature_vocoder import write_miniature_vocoder
from .random_models import TEMPLATE, byte_alphabet
from .tone_places import INTERLEAVED_TEXT, PLACES, PLAIN_TEXT, TONES, WIDTH

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Table = NDArray[float32]

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
        import numpy as np

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
        import numpy as np

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
        """What follows what: 20 for the place where the answer stands, and at its beginning 10 for what was asked."""
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


def _zeros(rows: int, columns: int) -> Table:
    import numpy as np

    return np.zeros((rows, columns), np.float32)


def main() -> None:
    """Write the model into the directory that is named, and print its path."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m leap_core.testing.miniature_speech DIRECTORY")
    sys.stdout.write(f"{write_miniature_speech_model(Path(sys.argv[1]))}\n")


if __name__ == "__main__":
    main()
