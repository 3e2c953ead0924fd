"""Keep-alives of streams, as they go over a socket and as the official clients see them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from leap_core import LeapModelLoadingError, ModelLoadingOptions
from leap_core.conversation.generator import PromptProgress
from leap_core.models.resolving import LocalModel
from leap_core.opening import load_as_made
from leap_core.server.application import Server, listen
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.models.abilities import Offer
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import ScriptedModelRunner
from leap_core.testing.scripted import ScriptedGeneration, Stall
from tests.server.conftest import PROMPTLY, settled
from tests.support.random_models import write_random_model

SAID = [{"role": "user", "content": "Hello?"}]
COMMENT = b":\n\n"
EVENT = b'event: ping\ndata: {"type":"ping"}\n\n'
PROTOCOLS: dict[str, tuple[dict[str, Any], bytes]] = {
    "v1/chat/completions": ({"messages": SAID}, COMMENT),
    "v1/completions": ({"prompt": "Hello?"}, COMMENT),
    "v1/responses": ({"input": "Hello?"}, COMMENT),
    "v1/messages": ({"messages": SAID, "max_tokens": 99}, EVENT),
}
QUICK = 0.1


@dataclass
class Slow:
    """A running server. ``runner`` is its one model, ``scripted``, loaded when it is first asked for; ``loading``
    says how that goes."""

    port: int
    runner: ScriptedModelRunner
    models: LoadedModels
    loop: asyncio.AbstractEventLoop
    open: ExitStack = field(default_factory=ExitStack)

    def body(self, path: str, **given: Any) -> bytes:
        """A whole stream."""
        return httpx.post(f"http://127.0.0.1:{self.port}/{path}", json=self.asked(path, **given), timeout=100).content

    def asked(self, path: str, **given: Any) -> dict[str, Any]:
        return {"model": "slow", "stream": True, **PROTOCOLS[path][0], **given}

    def pinging(self) -> int:
        """Streams that send keep-alives now."""
        return sum("_ping_when_silent" in repr(task) for task in asyncio.all_tasks(self.loop))


@pytest.fixture
def slow(leap_home: Path) -> Callable[..., Any]:
    """Start a server whose model plays these scripts and is loaded by ``load``."""
    (leap_home / "models" / "slow").mkdir(parents=True)
    write_random_model(leap_home / "models" / "slow" / "slow.gguf")

    @contextmanager
    def start(*scripts: Any, load: Callable[[], object] = lambda: None, interval: float = QUICK) -> Iterator[Slow]:
        runner = ScriptedModelRunner(*scripts, model_id="slow")
        ready, made = threading.Event(), []

        def loader(_local: LocalModel, _options: ModelLoadingOptions) -> ScriptedModelRunner:
            load()
            return runner

        async def main() -> None:
            models, ending = LoadedModels(loader, offer=Offer(("*",), default="slow")), asyncio.Event()
            listener = listen("127.0.0.1", 0)
            server = Server.of(application(models, ServerSettings(ping_interval=interval)))
            serving = asyncio.create_task(server.serve([listener]))
            made.append((Slow(listener.getsockname()[1], runner, models, asyncio.get_running_loop()), ending))
            ready.set()
            await ending.wait()
            await models.close()
            server.end()
            await serving

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        assert ready.wait(PROMPTLY)
        running, ending = made[0]
        try:
            with running.open:
                yield running
        finally:
            running.loop.call_soon_threadsafe(ending.set)
            thread.join(PROMPTLY)
            assert not thread.is_alive()

    return start


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_silent_stream_gives_keep_alives(slow, path):
    script = [Stall(seconds=0.5), "Par", "is."]
    ping = PROTOCOLS[path][1]
    with slow(script, script) as server:
        found = server.body(path)
        silent = server.body(path, sse_ping_interval=0)
    assert found.count(ping) >= 2 + (ping == EVENT) and silent.count(ping) == (ping == EVENT)  # one comes with the head
    for whole in (found, silent):
        assert b"Par" in whole and b"is." in whole and b"error" not in whole.replace(b'"error":null', b"")


def test_keep_alives_stop_between_tokens_that_come_in_time(slow):
    pieces = [step for n in range(12) for step in (Stall(seconds=0.03), f"{n} ")]
    with slow(["first ", *pieces]) as server:
        assert COMMENT not in server.body("v1/chat/completions", sse_ping_interval=0.3)


def test_the_official_clients_read_a_stream_with_keep_alives(slow):
    script = [Stall(seconds=0.3), "Paris", Stall(seconds=0.3), "."]
    with slow(*[script] * 4) as server:
        url = f"http://127.0.0.1:{server.port}"
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            chunks = list(client.chat.completions.create(model="slow", messages=SAID, stream=True))
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Paris."
            with client.responses.stream(model="slow", input="Hello?") as stream:
                assert stream.get_final_response().output_text == "Paris."
        with (
            anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
            client.messages.stream(model="slow", max_tokens=9, messages=SAID) as stream,
        ):
            assert stream.get_final_text() == "Paris."
        client = ollama.Client(url)
        lines = list(client.chat(model="slow", messages=SAID, stream=True))
        client._client.close()
        assert "".join(line.message.content or "" for line in lines) == "Paris."
        assert [line.done for line in lines].count(True) == 1 and len(lines) >= 5  # two pieces, an end, and more


@pytest.mark.parametrize("loads", [0.0, 0.4])
@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("v1/chat/completions", b"data: [DONE]"),
        ("v1/responses", b'data: {"type":"response.completed"'),
        ("v1/messages", b'data: {"type":"message_stop"}'),
        ("api/chat", b'"done": true'),
    ],
)
def test_no_keep_alive_follows_the_end_of_an_answer(slow, path, end, loads, monkeypatch):
    close = ScriptedGeneration.close

    def slow_close(self: ScriptedGeneration) -> None:
        time.sleep(0.4)
        close(self)

    monkeypatch.setattr(ScriptedGeneration, "close", slow_close)
    with slow("Paris.", load=lambda: time.sleep(loads)) as server:
        asked = {"model": "slow", "stream": True, **PROTOCOLS.get(path, PROTOCOLS["v1/messages"])[0]}
        found = httpx.post(f"http://127.0.0.1:{server.port}/{path}", json=asked, timeout=100).content
    assert end in found.strip().splitlines()[-1]


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_stream_begins_while_its_model_loads(slow, path):
    loading = threading.Event()
    ping = PROTOCOLS[path][1]
    with slow("Paris.", load=lambda: loading.wait(PROMPTLY)) as server:
        url = f"http://127.0.0.1:{server.port}/{path}"
        got = server.open.enter_context(httpx.stream("POST", url, json=server.asked(path), timeout=100))
        pieces = got.iter_bytes()
        early = next(pieces) + next(pieces)
        assert got.status_code == 200 and got.headers["content-type"].startswith("text/event-stream")
        assert early.replace(ping, b"") == b"" and not server.runner.requests
        loading.set()
        assert b"Paris." in b"".join(pieces)


@pytest.mark.parametrize("path", PROTOCOLS)
def test_a_model_that_cannot_be_loaded_ends_its_stream_with_an_error(slow, path):
    def load() -> None:
        time.sleep(0.3)
        raise LeapModelLoadingError("slow.gguf is damaged")

    with slow(load=load) as server:
        found = server.body(path)
    assert b"slow.gguf is damaged" in found and PROTOCOLS[path][1] in found
    assert found.endswith(b"\n\n") and b"Traceback" not in found


def test_a_promptly_refused_request_keeps_its_status(slow):
    with slow("Hi.", load=lambda: None) as server:
        url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
        asked = server.asked("v1/chat/completions", model="nobody", sse_ping_interval=60)
        assert httpx.post(url, json=asked, timeout=100).status_code == 404


@pytest.mark.parametrize("path", PROTOCOLS)
def test_an_interval_out_of_range_is_refused(slow, path):
    with slow("Hi.") as server:
        for wrong in (True, "1", 0.01, -2, 1e9, [1], {}, 10**400):
            asked = server.asked(path, sse_ping_interval=wrong)
            answer = httpx.post(f"http://127.0.0.1:{server.port}/{path}", json=asked, timeout=100)
            assert answer.status_code == 400 and "sse_ping_interval" in answer.text and len(answer.text) < 600
        assert not server.runner.requests


def test_a_client_that_leaves_ends_the_keep_alives_and_the_answer(slow):
    stall, load = Stall(), threading.Event()
    with slow([stall], "Again.", load=lambda: load.wait(PROMPTLY)) as server:
        url, asked = f"http://127.0.0.1:{server.port}/v1/chat/completions", server.asked("v1/chat/completions")
        with httpx.stream("POST", url, json=asked, timeout=100) as got:  # it leaves while the model loads
            pieces = got.iter_bytes()
            assert next(pieces) == COMMENT and server.pinging()
        load.set()
        assert settled(lambda: all(not model.in_demand for model in server.models))
        with httpx.stream("POST", url, json=asked, timeout=100) as got:  # and while its prompt is read
            pieces = got.iter_bytes()
            assert next(pieces) and stall.reached.wait(PROMPTLY)
        assert settled(lambda: all(not model.in_demand for model in server.models))
        assert settled(lambda: not server.pinging())
        assert b"Again." in server.body("v1/chat/completions")


def test_many_silent_streams_use_no_threads_of_their_own(slow):
    stalls = [Stall() for _ in range(20)]
    with slow(*[[stall, "Hi."] for stall in stalls]) as server:
        found: list[bytes] = []
        clients = [threading.Thread(target=lambda: found.append(server.body("v1/chat/completions"))) for _ in range(20)]
        for client in clients:
            client.start()
        assert settled(lambda: all(stall.reached.is_set() for stall in stalls))
        time.sleep(0.3)
        named = [thread.name for thread in threading.enumerate() if "ping" in thread.name]
        for stall in stalls:
            stall.release()
        for client in clients:
            client.join(PROMPTLY)
    assert not named and len(found) == 20 and all(each.count(COMMENT) >= 2 for each in found)


def test_several_answers_report_prompt_progress(slow):
    steps = [PromptProgress(100, 20, 60, 1.5), Stall(seconds=0.7), PromptProgress(100, 20, 100, 2.0), "Yes."]
    with slow(steps, "No.") as server:
        found = server.body("v1/chat/completions", n=2, return_progress=True)
    events = [json.loads(line[6:]) for line in found.split(b"\n") if line.startswith(b"data: {")]
    said = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert [each["processed"] for each in said] == [60, 100] and b"Yes." in found and b"No." in found


@pytest.mark.slow
def test_keep_alives_while_a_request_waits_for_a_slot_and_its_prompt_is_read(leap_home):
    """On the built-in model with one slot, which another answer holds."""

    async def main() -> None:
        models = LoadedModels(load_as_made)
        await models.load(LoadRequest("builtin", slots=1))
        app = application(models, ServerSettings(ping_interval=QUICK))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            ask = {"model": "builtin", "stream": True, "return_progress": True, "temperature": 0}
            long = ask | {"messages": SAID, "max_tokens": 400, "logit_bias": {}}
            short = ask | {"messages": [{"role": "user", "content": "word " * 300}], "max_tokens": 2}
            first = asyncio.create_task(client.post("/v1/chat/completions", json=long))
            await asyncio.sleep(0.2)
            answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=short) for _ in range(2)))
            await first
            assert all(COMMENT in answer.content and b"[DONE]" in answer.content for answer in answers)
        await models.close()

    asyncio.run(main())
