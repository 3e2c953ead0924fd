"""Anthropic's Messages API: requests read, replies and errors written."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..conversation.calls.declaration import FIND, references, referred
from ..conversation.media.fetching import UrlAccess
from ..conversation.messages import LeapFunctionCall
from ..conversation.options import GENERATION
from ..conversation.responses import Complete, FunctionResult
from ..errors import GenerationStats, LeapError, LeapGenerationPromptExceedContextLengthError, LeapSerializationError
from ..schemas.json_values import JsonObject, list_at, object_at, text_at
from .openai.fields import EFFORTS, BodyFields, functions_among, read_options
from .openai.replies import (
    STATUSES,
    ReplyWriter,
    finish_reason,
    status_of,
    with_id,
)
from .openai.requests import GenerationRequest, read_conversation
from .openai.responses_reply import typed_event

OPTIONS = {row.anthropic: row.chat[0] for row in GENERATION.values() if row.anthropic}
"""Fields of a request by those of a chat request."""
HARMLESS = ("container", "inference_geo", "context_management", "cache_control", "speed")
CHOICES = {"auto": "auto", "none": "none", "any": "required"}


def read_messages(body: object, *, counts: bool = False, urls: UrlAccess = UrlAccess.DATA) -> GenerationRequest:
    """A request to /v1/messages, or with ``counts`` to /v1/messages/count_tokens, which needs no ``max_tokens``.

    Raises LeapSerializationError or LeapOptionsError.
    """
    fields = BodyFields(body)
    values = {name: value for own, name in OPTIONS.items() if (value := fields.take(own)) is not None}
    for name in HARMLESS:
        fields.take(name)
    if "max_tokens" not in values and not counts:
        raise LeapSerializationError("is required", path="max_tokens")
    messages = _chat_messages(fields.take("system"), fields.take("messages"))
    values["stop"] = fields.take("stop_sequences") or None
    listed = fields.take("tools")
    search = None
    if isinstance(listed, list):
        search = next((str(tool["name"]) for tool in listed if _searches(tool)), None)
        listed = [tool for tool in listed if not _searches(tool)]
    functions, notes = functions_among(listed, "custom", _declared, usual="custom")
    given = fields.object("tool_choice")
    kind, single_call = given.text("type"), given.boolean("disable_parallel_tool_use", False)
    choice = {"function": {"name": given.text("name")}} if kind == "tool" else CHOICES.get(str(kind))
    if kind is not None and choice is None:
        raise LeapSerializationError(f"{kind!r} is not one of auto, any, tool, none", path="tool_choice.type")
    values |= _thinking(fields)
    request = read_conversation(
        fields, messages, functions, read_options(values, choice), urls=urls, single_call=single_call, search=search
    )
    return replace(request, notes=(*notes, *request.notes))


def _thinking(fields: BodyFields) -> JsonObject:
    """The options of reasoning, and the shape of the answer."""
    values: JsonObject = {}
    thinking = fields.object("thinking")
    if (budget := thinking.take("budget_tokens")) is not None:
        values["think_budget"] = budget
    thinking.take("display")
    if thinking.text("type") in ("enabled", "adaptive"):
        values["enable_thinking"] = True
    output = fields.object("output_config")
    effort = output.take("effort")
    if effort in EFFORTS and "think_budget" not in values and "enable_thinking" in values:
        values["reasoning_effort"] = effort
    form = output.take("format") or fields.take("output_format")
    if form is not None:
        schema = object_at(form, "output_config.format").get("schema")
        values["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return values


SEARCH = re.compile(r"tool_search_tool_(regex|bm25)_\d{8}")
"""Tools with which the server finds tools that have ``defer_loading``."""


def _searches(tool: object) -> bool:
    return isinstance(tool, dict) and SEARCH.fullmatch(str(tool.get("type"))) is not None and "name" in tool


BILLING = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?")
"""What Claude Code puts before its system prompt: it is another one each time, and the prompts would share nothing."""


def batch_body(body: JsonObject, request: GenerationRequest) -> JsonObject:
    """What a line of a batch has for ``body``, which was read as ``request``. What its messages name is fetched when
    the line is answered."""
    return request.to_line(_chat_messages(body.get("system"), body.get("messages")))


def _chat_messages(system: object, given: object) -> list[JsonObject]:
    """OpenAI's messages of a system prompt and of Anthropic's messages. Raises LeapSerializationError."""
    told = "" if system is None else BILLING.sub("", _texts(system, "system"), count=1)
    messages = [{"role": "system", "content": told}] if told else []
    for n, message in enumerate(list_at(given, "messages")):
        messages += _messages(object_at(message, f"messages[{n}]"), f"messages[{n}]")
    return messages


def _messages(message: JsonObject, path: str) -> list[JsonObject]:
    """The chat messages of one message: results of tools are messages of their own, before the user's words."""
    role = text_at(message.get("role"), f"{path}.role")
    if role not in ("user", "assistant", "system"):
        raise LeapSerializationError(f"unknown role {role!r}; known are user, assistant", path=f"{path}.role")
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    parts: list[JsonObject] = []
    calls: list[JsonObject] = []
    results: list[JsonObject] = []
    reasoning = ""
    for n, block in enumerate(list_at(content, f"{path}.content")):
        where = f"{path}.content[{n}]"
        block = object_at(block, where)
        kind = block.get("type")
        if kind in CONTENT:
            parts += _content(block, where)
        elif kind == "thinking":
            reasoning += text_at(block.get("thinking"), f"{where}.thinking")
        elif kind == "tool_use":
            calls.append(_call(block, where))
        elif kind == "server_tool_use":
            query = next((str(text) for text in object_at(block.get("input"), f"{where}.input").values()), "")
            searching = _call({**block, "name": FIND, "input": {"query": query}}, where)
            results.append(
                {"role": "assistant", "content": _joined(parts) if parts else None, "tool_calls": [searching]}
            )
            parts = []
        elif kind == "tool_search_tool_result":
            found = object_at(block.get("content"), f"{where}.content")
            names = _referred(found.get("tool_references") or [], f"{where}.content.tool_references")
            results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": references(names)})
        elif kind == "tool_result":
            results.append(_result(block, where))
        elif kind != "redacted_thinking":
            raise LeapSerializationError(f"blocks of type {kind!r} are not supported", path=f"{where}.type")
    if not (parts or calls or reasoning):
        return results
    value: JsonObject = {"role": role, "content": _joined(parts) if parts else None}
    if calls:
        value["tool_calls"] = calls
    if reasoning:
        value["reasoning_content"] = reasoning
    return [*results, value]


