"""Adapters and rarer loading options of warm and served models, through the program."""

from __future__ import annotations

import json
import time

import openai
import pytest

from tests.support.random_adapters import write_random_adapter
from tests.support.random_models import write_random_model

EXACT = ("--threads", "1", "--option", "flash-attention=false", "--kv-type-k", "f32", "--kv-type-v", "f32")
ASK = ("--temperature", "0", "--max-tokens", "10", "hello")


@pytest.fixture
def files(tmp_path):
    model = write_random_model(tmp_path / "m.gguf", quantization="f32")
    write_random_adapter(tmp_path / "poet.gguf", model, alpha=24.0)
    return tmp_path


def test_a_loaded_model_answers_each_request_with_its_adapters(program, files):
    def said(*options):
        done = program("generate", "-m", "m.gguf", *options, *ASK)
        assert done.returncode == 0, done.stderr
        return done.stdout

    plain, adapted = said("--no-host", *EXACT), said("--no-host", *EXACT, "--lora", "poet.gguf")
    assert plain != adapted
    cache = ("--prompt-cache", "--option", "prompt-cache-size=64")
    assert program("load", "m.gguf", *EXACT, *cache, "--lora", "poet.gguf=0").returncode == 0
    assert said("--host") == said("--host", "--kv-type-k", "f32") == plain
    assert said("--host", "--lora", "poet.gguf") == adapted
    refused = program("generate", "-m", "m.gguf", "--host", "--kv-type-k", "q8_0", *ASK)
    assert refused.returncode != 0 and "another kv_type_k" in refused.stderr
    missing = program("generate", "-m", "m.gguf", "--host", "--lora", "none.gguf", *ASK)
    assert missing.returncode != 0 and "there is no adapter" in missing.stderr
    (entry, *_) = json.loads(program("models", "cache", "list", "--format", "json").stdout)
    assert entry
    assert program("unload", "--all").returncode == 0


def test_a_served_model_and_its_adapters(program, start, files):
    process = start("serve", "m.gguf", "--port", "0", *EXACT, "--lora", "poet.gguf=0")
    url = process.stdout.readline().decode().strip()
    assert url.startswith("http"), process.communicate()
    assert b"m ready" in process.stderr.readline()
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:

        def said(model):
            messages = [{"role": "user", "content": "hello"}]
            answer = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=10)
            return answer.choices[0].message.content

        plain, adapted = said("m"), said("m+poet")
        assert plain != adapted and said("m") == plain and said("m+poet") == adapted
        assert [model.id for model in client.models.list()] == ["m", "m+poet"]
        body = {"model": "m+poet", "messages": [{"role": "user", "content": "hello"}], "temperature": 0}
        line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {**body, "max_tokens": 10}}
        file = client.files.create(file=("in.jsonl", json.dumps(line).encode() + b"\n"), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint=line["url"], completion_window="24h")
        deadline = time.monotonic() + 100
        while batch.status not in ("completed", "failed", "cancelled", "expired"):
            assert time.monotonic() < deadline, batch
            time.sleep(0.1)
            batch = client.batches.retrieve(batch.id)
        assert batch.status == "completed", batch
        answer = json.loads(client.files.content(batch.output_file_id).text)["response"]["body"]
        assert answer["choices"][0]["message"]["content"] == adapted
    program("jobs", "worker", "--shutdown")
    wrong = program("load", "m.gguf", "--kv-type-k", "q8_0", "--lora", "none.gguf")
    assert wrong.returncode != 0 and "there is no adapter" in wrong.stderr
