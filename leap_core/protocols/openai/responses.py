"""OpenAI's Responses API: its requests as chat requests, leap's responses as its objects and events."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...conversation.media.fetching import UrlAccess
from ...conversation.messages import LeapFunctionCall
from ...conversation.responses import Chunk, Complete, FunctionCalls, MessageResponse, ReasoningChunk
from ...errors import GenerationStats, LeapError, LeapSerializationError
from ...schemas.json_values import JsonObject, list_at, object_at, text_at
from .fields import EFFORTS, NOTE, BodyFields, Unknown, functions_among
from .replies import EVENT_STREAM, error_object, finish_reason, leap_fields, status_of, with_one_call
from .requests import GenerationRequest, read_chat

SAME_NAME = (
    "model",
    "temperature",
    "top_p",
    "stream",
    "parallel_tool_calls",
    "leap",
    "top_logprobs",
    "user",
    "metadata",
    "keep_alive",
)
HARMLESS = (
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "include",
    "truncation",
    "max_tool_calls",
    "stream_options",
    "context_management",
)
CUSTOM, LOCAL_SHELL = "custom", "local_shell"
"""Tools that take a text, and the shell of the client's machine."""
INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
COMMAND = {
    "type": "object",
    "properties": {"command": {"type": "array", "items": {"type": "string"}}},
    "required": ["command"],
}
SUMMARIZE = (
    "Summarize our conversation so far, so that it can go on from your summary alone: what was asked for, what was "
    "done and found, names of files, decisions, and what is left to do. Write the summary and nothing else."
)
SUMMARY = "What was said before, in short:\n"
TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")


@dataclass(frozen=True)
class ResponsesRequest:
    """``chat`` is what is asked of the model. ``own`` are the chat messages of this request alone, without those of
    ``previous`` and the instructions; ``keep``: true, false, or None where the request does not say. ``echo``: fields
    that the response repeats. ``background``: it is answered also when the client leaves."""

    chat: GenerationRequest
    own: list[JsonObject]
    previous: str | None
    keep: bool | None
    echo: JsonObject
    background: bool = False


def previous_of(body: object) -> str | None:
    """The id of the response that a request goes on from. Raises LeapSerializationError."""
    value = object_at(body, "body").get("previous_response_id")
    return None if value is None else text_at(value, "previous_response_id")


def conversation_of(body: object) -> str | None:
    """The id of the conversation that a request belongs to. Raises LeapSerializationError."""
    body = object_at(body, "body")
    value = body.get("conversation")
    if value is None:
        return None
    if body.get("previous_response_id") is not None:
        raise LeapSerializationError("cannot be combined with conversation", path="previous_response_id")
    return text_at(value.get("id") if isinstance(value, dict) else value, "conversation")


def read_responses(
    body: object, history: Sequence[JsonObject] = (), *, unknown: Unknown = NOTE, urls: UrlAccess = UrlAccess.DATA
) -> ResponsesRequest:
    """A request to /v1/responses. ``history``: the chat messages up to and with the previous response.

    Raises LeapSerializationError or LeapOptionsError.
    """
    fields = BodyFields(body)
    chat: JsonObject = {name: value for name in SAME_NAME if (value := fields.take(name)) is not None}
    for name in HARMLESS:
        fields.take(name)
    background = fields.boolean("background", False)
    conversation = conversation_of(body)
    fields.take("conversation")
    previous, keep = fields.text("previous_response_id"), fields.take("store")
    instructions = fields.text("instructions")
    own = messages_of(fields.take("input"))
    opening = [] if instructions is None else [{"role": "system", "content": instructions}]
    chat["messages"] = [*opening, *history, *own]
    most = fields.take("max_output_tokens")
    if most is not None:
        chat["max_tokens"] = most
    tools, left_out = functions_among(_as_functions(fields.take("tools")), "function", _declared)
    if tools:
        chat["tools"] = tools
    choice = fields.take("tool_choice")
    if choice is not None:
        chat["tool_choice"] = _tool_choice(choice)
    shape = fields.object("text")
    form = shape.take("format")
    shape.take("verbosity")
    if form is not None:
        chat["response_format"] = _response_format(object_at(form, "text.format"))
    reasoning = fields.object("reasoning")
    reasoning.take("summary")
    reasoning.take("generate_summary")
    effort = reasoning.text("effort")
    if effort in EFFORTS:
        chat["enable_thinking"] = True
    elif effort not in (None, "none"):
        raise LeapSerializationError(f"{effort!r} is not one of none, {', '.join(EFFORTS)}", path="reasoning.effort")
    notes = (*fields.finish(unknown), *left_out)
    request = read_chat(chat, unknown=unknown, urls=urls)
    request = GenerationRequest(**{**vars(request), "notes": (*notes, *request.notes)})
    echo = {
        "background": background,
        "conversation": None if conversation is None else {"id": conversation},
        "instructions": instructions,
        "max_output_tokens": most,
        "metadata": chat.get("metadata") or {},
        "parallel_tool_calls": not request.single_call,
        "previous_response_id": previous,
        "reasoning": {"effort": effort, "summary": None},
        "store": keep is True,
        "temperature": chat.get("temperature"),
        "text": {"format": form or {"type": "text"}},
        "tool_choice": choice or "auto",
        "tools": body.get("tools") or [] if isinstance(body, dict) else [],
        "top_p": chat.get("top_p"),
        "truncation": "disabled",
    }
    return ResponsesRequest(request, own, previous, keep if isinstance(keep, bool) else None, echo, background)


