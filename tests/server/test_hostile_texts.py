"""Long texts that make a bad pattern or loop slow, in every field that takes a text: time grows with its length."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from leap_core.conversation.calls.parsers import CallStream, parser_named
from tests.support.growth import check_growth

SIZE = 50_000
NOISE = base64.b64encode(random.Random(3).randbytes(SIZE)).decode()[:SIZE]
TEXTS = (
    NOISE,
    *((unit * SIZE)[:SIZE] for unit in ("a", " ", "/", "'", '"', "[", "(", "{", "\\", "<", "\n", "a.", "1,")),
)
USER: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{n}", "description": "Does things. " * 40}} for n in range(30)
]


def with_call(arguments: str, result: str = "") -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]


def chat(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "chat/completions", {"messages": USER, **fields}


def custom(syntax: str, text: str) -> tuple[str, dict[str, Any]]:
    form = {"type": "grammar", "syntax": syntax, "definition": text}
    return "responses", {"input": "Hi", "tools": [{"type": "custom", "name": "f", "format": form}]}


def part(kind: str, value: Any) -> tuple[str, dict[str, Any]]:
    return chat(messages=[{"role": "user", "content": [{"type": kind, kind: value}]}])


def schema(value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": value}})


FIELDS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "user": lambda text: chat(messages=[{"role": "user", "content": text}], tools=TOOLS),
    "system": lambda text: chat(messages=[{"role": "system", "content": text}, *USER], tools=TOOLS),
    "tool name": lambda text: chat(tools=[{"type": "function", "function": {"name": text}}]),
    "tool description": lambda text: chat(tools=[{"type": "function", "function": {"name": "f", "description": text}}]),
    "arguments": lambda text: chat(messages=with_call(text)),
    "result": lambda text: chat(messages=with_call("{}", text)),
    "stop": lambda text: chat(stop=[text]),
    "expression": lambda text: chat(guided_regex=text),
    "grammar": lambda text: chat(guided_grammar=text),
    "rest of a grammar": lambda text: chat(guided_grammar=f'root ::= "a"\n{text}'),
    "choice": lambda text: chat(guided_choice=[text, "b"]),
    "pattern": lambda text: schema({"type": "object", "properties": {"a": {"type": "string", "pattern": text}}}),
    "model": lambda text: chat(model=text),
    "keep_alive": lambda text: chat(keep_alive=text),
    "picture": lambda text: part("image_url", {"url": f"data:image/png;base64,{text}"}),
    "name of a file": lambda text: part("file", {"filename": text, "file_data": "aGk="}),
    "file": lambda text: part("file", {"filename": "a", "file_data": base64.b64encode(text.encode()).decode()}),
    "prompt": lambda text: ("completions", {"prompt": text, "suffix": text}),
    "input": lambda text: ("responses", {"input": text, "instructions": text}),
    "grammar of a tool": lambda text: custom("lark", text),
    "expression of a tool": lambda text: custom("regex", text),
    "message": lambda text: ("messages", {"max_tokens": 4, "messages": [{"role": "user", "content": text}]}),
    "embeddings": lambda text: ("embeddings", {"input": text}),
    "rerank": lambda text: ("rerank", {"query": text, "documents": [text]}),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_hostile_text_takes_linear_time(serve, field):
    """So it keeps nobody waiting."""
    server = serve(*["Hello."] * 15 * len(TEXTS), tool_search=1000)
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=200) as client:

        def send(size: int, text: str) -> None:
            path, body = FIELDS[field](text[:size])
            answer = client.post(path, json={"model": "builtin", **body})
            assert answer.status_code < 500, answer.text[:200]

        for text in TEXTS:
            check_growth(partial(send, text=text), SIZE)


MOST_READ = 20_000


def read(size: int, answer: str) -> None:
    stream = CallStream(parser_named("lfm"), ["f"])
    stream.feed(f"<|tool_call_start|>{answer[:size]}<|tool_call_end|>")
    stream.finish()


def test_a_hostile_answer_is_read_in_linear_time():
    """What a model writes as arguments of calls."""
    for text in (*TEXTS, "'a'," * SIZE, "x#," * SIZE, "\\'" * SIZE, "f(a='b')," * SIZE, f"b'){' ' * SIZE}"):
        for head in ("", "f(a='", "[f(a=["):
            check_growth(partial(read, answer=head + text), MOST_READ)
