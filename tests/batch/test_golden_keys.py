"""The keys under which the first wave of leap 0.1 kept results: its journals must be found again."""

from __future__ import annotations

import json

import pytest

from leap_core.batch import settings as model_fingerprint
from leap_core.batch.input.line_index import check_lines
from leap_core.batch.input.lines import RequestReader, key_of
from leap_core.conversation.options import ModelLoadingOptions, SamplingDefaults
from leap_core.models.resolving import LocalModel

from .conftest import rows_of

LOOK = {"type": "object", "properties": {"at": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": LOOK}}]
SCHEMA = {"type": "object", "properties": {"ä": {"type": "integer"}}}
ASK = [{"role": "user", "content": "Hi"}]
SAMPLING = {"temperature": 0, "max_tokens": 5, "seed": 3, "stop": "END", "user": "me"}
OWN = {"top_k": 4, "min_p": 0.1, "repetition_penalty": 1.1, "repeat_last_n": 8, "enable_thinking": True}
DEMANDED = {"type": "function", "function": {"name": "look"}}
SHAPED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}

GOLDEN = {
    "prompt": ({"prompt": "Grüß Gott"}, "084c9f2331d34413797db0aeeb249607", "277924ae4b268006e1e9e5ba9e37c60b"),
    "body": (
        {"url": "/v1/chat/completions", "body": {"model": "m", "messages": ASK, **SAMPLING}},
        "7d643a9d139f0a13aaf1cf40c297e7d7",
        "e59c868ed45a1c30617863fe7acfa1d2",
    ),
    "tools": (
        {"messages": ASK, "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False},
        "b22cf7c0adc0a57fc65886432541d368",
        "caee62ff0353278d297209395a83f8a5",
    ),
    "demanded": (
        {"messages": ASK, "tools": TOOLS, "tool_choice": DEMANDED},
        "48c5f47e61d7310a1c6970adf26e868b",
        "9e195b8586639fd69265f70a353cbdd3",
    ),
    "json_object": (
        {"messages": ASK, "response_format": {"type": "json_object"}},
        "fcbc409aabff93187ea596bb4e6412fe",
        "3f6bc64757b6b411a1b0bb2bd138dba1",
    ),
    "json_schema": (
        {"messages": ASK, "response_format": SHAPED},
        "f177447cbbcce2abe726316a06488f4b",
        "09b16151f7acaed2ddbb1fb4d56d4df1",
    ),
    "schema": (
        {"prompt": "Hi", "schema": SCHEMA, "system": "Be brief."},
        "045a00adff3fec94a0e681bfe7ffc917",
        "51c9748278e2ac9d84d4020e2a2af459",
    ),
    "bias": (
        {"prompt": "Hi", "logit_bias": {"7": -2.5}, **OWN},
        "b1f0b716364d3f7dd6580ccc8f98d1b9",
        "acae862cc5d369360a56b5d39218fe71",
    ),
}
"""A line, its digest, and its key under the circumstances that are called so."""


@pytest.mark.parametrize("name", GOLDEN)
def test_the_key_of_a_line_does_not_change(name):
    fields, digest, key = GOLDEN[name]
    row = json.dumps({"custom_id": "a", **fields}).encode() + b"\n"
    other = row.replace(b'"custom_id": "a"', b'"custom_id": "b"')
    index = check_lines(rows_of(other + row), RequestReader()).index  # the second is checked in the quick way
    assert (index.digest(1), key_of(index.digest(1), "circumstances")) == (digest, key)
    assert RequestReader().read(row).digest("a") == digest


CIRCUMSTANCES = (
    '{"chat_template": null, "context_size": 512, "kv": ["f16", "f16"], '
    '"model": "f0f964914155bd28674b5bbd3de860fab65ec7efea4750c2f3324cf75444f04f", "parser": "auto", '
    '"sampling": {"min_p": 0.15, "repetition_penalty": null, "temperature": 0.3, "top_k": null, "top_p": null}, '
    '"seed": null}'
)


def test_the_fingerprint_of_a_model_does_not_change(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(range(256)) * 20)
    model = LocalModel("m", path, sampling=SamplingDefaults(temperature=0.3, min_p=0.15))
    monkeypatch.setattr(model_fingerprint.Registry, "find", lambda *_: model)
    loading = ModelLoadingOptions(context_size=512, slots=16)
    assert model_fingerprint.fingerprint_of("m", loading, variables={}, cwd=tmp_path) == CIRCUMSTANCES