def messages_of(value: object) -> list[JsonObject]:
    """The chat messages of ``input``: a text, or a list of items."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    messages: list[JsonObject] = []
    reasoning = ""
    for n, item in enumerate(list_at(value, "input")):
        path = f"input[{n}]"
        item = object_at(item, path)
        kind = item.get("type", "message")
        if kind == "reasoning":
            parts = [*(item.get("content") or ()), *(item.get("summary") or ())]
            reasoning += "".join(_text(part, path) for part in parts)
            continue
        if kind in CALLS:
            call = _call({**item, **CALLS[kind](item)}, path)
            last = messages[-1] if messages else {}
            if last.get("role") == "assistant" and not reasoning:
                last.setdefault("tool_calls", []).append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind in OUTPUTS:
            call_id = text_at(item.get("call_id", item.get("id")), f"{path}.call_id")
            output = _output(item.get("output"), f"{path}.output")
            messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
        elif kind in ("compaction", "compaction_summary"):
            summary = text_at(item.get("encrypted_content"), f"{path}.encrypted_content")
            messages.append({"role": "user", "content": SUMMARY + summary})
        elif kind == "message":
            role = text_at(item.get("role"), f"{path}.role")
            messages.append({"role": role, "content": _content(item.get("content"), f"{path}.content")})
        else:
            raise LeapSerializationError(f"items of type {kind!r} are not supported", path=f"{path}.type")
        if reasoning and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning_content"] = reasoning
        reasoning = ""
    return messages


def _shell_call(item: JsonObject) -> JsonObject:
    action = item.get("action")
    command = action.get("command") if isinstance(action, dict) else None
    return {
        "name": LOCAL_SHELL,
        "arguments": json.dumps({"command": command or []}),
        "call_id": item.get("call_id", item.get("id")),
    }


CALLS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "function_call": lambda item: {},
    "custom_tool_call": lambda item: {"arguments": json.dumps({"input": item.get("input")})},
    "local_shell_call": _shell_call,
}
"""Items that are calls, and what a function's call says instead of theirs."""
OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def _as_functions(tools: object) -> object:
    """The tools with those that take a text, and the client's shell, as the functions that the model gets to see."""
    if not isinstance(tools, list):
        return tools
    functions = []
    for tool in tools:
        if isinstance(tool, dict) and tool.get("type") == CUSTOM:
            tool = {"type": "function", "name": tool.get("name"), "description": _described(tool), "parameters": INPUT}
        elif isinstance(tool, dict) and tool.get("type") == LOCAL_SHELL:
            told = "Run a command on the user's machine: the program and its arguments."
            tool = {"type": "function", "name": LOCAL_SHELL, "description": told, "parameters": COMMAND}
        functions.append(tool)
    return functions


def _described(tool: JsonObject) -> str:
    """What a tool that takes a text is for, with the grammar of its text where it has one."""
    form = tool.get("format")
    definition = form.get("definition") if isinstance(form, dict) else None
    grammar = f"\nIts input follows this grammar:\n{definition}" if definition else ""
    return str(tool.get("description") or "") + grammar


def _call(item: JsonObject, path: str) -> JsonObject:
    name = text_at(item.get("name"), f"{path}.name")
    arguments = text_at(item.get("arguments"), f"{path}.arguments")
    call_id = text_at(item.get("call_id"), f"{path}.call_id")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _content(value: object, path: str) -> str | list[JsonObject]:
    if isinstance(value, str):
        return value
    parts = [object_at(part, f"{path}[{n}]") for n, part in enumerate(list_at(value, path))]
    if all(part.get("type") in TEXT_PARTS for part in parts):
        return "".join(_text(part, path) for part in parts)
    return [_part(part, f"{path}[{n}]") for n, part in enumerate(parts)]


