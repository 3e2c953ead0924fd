"""The types of keys and values of a context: by default what keeps answers the same, or what reads prompts fastest."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_core.conversation.options import ModelLoadingOptions
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.llama import context
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.model_parts import open_context
from tests.support.random_models import TINY_LFM2, write_random_model

Q8_0, Q4_K_M = 7, 15


@pytest.mark.parametrize(
    ("file_type", "deterministic", "types"),
    [(Q8_0, False, ("bf16", "f16")), (Q4_K_M, False, ("f16", "f16")), (Q4_K_M, True, ("bf16", "f16"))],
)
def test_a_context_has_the_types_that_suit_the_weights(
    file_type: int, deterministic: bool, types: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, str]] = []
    new = context._new_context

    def noted(model: LlamaModel, params: object, attention: context.AttentionSettings) -> object:
        made.append((attention.type_k, attention.type_v))
        return new(model, params, attention)

    monkeypatch.setattr(context, "_new_context", noted)
    path = write_random_model(tmp_path / "model.gguf", TINY_LFM2, "q8_0")
    key, unsigned = b"general.file_type", (4).to_bytes(4, "little")
    written, wanted = (key + unsigned + number.to_bytes(4, "little") for number in (Q8_0, file_type))
    assert path.read_bytes().count(written) == 1
    path.write_bytes(path.read_bytes().replace(written, wanted))
    model = LlamaModel(path)
    try:
        open_context(model, ModelLoadingOptions(slots=1, deterministic=deterministic), 64).close()
        assert made == [types]
        assert read_gguf_header(model.path).is_alike == (file_type == Q8_0)
    finally:
        model.close()