def _joined(parts: list[JsonObject]) -> str | list[JsonObject]:
    return "".join(part["text"] for part in parts) if all(part["type"] == "text" for part in parts) else parts


CONTENT = ("text", "image", "document", "search_result")
"""Blocks that a message of the user's and the result of a tool may have."""


def _content(block: JsonObject, path: str) -> list[JsonObject]:
    kind = block.get("type")
    if kind == "image":
        return [_image(object_at(block.get("source"), f"{path}.source"), f"{path}.source")]
    if kind == "document":
        return _document(block, path)
    if kind == "search_result":
        text = _texts(block.get("content"), f"{path}.content")
        return [{"type": "text", "text": f"{block.get('title') or ''}\n{block.get('source') or ''}\n{text}\n"}]
    return [{"type": "text", "text": _texts([block], path)}]


def _image(source: JsonObject, path: str) -> JsonObject:
    if source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source.get("url")}}
    data, kind = text_at(source.get("data"), f"{path}.data"), text_at(source.get("media_type"), f"{path}.media_type")
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def _call(block: JsonObject, path: str) -> JsonObject:
    given = block.get("input")
    arguments = given if isinstance(given, str) else json.dumps(object_at(given, f"{path}.input"), ensure_ascii=False)
    function = {"name": text_at(block.get("name"), f"{path}.name"), "arguments": arguments}
    return {"id": text_at(block.get("id"), f"{path}.id"), "type": "function", "function": function}


def _result(block: JsonObject, path: str) -> JsonObject:
    """The result of a tool, as a chat message."""
    parts: list[JsonObject] = [{"type": "text", "text": "Error: "}] if block.get("is_error") is True else []
    content = block.get("content") or ""
    if isinstance(content, str):
        parts.append({"type": "text", "text": content})
    elif all(isinstance(each, dict) and each.get("type") == "tool_reference" for each in list_at(content, path)):
        parts = [{"type": "text", "text": references(_referred(content, f"{path}.content"))}]
    else:
        for n, each in enumerate(list_at(content, f"{path}.content")):
            where = f"{path}.content[{n}]"
            found = _content(object_at(each, where), where)
            if n and found[0]["type"] == "text":
                found[0]["text"] = "\n" + found[0]["text"]
            parts += found
    id = text_at(block.get("tool_use_id"), f"{path}.tool_use_id")
    return {"role": "tool", "tool_call_id": id, "content": _joined(parts)}


