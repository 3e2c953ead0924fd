"""Requests to Anthropic's Messages API, as chat requests."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from typing import Any

from ..errors import LeapSerializationError
from ..json_fields import list_at, object_at, text_at
from ..media.fetching import UrlAccess
from ..openai.fields import NOTE, BodyFields, Unknown, functions_among
from ..openai.requests import GenerationRequest, read_chat


SAME_NAME = ("model", "temperature", "top_p", "top_k", "stream", "max_tokens", "leap", "keep_alive")
HARMLESS = ("metadata", "service_tier", "container", "inference_geo", "context_management", "cache_control", "speed")
CHOICES = {"auto": "auto", "none": "none", "any": "required"}


def read_messages(
    body: object, *, counts: bool = False, unknown: Unknown = NOTE, urls: UrlAccess = UrlAccess.DATA
) -> GenerationRequest:
    """A request to /v1/messages, or with ``counts`` to /v1/messages/count_tokens, which needs no ``max_tokens``.

    Raises LeapSerializationError or LeapOptionsError.
    """
    chat, notes = chat_body(body, counts=counts, unknown=unknown)
    request = read_chat(chat, unknown=unknown, urls=urls)
    return GenerationRequest(**{**vars(request), "notes": (*notes, *request.notes)})


def chat_body(body: object, *, counts: bool = False, unknown: Unknown = NOTE) -> tuple[JsonObject, tuple[str, ...]]:
    """The same request as a body of /v1/chat/completions, and which fields were ignored. Raises
    LeapSerializationError."""
    fields = BodyFields(body)
    chat: JsonObject = {name: value for name in SAME_NAME if (value := fields.take(name)) is not None}
    for name in HARMLESS:
        fields.take(name)
    if "max_tokens" not in chat and not counts:
        raise LeapSerializationError("is required", path="max_tokens")
    system = fields.take("system")
    opening = [] if system is None else [{"role": "system", "content": _texts(system, "system")}]
    messages = [*opening]
    for n, message in enumerate(list_at(fields.take("messages"), "messages")):
        messages += _messages(object_at(message, f"messages[{n}]"), f"messages[{n}]")
    chat["messages"] = messages
    stop = fields.take("stop_sequences")
    if stop:
        chat["stop"] = stop
    tools, notes = functions_among(fields.take("tools"), "custom", _declared, usual="custom")
    if tools:
        chat["tools"] = tools
    choice = fields.object("tool_choice")
    kind = choice.text("type")
    if choice.boolean("disable_parallel_tool_use", False):
        chat["parallel_tool_calls"] = False
    if kind == "tool":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.text("name")}}
    elif kind is not None:
        if kind not in CHOICES:
            raise LeapSerializationError(f"{kind!r} is not one of auto, any, tool, none", path="tool_choice.type")
        chat["tool_choice"] = CHOICES[kind]
    thinking = fields.object("thinking")
    thinking.take("budget_tokens")
    thinking.take("display")
    if thinking.text("type") in ("enabled", "adaptive"):
        chat["enable_thinking"] = True
    output = fields.object("output_config")
    output.take("effort")
    form = output.take("format") or fields.take("output_format")
    if form is not None:
        schema = object_at(form, "output_config.format").get("schema")
        chat["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return chat, (*notes, *fields.finish(unknown))


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
        if kind == "text":
            parts.append({"type": "text", "text": text_at(block.get("text"), f"{where}.text")})
        elif kind == "image":
            parts.append(_image(object_at(block.get("source"), f"{where}.source"), f"{where}.source"))
        elif kind == "thinking":
            reasoning += text_at(block.get("thinking"), f"{where}.thinking")
        elif kind == "tool_use":
            calls.append(_call(block, where))
        elif kind == "tool_result":
            results.append(_result(block, where))
        elif kind == "document":
            parts += _document(block, where)
        elif kind == "search_result":
            text = _texts(block.get("content"), f"{where}.content")
            parts.append({"type": "text", "text": f"{block.get('title') or ''}\n{block.get('source') or ''}\n{text}\n"})
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


def _image(source: JsonObject, path: str) -> JsonObject:
    if source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source.get("url")}}
    data, kind = text_at(source.get("data"), f"{path}.data"), text_at(source.get("media_type"), f"{path}.media_type")
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def _call(block: JsonObject, path: str) -> JsonObject:
    arguments = json.dumps(object_at(block.get("input"), f"{path}.input"), ensure_ascii=False)
    function = {"name": text_at(block.get("name"), f"{path}.name"), "arguments": arguments}
    return {"id": text_at(block.get("id"), f"{path}.id"), "type": "function", "function": function}


def _result(block: JsonObject, path: str) -> JsonObject:
    """The result of a tool: texts, and pictures beside them."""
    parts: list[JsonObject] = [{"type": "text", "text": "Error: "}] if block.get("is_error") is True else []
    content = block.get("content") or ""
    if isinstance(content, str):
        parts.append({"type": "text", "text": content})
    else:
        for n, each in enumerate(list_at(content, f"{path}.content")):
            where = f"{path}.content[{n}]"
            each = object_at(each, where)
            if each.get("type") == "image":
                parts.append(_image(object_at(each.get("source"), f"{where}.source"), f"{where}.source"))
            elif each.get("type") == "document":
                parts += _document(each, where)
            else:
                parts.append({"type": "text", "text": ("\n" if n else "") + _texts([each], f"{path}.content")})
    id = text_at(block.get("tool_use_id"), f"{path}.tool_use_id")
    return {"role": "tool", "tool_call_id": id, "content": _joined(parts)}


def _document(block: JsonObject, path: str) -> list[JsonObject]:
    """A document as its text, its title and context before it, and the pictures in it."""
    source = object_at(block.get("source"), f"{path}.source")
    head = "".join(f"{block[name]}\n" for name in ("title", "context") if isinstance(block.get(name), str))
    kind = source.get("type")
    if kind == "text":
        return [{"type": "text", "text": f"{head}{text_at(source.get('data'), f'{path}.source.data')}\n"}]
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
        each = object_at(each, where)
        if each.get("type") == "image":
            parts.append(_image(object_at(each.get("source"), f"{where}.source"), f"{where}.source"))
        else:
            parts.append({"type": "text", "text": _texts([each], where) + "\n"})
    return parts


def _texts(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    texts = []
    for n, block in enumerate(list_at(value, path)):
        block = object_at(block, f"{path}[{n}]")
        if block.get("type") != "text":
            raise LeapSerializationError("only texts are supported here", path=f"{path}[{n}].type")
        texts.append(text_at(block.get("text"), f"{path}[{n}].text"))
    return "\n".join(texts)


def _declared(tool: JsonObject) -> JsonObject:
    """A function as chat requests declare it."""
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": tool.get("name"), "parameters": tool.get("input_schema"), **described}
