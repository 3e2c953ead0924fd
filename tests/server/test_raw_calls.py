"""Calls that a model writes in its own dialect, over every protocol, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import ollama
import pytest

from leap_core.server.models.loaded_models import LoadedModels

from ..conversation.calls.dialect_cases import CASES, FUNCTIONS, TOKENS, TWO, Calls, Case
from ..support.lengths import usually
from ..support.raw_replies import RawReplyRunner
from .conftest import Scripted
from .test_ollama import serving

SAID = [{"role": "user", "content": "A table for four."}]
DECLARED = [function.to_json_object() for function in FUNCTIONS if function.name in dict(TWO)]
PLAIN: list[Any] = [tool["function"] for tool in DECLARED]
REPLIES = [case for case in CASES if case.about in ("two calls", "text before")]
Answer = tuple[str, Calls]


def chat(server: Scripted, stream: bool) -> Answer:
    asked = server.client().chat.completions
    given: dict[str, Any] = {"model": "builtin", "messages": SAID, "tools": DECLARED}
    if not stream:
        message = asked.create(**given).choices[0].message
        calls = [each.function for each in message.tool_calls or ()]
        return message.content or "", [(call.name, json.loads(call.arguments)) for call in calls]
    deltas = [each.delta for chunk in asked.create(stream=True, **given) for each in chunk.choices]
    parts: dict[int, list[str]] = {}
    for each in (call for delta in deltas for call in delta.tool_calls or ()):
        known = parts.setdefault(each.index, ["", ""])
        known[0] += each.function.name or ""
        known[1] += each.function.arguments or ""
    return "".join(delta.content or "" for delta in deltas), [(name, json.loads(text)) for name, text in parts.values()]


def messages(server: Scripted, stream: bool) -> Answer:
    url = server.url.removesuffix("/v1")
    client = server.open.enter_context(anthropic.Anthropic(base_url=url, api_key=server.token, max_retries=0))
    tools = [{"name": each["name"], "input_schema": each["parameters"]} for each in PLAIN]
    given: dict[str, Any] = {"model": "builtin", "max_tokens": 500, "messages": SAID, "tools": tools}
    if stream:
        with client.messages.stream(**given) as events:
            content = events.get_final_message().content
    else:
        content = client.messages.create(**given).content
    text = "".join(block.text for block in content if block.type == "text")
    return text, [(block.name, block.input) for block in content if block.type == "tool_use"]


def responses(server: Scripted, stream: bool) -> Answer:
    asked = server.client().responses
    tools = [{"type": "function", "strict": False, **each} for each in PLAIN]
    given: dict[str, Any] = {"model": "builtin", "input": SAID, "tools": tools}
    if stream:
        events = list(asked.create(stream=True, **given))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        items = [event.item for event in events if event.type == "response.output_item.done"]
    else:
        response = asked.create(**given)
        text, items = response.output_text, response.output
    return text, [(item.name, json.loads(item.arguments)) for item in items if item.type == "function_call"]


def ollama_chat(runner: RawReplyRunner) -> list[Answer]:
    async def use(client: ollama.AsyncClient, _models: LoadedModels) -> list[Answer]:
        whole = await client.chat("builtin", SAID, tools=DECLARED)
        pieces = [piece async for piece in await client.chat("builtin", SAID, tools=DECLARED, stream=True)]
        return [answer([whole]), answer(pieces)]

    def answer(pieces: list[ollama.ChatResponse]) -> Answer:
        calls = [call.function for piece in pieces for call in piece.message.tool_calls or ()]
        text = "".join(piece.message.content or "" for piece in pieces)
        return text, [(call.name, dict(call.arguments)) for call in calls]

    found: list[Answer] = serving(use, lambda _model, _options: runner)
    return found


def runner_of(case: Case) -> RawReplyRunner:
    return RawReplyRunner(case.dialect, TOKENS.get(case.dialect, ()), case.reply, case.reply)


def check(case: Case, whole: Answer, streamed: Answer) -> None:
    """Calls alone have no text at all; what a dialect has between text and calls may end the text."""
    assert whole == streamed and whole[1] == case.calls
    assert whole[0] == case.text or (case.text and whole[0].rstrip() == case.text)


of_each_dialect = pytest.mark.parametrize(
    "case", usually(REPLIES[::5], REPLIES), ids=lambda case: f"{case.dialect}: {case.about}"
)
"""All of them are read as in tests/conversation/calls; each costs a server here."""


@of_each_dialect
def test_calls_over_openais_and_anthropics_protocols(serve: Callable[..., Scripted], case: Case):
    for ask in (chat, messages, responses):
        server = serve(runner=runner_of(case))
        check(case, ask(server, False), ask(server, True))


@of_each_dialect
def test_calls_over_ollamas_protocol(case: Case):
    check(case, *ollama_chat(runner_of(case)))


ROMA = {"restaurant": "Roma", "guests": 4}
UNFITTING = '<tool_call>{"name": "book_table", "arguments": {"restaurant": "Roma", "guests": GUESTS}}</tool_call>'
REPAIRED, WARNED = (UNFITTING.replace("GUESTS", guests) for guests in ('"4"', '"four"'))
PROBLEM = "the arguments of the call of book_table do not fit its declaration: /guests: 'four'"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"tools": DECLARED},
    "/v1/messages": {
        "max_tokens": 99,
        "tools": [{"name": each["name"], "input_schema": each["parameters"]} for each in PLAIN],
    },
    "/v1/responses": {"input": SAID, "tools": [{"type": "function", "strict": False, **each} for each in PLAIN]},
}


@pytest.mark.parametrize("stream", [False, True])
def test_arguments_that_do_not_fit_are_repaired_or_warned_about(serve: Callable[..., Scripted], stream: bool):
    server = serve(runner=RawReplyRunner("hermes", (), *[REPAIRED] * 3, *[WARNED] * 3))
    for ask in (chat, messages, responses):
        assert ask(server, stream) == ("", [("book_table", ROMA)])
    for path, body in BODIES.items():
        sent = {"model": "builtin", "stream": stream, **({} if "input" in body else {"messages": SAID}), **body}
        headers = {"Authorization": f"Bearer {server.token}"}
        answer = httpx.post(server.url.removesuffix("/v1") + path, json=sent, headers=headers, timeout=100).text
        assert PROBLEM in answer, (path, answer)


def test_arguments_that_do_not_fit_are_repaired_over_ollamas_protocol():
    answers = ollama_chat(RawReplyRunner("hermes", (), REPAIRED, REPAIRED))
    assert answers == [("", [("book_table", ROMA)])] * 2