def _referred(value: object, path: str) -> list[str]:
    """The names in a list of ``tool_reference`` blocks."""
    blocks = [object_at(each, f"{path}[{n}]") for n, each in enumerate(list_at(value, path))]
    return [text_at(each.get("tool_name"), f"{path}[{n}].tool_name") for n, each in enumerate(blocks)]


def _document(block: JsonObject, path: str) -> list[JsonObject]:
    """A document as its text, its title and context before it, and the pictures in it."""
    source = object_at(block.get("source"), f"{path}.source")
    head = "".join(f"{block[name]}\n" for name in ("title", "context") if isinstance(block.get(name), str))
    kind = source.get("type")
    if kind == "text":
        return [{"type": "text", "text": f"{head}{text_at(source.get('data'), f'{path}.source.data')}\n"}]
    if kind in ("base64", "url"):
        ending = ".pdf" if source.get("media_type") == "application/pdf" else ""
        named = str(block.get("title") or "document")
        data = source.get("url") if kind == "url" else text_at(source.get("data"), f"{path}.source.data")
        file = {"filename": named if named.endswith(ending) else named + ending, "file_data": data}
        context = [{"type": "text", "text": head}] if block.get("context") else []
        return [*context, {"type": "file", "file": file}]
    if kind != "content":
        raise LeapSerializationError(
            f"documents of type {kind!r} are not read", path=f"{path}.source.type", hint="send the document's text"
        )
    content = source.get("content")
    parts: list[JsonObject] = [{"type": "text", "text": head}]
    if isinstance(content, str):
        return [{"type": "text", "text": f"{head}{content}\n"}]
    for n, each in enumerate(list_at(content, f"{path}.source.content")):
        where = f"{path}.source.content[{n}]"
        found = _content(object_at(each, where), where)
        if found[-1]["type"] == "text":
            found[-1]["text"] += "\n"
        parts += found
    return parts


