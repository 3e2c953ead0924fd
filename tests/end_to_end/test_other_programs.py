"""``leap serve`` with models of other programs: what it lists can be asked, and their files stay as they are."""

from __future__ import annotations

import sys

import pytest

from leap_core.models.builtin import model_path
from tests.models.stores_of_others import OtherStores

from .conftest import QUESTION
from .test_host_serve import SOON

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the stores are laid out as on Linux"),
]


def test_each_listed_model_of_another_program_answers(start, variables, tmp_path):
    import openai

    stores = OtherStores(tmp_path / "user", model_path().read_bytes())
    stores.ollama("registry.ollama.ai/library/qwen3", "0.6b")
    stores.ollama("registry.ollama.ai/library/smollm2", "135m")
    stores.lm_studio("lab", "Small-GGUF", "Small-Q4_K_M.gguf")
    stores.hub(".cache/huggingface/hub", "lab/Other-GGUF", "Other-Q8_0.gguf")
    before = stores.digest()
    for name in ("HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME", "OLLAMA_MODELS"):
        variables.pop(name, None)
    variables |= stores.variables
    process = start("serve", "qwen3:0.6b", "--models", "*", "--port", "0", "--threads", "1")
    url = process.stdout.readline().decode().strip()
    assert url.startswith("http://127.0.0.1:"), process.communicate()
    assert any(b"ready" in line for line in process.stderr), "it ended"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=SOON) as client:
        listed = [model.id for model in client.models.list() if not model.id.startswith("builtin")]
        assert {"qwen3:0.6b", "smollm2:135m"} < set(listed) and len(listed) == len(set(listed)) == 4, listed
        for name in [*listed, "SmolLM2:135M", "ollama/smollm2:135m"]:
            asked = client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=8
            )
            assert "capital" in asked.choices[0].message.content, name
    assert stores.digest() == before