def _part(part: JsonObject, path: str) -> JsonObject:
    kind = part.get("type")
    if kind in TEXT_PARTS:
        return {"type": "text", "text": _text(part, path)}
    if kind == "input_image":
        url = text_at(part.get("image_url"), f"{path}.image_url")
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    raise LeapSerializationError(f"parts of type {kind!r} are not supported", path=f"{path}.type")


def _text(part: object, path: str) -> str:
    part = object_at(part, path)
    return text_at(part.get("refusal") if part.get("type") == "refusal" else part.get("text"), f"{path}.text")


def _output(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    content = _content(value, path)
    return content if isinstance(content, str) else json.dumps(content)


def _declared(tool: JsonObject) -> JsonObject:
    """A function as chat requests declare it."""
    return {name: tool[name] for name in ("name", "description", "parameters", "strict") if name in tool}


def _tool_choice(value: object) -> object:
    if isinstance(value, dict) and "name" in value:
        return {"type": "function", "function": {"name": value["name"]}}
    return value


def _response_format(form: JsonObject) -> JsonObject:
    if form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {"name": form.get("name"), "schema": form.get("schema")}}


class ResponsesReply:
    """The answer to one request; ``model`` is how the request named it. ``on_complete`` is called with a whole answer
    and its chat message, so that another request can go on from it; it says why the answer is not stored, if it is not.
    ``id`` and ``created``: of an answer that is written once more; the same responses become the same events."""

    media_type = EVENT_STREAM

    def __init__(
        self,
        request: ResponsesRequest,
        model: str,
        on_complete: Callable[[JsonObject, JsonObject], str | None] = lambda *_: None,
        *,
        id: str | None = None,
        created: int | None = None,
    ) -> None:
        self._request, self._model, self._on_complete = request, model, on_complete
        self.id = id or new_response_id()
        self.stores = request.keep is True or request.echo.get("conversation") is not None
        self.finished: JsonObject | None = None
        """The whole answer, when it has come to its end."""
        self._created = created or int(time.time())
        self._ids = 0
        self._sequence = 0
        tools = request.echo.get("tools") or ()
        self._kinds = {
            LOCAL_SHELL if tool.get("type") == LOCAL_SHELL else tool.get("name"): tool.get("type")
            for tool in tools
            if isinstance(tool, dict)
        }
        """The type of each tool, by its name."""
        self._items: list[JsonObject] = []
        self._open: JsonObject | None = None
        self._text = ""

    def whole(self, complete: Complete) -> JsonObject:
        """The answer in one piece."""
        complete = with_one_call(complete) if self._request.chat.single_call else complete
        message = complete.full_message
        calls = [self._with_id(call) for call in message.function_calls or ()]
        items = []
        if message.reasoning_content:
            items.append(self._reasoning(message.reasoning_content))
        if message.text or not calls:
            items.append(self._message(message.text))
        items += [self._call(call) for call in calls]
        self._items = items
        if finish_reason(complete) == "length":
            items[-1]["status"] = "incomplete"
        return self._finished(complete)

    def begin(self) -> bytes:
        """What a stream opens with."""
        opened = self._body("in_progress", [])
        return self._event("response.created", response=opened) + self._event("response.in_progress", response=opened)

    def pieces(self, response: MessageResponse) -> Iterator[bytes]:
        """The events that one response becomes."""
        if isinstance(response, Chunk):
            if self._open is None or self._open["type"] != "message":
                yield from self._close_item()
                yield from self._open_item(self._message("", "in_progress"))
                yield self._part_event("response.content_part.added", part={**_output_text(""), "logprobs": []})
            self._text += response.text
            yield self._part_event("response.output_text.delta", delta=response.text, logprobs=[])
        elif isinstance(response, ReasoningChunk):
            if self._open is None or self._open["type"] != "reasoning":
                yield from self._close_item()
                yield from self._open_item(self._reasoning("", "in_progress"))
            self._text += response.reasoning
            yield self._part_event("response.reasoning_text.delta", delta=response.reasoning)
        elif isinstance(response, FunctionCalls):
            yield from self._close_item()
            for call in response.function_calls:
                if self._request.chat.single_call and any(item["type"] in CALLS for item in self._items):
                    break
                yield from self._call_events(self._with_id(call))
        elif isinstance(response, Complete):
            status = "incomplete" if finish_reason(response) == "length" else "completed"
            yield from self._close_item(status)
            if not self._items:
                yield from self._open_item(self._message("", "in_progress"))
                yield from self._close_item(status)
            body = self._finished(response)
            yield self._event(f"response.{body['status']}", response=body)

    def end(self) -> bytes:
        """What a stream closes with."""
        return b""

    def failed(self, error: LeapError) -> bytes:
        """The event that ends a stream whose generation failed."""
        _, kind, code = status_of(error)
        return self.ended("failed", error_object(error, kind, code)["message"])

    def _finished(self, complete: Complete) -> JsonObject:
        cut = finish_reason(complete) == "length"
        body = self._body("incomplete" if cut else "completed", self._items)
        if cut:
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        body["usage"] = _usage(complete.stats)
        calls = [
            {"id": item["call_id"], "type": "function", "function": {k: item[k] for k in ("name", "arguments")}}
            for item in map(_plain_call, self._items)
            if item["type"] == "function_call"
        ]
        message: JsonObject = {"role": "assistant", "content": complete.full_message.text or None}
        if complete.full_message.reasoning_content:
            message["reasoning_content"] = complete.full_message.reasoning_content
        unstored = self._on_complete(body, message | ({"tool_calls": calls} if calls else {}))
        notes = self._request.chat.notes
        if unstored is not None:
            body["store"], notes = False, (*notes, unstored)
        self.finished = {**body, "leap": leap_fields(complete, notes)}
        return self.finished

    def so_far(self, status: str, problem: str | None = None) -> JsonObject:
        """The answer as far as it came; ``problem``: why it failed."""
        error = None if problem is None else {"code": "server_error", "message": problem}
        return {**self._body(status, [*self._items, *self._unfinished()]), "error": error}

    def _unfinished(self) -> Iterator[JsonObject]:
        """The item that is being made."""
        if self._open is not None and self._open["type"] == "message":
            yield {**self._open, "status": "incomplete", "content": [_output_text(self._text)]}
        elif self._open is not None and self._open["type"] == "reasoning":
            content = [{"type": "reasoning_text", "text": self._text}]
            yield {**self._open, "status": "incomplete", "content": content}

    def ended(self, status: str, problem: str | None = None) -> bytes:
        """The event that ends a stream whose answer did not come to its own end."""
        kind = "response.failed" if status == "failed" else "response.incomplete"
        return self._event(kind, response=self.so_far(status, problem))

    def _new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}_{hashlib.blake2b(f'{self.id}/{self._ids}'.encode(), digest_size=12).hexdigest()}"

    def _with_id(self, call: LeapFunctionCall) -> LeapFunctionCall:
        return call if call.id else replace(call, id=self._new_id("call"))

    def _body(self, status: str, items: list[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": list(items),
            "usage": None,
            **self._request.echo,
        }

    def _message(self, text: str, status: str = "completed") -> JsonObject:
        content = [_output_text(text)] if status == "completed" else []
        return {
            "id": self._new_id("msg"),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _reasoning(self, text: str, status: str = "completed") -> JsonObject:
        content = [{"type": "reasoning_text", "text": text}] if status == "completed" else []
        return {
            "id": self._new_id("rs"),
            "type": "reasoning",
            "summary": [],
            "content": content,
            "status": status,
        }

    def _call(self, call: LeapFunctionCall, status: str = "completed") -> JsonObject:
        written = call.to_json()
        kind = self._kinds.get(call.name)
        if kind == CUSTOM:
            given = {"call_id": written["id"], "name": call.name, "input": str(call.arguments.get("input", ""))}
            return {"id": self._new_id("ctc"), "type": "custom_tool_call", **given, "status": status}
        if kind == LOCAL_SHELL:
            action: JsonObject = {"type": "exec", "command": call.arguments.get("command") or [], "env": {}}
            return {
                "id": self._new_id("lsh"),
                "type": "local_shell_call",
                "call_id": written["id"],
                "action": action,
                "status": status,
            }
        return {
            "id": self._new_id("fc"),
            "type": "function_call",
            "call_id": written["id"],
            **written["function"],
            "status": status,
        }

    def _call_events(self, call: LeapFunctionCall) -> Iterator[bytes]:
        item = self._call(call, "in_progress")
        if item["type"] != "function_call":
            yield from self._other_call_events(item)
            return
        arguments, item["arguments"] = item["arguments"], ""
        yield from self._open_item(item)
        yield self._item_event("response.function_call_arguments.delta", delta=arguments)
        yield self._item_event("response.function_call_arguments.done", name=call.name, arguments=arguments)
        self._text = arguments
        yield from self._close_item()

    def _other_call_events(self, item: JsonObject) -> Iterator[bytes]:
        """Those of a call that is no function's."""
        if item["type"] == "custom_tool_call":
            text, opened = item["input"], {**item, "input": ""}
            yield from self._open_item(opened)
            yield self._item_event("response.custom_tool_call_input.delta", delta=text)
            yield self._item_event("response.custom_tool_call_input.done", input=text)
        else:
            yield from self._open_item(item)
        item = {**item, "status": "completed"}
        yield self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        self._open = None

    def _open_item(self, item: JsonObject) -> Iterator[bytes]:
        self._open, self._text = item, ""
        yield self._event("response.output_item.added", output_index=len(self._items), item=item)

    def _close_item(self, status: str = "completed") -> Iterator[bytes]:
        item, text = self._open, self._text
        if item is None:
            return
        if item["type"] == "message":
            item = {**item, "status": status, "content": [_output_text(text)]}
            yield self._part_event("response.output_text.done", text=text, logprobs=[])
            yield self._part_event("response.content_part.done", part=_output_text(text))
        elif item["type"] == "reasoning":
            item = {**item, "status": status, "content": [{"type": "reasoning_text", "text": text}]}
            yield self._part_event("response.reasoning_text.done", text=text)
        else:
            item = {**item, "status": status, "arguments": text}
        yield self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        self._open = None

    def _part_event(self, kind: str, **fields: object) -> bytes:
        return self._item_event(kind, content_index=0, **fields)

    def _item_event(self, kind: str, **fields: object) -> bytes:
        assert self._open is not None
        return self._event(kind, item_id=self._open["id"], output_index=len(self._items), **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        value = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return typed_event(kind, value)


class CompactedReply(ResponsesReply):
    """A conversation in short: what the user said, and an item that stands for all that was said."""

    def whole(self, complete: Complete) -> JsonObject:
        said = [message for message in self._request.own if message["role"] == "user"]
        own = [{**self._message(""), "role": "user", "content": _texts_of(each["content"])} for each in said]
        summary = complete.full_message.text.strip()
        item = {"id": self._new_id("cmp"), "type": "compaction", "encrypted_content": summary}
        return {
            "id": self.id,
            "object": "response.compaction",
            "created_at": self._created,
            "output": [*own, item],
            "usage": _usage(complete.stats),
        }


def compacting(body: object) -> JsonObject:
    """The request whose answer is the summary that a request to /v1/responses/compact asks for. Raises
    LeapSerializationError."""
    body = object_at(body, "body")
    if body.get("stream"):
        raise LeapSerializationError("is not supported here", path="stream")
    given = body.get("input")
    said = [{"role": "user", "content": given}] if isinstance(given, str) else list_at(given or [], "input")
    kept: JsonObject = {n: body[n] for n in ("model", "instructions", "previous_response_id") if n in body}
    return {**kept, "input": [*said, {"role": "user", "content": SUMMARIZE}], "store": False}


def _texts_of(content: object) -> list[JsonObject]:
    """The content of a user's message as an item of an answer has it; only texts stay."""
    if isinstance(content, str):
        return [_output_text(content)]
    parts = content if isinstance(content, list) else []
    return [_output_text(part["text"]) for part in parts if part.get("type") == "text"]


def _plain_call(item: JsonObject) -> JsonObject:
    """An item of a call as that of a function's call, which a chat message holds."""
    if item["type"] == "custom_tool_call":
        return {**item, "type": "function_call", "arguments": json.dumps({"input": item["input"]})}
    if item["type"] == "local_shell_call":
        return {**item, "type": "function_call", **_shell_call(item)}
    return item


def new_response_id() -> str:
    """A fresh id."""
    return f"resp_{secrets.token_hex(24)}"


def typed_event(kind: str, value: object) -> bytes:
    """One server-sent event with its type."""
    data = json.dumps(value, separators=(",", ":"), default=str).encode("ascii")
    return b"event: " + kind.encode("ascii") + b"\ndata: " + data + b"\n\n"


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": []}


def _usage(stats: GenerationStats | None) -> JsonObject | None:
    if stats is None:
        return None
    prompt = stats.prompt_tokens + stats.cached_prompt_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": stats.cached_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + stats.completion_tokens,
    }