def _texts(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    texts = []
    for n, block in enumerate(list_at(value, path)):
        block = object_at(block, f"{path}[{n}]")
        if block.get("type") != "text":
            raise LeapSerializationError(
                f"blocks of type {block.get('type')!r} are not supported here", path=f"{path}[{n}].type"
            )
        texts.append(text_at(block.get("text"), f"{path}[{n}].text"))
    return "\n".join(texts)


def _declared(tool: JsonObject) -> JsonObject:
    """A function as chat requests declare it."""
    described = {"description": tool["description"]} if tool.get("description") else {}
    deferred = {"defer_loading": True} if tool.get("defer_loading") is True else {}
    return {"name": tool.get("name"), "parameters": tool.get("input_schema"), **described, **deferred}


STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""By HTTP status; the others are ``api_error``."""


def error_body(status: int, error: LeapError) -> JsonObject:
    """Anthropic's error object."""
    message = error.message if error.hint is None else f"{error.message} ({error.hint})"
    if isinstance(error, LeapGenerationPromptExceedContextLengthError):  # by these words clients know it
        message = f"prompt is too long: {error.prompt_tokens} tokens > {error.context_size} maximum"
    return {"type": "error", "error": {"type": ERROR_TYPES.get(status, "api_error"), "message": message}}


def batch_error(custom_id: str, code: str, message: str) -> JsonObject:
    """A line of a message batch's results for a request that failed; ``code`` as in OpenAI's error object."""
    status = next((row[1] for row in STATUSES if row[3] == code), 500)
    error = {"type": ERROR_TYPES.get(status, "api_error"), "message": message}
    return {"custom_id": custom_id, "result": {"type": "errored", "error": {"type": "error", "error": error}}}


def batch_answer(custom_id: str, complete: Complete, model: str, id: str) -> JsonObject:
    """A line of a message batch's results. The same answer becomes the same line."""
    reply = MessagesReply(GenerationRequest(), model, id=id)
    return {"custom_id": custom_id, "result": {"type": "succeeded", "message": reply.whole(complete)}}


class MessagesReply(ReplyWriter):
    """The answer to one request; ``model`` is how the request named it, ``prompt_tokens`` the length of its prompt as
    far as it is known when the answer begins."""

    def __init__(
        self, request: GenerationRequest, model: str, *, id: str | None = None, prompt_tokens: int | None = None
    ) -> None:
        super().__init__(request)
        self._model = model
        self.id = id or f"msg_{secrets.token_hex(12)}"
        self._prompt_tokens = prompt_tokens
        self._blocks = 0
        self._open = ""
        self._searched = 0

    def _whole(self, complete: Complete) -> JsonObject:
        message = complete.full_message
        blocks: list[JsonObject] = []
        if message.reasoning_content:
            blocks.append({"type": "thinking", "thinking": message.reasoning_content, "signature": ""})
        for result in complete.searches if self._request.search else ():
            blocks += self._search_blocks(result)
        if message.text or not message.function_calls:
            blocks.append({"type": "text", "text": message.text})
        blocks += [_tool_use(with_id(call)) for call in message.function_calls or ()]
        return {**self._body(blocks, complete.stats), **_stop(complete), "leap": complete.reported()}

    def begin(self) -> bytes:
        opened = self._body([], None)
        opened["usage"]["input_tokens"] = self._prompt_tokens or 0
        return _event("message_start", message=opened) + self.ping()

    def _text_events(self, text: str) -> Iterator[bytes]:
        yield from self._switch("text", {"type": "text", "text": ""})
        yield self._delta({"type": "text_delta", "text": text})

    def _reasoning_events(self, reasoning: str) -> Iterator[bytes]:
        yield from self._switch("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        yield self._delta({"type": "thinking_delta", "thinking": reasoning})

    def _calls_events(self, calls: Sequence[LeapFunctionCall]) -> Iterator[bytes]:
        for call in calls:
            block = _tool_use(with_id(call))
            arguments = json.dumps(block["input"], ensure_ascii=False)
            yield from self._close()
            yield from self._switch("tool_use", {**block, "input": {}})
            yield self._delta({"type": "input_json_delta", "partial_json": arguments})
            yield from self._close()

    def _search_events(self, result: FunctionResult) -> Iterator[bytes]:
        for block in self._search_blocks(result):
            yield from self._close()
            yield from self._switch(block["type"], {**block, **({"input": {}} if "input" in block else {})})
            if "input" in block:
                yield self._delta({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
            yield from self._close()

    def _end_events(self, complete: Complete) -> Iterator[bytes]:
        yield from self._close()
        counts = _usage(complete.stats)
        yield _event("message_delta", delta=_stop(complete), usage=counts, leap=complete.reported())
        yield _event("message_stop")

    def _search_blocks(self, result: FunctionResult) -> list[JsonObject]:
        """A search for tools, and what it found."""
        self._searched += 1
        id = f"srvtoolu_{self.id.removeprefix('msg_')}{self._searched:02}"
        name = str(self._request.search)
        asked = {"pattern" if name.endswith("regex") else "query": result.call.arguments.get("query", "")}
        found = [{"type": "tool_reference", "tool_name": name} for name in referred(result.text) or ()]
        content = {"type": "tool_search_tool_search_result", "tool_references": found}
        return [
            {"type": "server_tool_use", "id": id, "name": name, "input": asked},
            {"type": "tool_search_tool_result", "tool_use_id": id, "content": content},
        ]

    def ping(self) -> bytes:
        """A keep-alive in a stream: an event, because clients do not count comments."""
        return _event("ping")

    def failed(self, error: LeapError) -> bytes:
        """The event that ends a stream whose generation failed."""
        return typed_event("error", error_body(status_of(error)[0], error))

    def _body(self, blocks: list[JsonObject], stats: GenerationStats | None) -> JsonObject:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": blocks,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(stats),
        }

    def _switch(self, kind: str, block: JsonObject) -> Iterator[bytes]:
        """Be in a block of this kind: close another one, and open it where it is not open."""
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        yield _event("content_block_start", index=self._blocks, content_block=block)

    def _close(self) -> Iterator[bytes]:
        if self._open:
            yield _event("content_block_stop", index=self._blocks)
            self._open = ""
            self._blocks += 1

    def _delta(self, delta: JsonObject) -> bytes:
        return _event("content_block_delta", index=self._blocks, delta=delta)


def _event(kind: str, **fields: object) -> bytes:
    return typed_event(kind, {"type": kind, **fields})


def _tool_use(call: LeapFunctionCall) -> JsonObject:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}


def _stop(complete: Complete) -> JsonObject:
    """Why the answer ended, and at which of the request's stop sequences."""
    reason = STOP_REASONS[finish_reason(complete)]
    if reason == "end_turn" and complete.stop_string is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": complete.stop_string}
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(stats: GenerationStats | None) -> JsonObject:
    """Anthropic counts restored prompt tokens beside the prompt's."""
    stats = stats or GenerationStats(0, 0, 0, 0.0)
    return {
        "input_tokens": stats.prompt_tokens - stats.cached_prompt_tokens,
        "cache_read_input_tokens": stats.cached_prompt_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": stats.completion_tokens,
    }
