"""Ollama's /api, used by its official client: the built-in models, and scripted ones for what they do not do."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from PIL import Image

from leap_core import LeapFunctionCall, LeapModelDownloadError, ModelRunner
from leap_core.conversation.embedding import EmbeddingRunner
from leap_core.conversation.responses import FunctionCalls, ReasoningChunk
from leap_core.models.download.downloading import Planned, Progress
from leap_core.opening import load_as_made, load_local_for_embedding
from leap_core.protocols.ollama import read_ollama_chat, read_ollama_generate
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.models.abilities import Offer
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import ScriptedModelRunner

QUESTION = "What is the capital of France?"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def serving(
    use: Callable[[ollama.AsyncClient, LoadedModels], Awaitable[Any]],
    loader: Callable[..., ModelRunner | EmbeddingRunner] = load_as_made,
) -> Any:
    """Run ``use`` with the official client of a server that offers the built-in models."""

    async def main() -> Any:
        models = LoadedModels(loader, embedder=load_local_for_embedding, offer=Offer(("builtin*",), default="builtin"))
        app = application(models, ServerSettings())
        client = ollama.AsyncClient("http://127.0.0.1:11434", transport=httpx.ASGITransport(app))
        try:
            return await use(client, models)
        finally:
            await client._client.aclose()
            await models.close()

    return asyncio.run(main())


@pytest.mark.slow
def test_chat_generate_and_lists(leap_home: Path) -> None:
    async def use(client: ollama.AsyncClient, models: LoadedModels) -> None:
        messages = [{"role": "user", "content": QUESTION}]
        greedy = {"temperature": 0, "num_predict": 30, "num_ctx": 2048, "mirostat": 0}
        whole = await client.chat("builtin:latest", messages, options=greedy, keep_alive="3m")
        assert "Paris" in (whole.message.content or "") and whole.done and whole.done_reason == "stop"
        assert (whole.load_duration or 0) > (whole.eval_duration or 0) // 100, "it was loaded for this"
        assert whole.model == "builtin" and whole.eval_count and whole.prompt_eval_count and whole.total_duration
        pieces = [piece async for piece in await client.chat("builtin", messages, stream=True, options=greedy)]
        assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
        assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert next(iter(models)).keep_alive == 180

        generated = await client.generate("builtin", QUESTION, system="Be short.", options=greedy)
        assert "Paris" in (generated.response or "") and generated.done_reason == "stop"
        raw = await client.generate("builtin", "<|im_start|>user\nHello", raw=True, options={"num_predict": 2})
        assert raw.done_reason == "length" and raw.eval_count == 2

        shaped = await client.chat(
            "builtin", [{"role": "user", "content": "Ada is 36."}], format=PERSON, options={"temperature": 0}
        )
        assert set(json.loads(shaped.message.content or "")) == {"name", "age"}
        likely = await client.chat("builtin", messages, options=greedy, logprobs=True, top_logprobs=2)
        assert likely.logprobs and likely.logprobs[0].top_logprobs and likely.logprobs[0].logprob <= 0

        listed = {model.model: model for model in (await client.list()).models}
        assert set(listed) == {"builtin", "builtin-vl", "builtin-audio", "builtin-embed"}
        assert (listed["builtin"].size or 0) > 10**6 and listed["builtin"].modified_at
        assert [model.model for model in (await client.ps()).models] == ["builtin"]
        shown = await client.show("builtin")
        assert shown.capabilities and "completion" in shown.capabilities and shown.template
        assert shown.modelinfo and shown.modelinfo["general.parameter_count"] > 10**6
        assert "vision" in ((await client.show("builtin-vl")).capabilities or ())
        assert "embedding" in ((await client.show("builtin-embed")).capabilities or ())

    serving(use)


@pytest.mark.slow
def test_images_embeddings_and_unloading(leap_home: Path) -> None:
    async def use(client: ollama.AsyncClient, models: LoadedModels) -> None:
        drawn = io.BytesIO()
        Image.new("RGB", (64, 64), "red").save(drawn, "PNG")
        picture = ollama.Image(value=base64.b64encode(drawn.getvalue()).decode("ascii"))
        seen = await client.chat("builtin-vl", [{"role": "user", "content": "What is it?", "images": [picture]}])
        assert seen.message.content and (seen.prompt_eval_count or 0) > 16
        assert (await client.generate("builtin-vl", "What is it?", images=[picture])).response
        vectors = await client.embed("builtin-embed", ["one", "two"], dimensions=64)
        assert [len(row) for row in vectors.embeddings] == [64, 64] and vectors.prompt_eval_count
        assert len((await client.embeddings("builtin-embed", "one")).embedding) == 256
        assert len((await client.embed("builtin-embed", "word " * 3000)).embeddings) == 1, "it is cut by default"
        with pytest.raises(ollama.ResponseError, match="token"):
            await client.embed("builtin-embed", "word " * 3000, truncate=False)
        await client.generate("builtin-vl", keep_alive=0)
        await asyncio.sleep(0.01)
        await models.expire()
        assert [model.model for model in (await client.ps()).models] == ["builtin-embed"]
        loaded = await client.chat("builtin")
        assert loaded.done_reason == "load" and "builtin" in {model.name for model in models}

    serving(use)


def test_tool_calls_reasoning_and_errors(leap_home: Path) -> None:
    def load(local: Any, _options: Any) -> ModelRunner:
        weather = [ReasoningChunk("hm"), FunctionCalls([LeapFunctionCall("weather", {"city": "Bern"})])]
        return ScriptedModelRunner(weather, "Sunny.", weather, model_id=local.model_id)

    def weather(city: str) -> str:
        """The weather.

        Args:
          city: where
        """
        return f"sunny in {city}"

    async def use(client: ollama.AsyncClient, models: LoadedModels) -> None:
        messages: list[Any] = [{"role": "user", "content": "The weather in Bern?"}]
        called = await client.chat("builtin", messages, tools=[weather])
        (call,) = called.message.tool_calls or ()
        assert called.message.thinking == "hm"
        assert (call.function.name, call.function.arguments) == ("weather", {"city": "Bern"})
        messages += [called.message, {"role": "tool", "content": "sunny", "tool_name": "weather"}]
        assert (await client.chat("builtin", messages, tools=[weather])).message.content == "Sunny."
        pieces = [piece async for piece in await client.chat("builtin", messages, tools=[weather], stream=True)]
        assert [call.function.name for piece in pieces for call in piece.message.tool_calls or ()] == ["weather"]
        with pytest.raises(ollama.ResponseError, match="nobody") as missing:
            await client.chat("nobody", messages)
        assert missing.value.status_code == 404
        with pytest.raises(ollama.ResponseError, match="keep_alive") as wrong:
            await client.chat("builtin", messages, keep_alive="soon")
        assert wrong.value.status_code == 400
        with pytest.raises(ollama.ResponseError) as nothing:
            await client.delete("builtin")
        assert nothing.value.status_code == 404 and "/api/delete" in str(nothing.value)

    serving(use, load)


def test_pull_reports_progress(leap_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(name: str, *, on_event: Any, stop: Any) -> None:
        asked.append(name)
        on_event(Planned("m", (), 10, 10, Path("m")))
        on_event(Progress("m.gguf", 5, 10, 1.0, 5.0))
        if name == "broken":
            raise LeapModelDownloadError("the connection was cut", hint="try again")

    monkeypatch.setattr("leap_core.server.endpoints.ollama.download_model", download)

    async def use(client: ollama.AsyncClient, _models: LoadedModels) -> None:
        lines = [line async for line in await client.pull("hf.co/LiquidAI/LFM2.5-350M-GGUF:Q4_0", stream=True)]
        assert [line.status for line in lines] == ["pulling manifest", "pulling m.gguf", "success"]
        assert (lines[1].completed, lines[1].total) == (5, 10)
        assert (await client.pull("LFM2.5-350M")).status == "success"
        with pytest.raises(ollama.ResponseError, match="the connection was cut"):
            await client.pull("broken")
        with pytest.raises(ollama.ResponseError, match="the connection was cut"):
            _ = [line async for line in await client.pull("broken", stream=True)]
        with pytest.raises(ollama.ResponseError):
            await client.pull("/etc/passwd.gguf")

    serving(use)
    assert asked == ["hf.co/LiquidAI/LFM2.5-350M-GGUF:Q4_0", "LFM2.5-350M", "broken", "broken"]


def test_a_model_with_endless_keep_alive_is_not_unloaded(leap_home: Path) -> None:
    async def use(client: ollama.AsyncClient, models: LoadedModels) -> None:
        await models.load(LoadRequest("builtin", keep_alive=0))
        await client.generate("builtin", keep_alive=0)
        await asyncio.sleep(0.01)
        await models.expire()
        assert len(models) == 1

    serving(use, lambda local, _: ScriptedModelRunner(model_id=local.model_id))


def test_bodies_become_requests() -> None:
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": n, "arguments": {}}} for n in "ab"]},
        {"role": "tool", "content": "of b", "tool_name": "b"},
        {"role": "tool", "content": "of a"},
    ]
    options = {"temperature": 0, "num_predict": -1, "repeat_penalty": 1.1, "stop": ["x"], "num_gpu": 1}
    chat = read_ollama_chat({"model": "m", "messages": messages, "options": options, "think": "low"}).generation
    assert chat is not None and chat.stream and chat.options.enable_thinking and chat.options.max_tokens is None
    ids = [call.id for call in chat.messages[0].function_calls or ()]
    assert [message.tool_call_id for message in chat.messages[1:]] == ids[::-1]
    assert chat.options.repetition_penalty == 1.1 and chat.notes == ()
    unnamed = [messages[0], *({"role": "tool", "content": "x"} for _ in ids)]
    chat = read_ollama_chat({"model": "m", "messages": unnamed, "options": {"num_predict": 0}}).generation
    assert chat is not None and chat.options.max_tokens is None
    assert [message.tool_call_id for message in chat.messages[1:]] == ids
    assert read_ollama_generate({"model": "m"}).generation is None
    assert [read_ollama_generate({"model": name}).model for name in ("m:latest", "m:Latest", "m:8b")] == [
        "m",
        "m",
        "m:8b",
    ]
