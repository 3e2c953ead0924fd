"""The requests of OpenAI's Responses API."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...conversation.calls.declaration import FIND, references
from ...conversation.media.fetching import UrlAccess
from ...conversation.options import GENERATION
from ...errors import LeapSerializationError
from ...schemas.json_values import JsonObject, list_at, object_at, text_at
from ...system.dataclass import dataclass
from .fields import EFFORTS, BodyFields, functions_among, read_options
from .requests import GenerationRequest, read_conversation

OPTIONS = {row.responses: row.chat[0] for row in GENERATION.values() if row.responses}
"""Fields of a request by those of a chat request."""
HARMLESS = ("client_metadata", "truncation", "max_tool_calls", "stream_options", "context_management")
CUSTOM, LOCAL_SHELL, NAMESPACE, TOOL_SEARCH = "custom", "local_shell", "namespace", "tool_search"
"""Tools that take a text, the shell of the client's machine, tools under a common name, and the search for tools."""
ENCRYPTED = "reasoning.encrypted_content"
"""What a client includes that keeps the conversation itself. leap hides nothing in it: it is the text in base64."""
INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
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
    that the response repeats. ``background``: it is answered also when the client leaves. ``include``: what the client
    wants beside the usual."""

    chat: GenerationRequest
    own: list[JsonObject]
    previous: str | None
    keep: bool | None
    echo: JsonObject
    background: bool = False
    include: tuple[str, ...] = ()


def previous_of(body: object) -> str | None:
    """The id of the response that a request continues from. Raises LeapSerializationError."""
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
    body: object, history: Sequence[JsonObject] = (), *, urls: UrlAccess = UrlAccess.DATA
) -> ResponsesRequest:
    """A request to /v1/responses. ``history``: the chat messages up to and with the previous response.

    Raises LeapSerializationError or LeapOptionsError.
    """
    fields = BodyFields(body)
    values: JsonObject = {name: value for own, name in OPTIONS.items() if (value := fields.take(own)) is not None}
    values["service_tier"] = fields.text("service_tier")
    for name in HARMLESS:
        fields.take(name)
    metadata, single_call = fields.take("metadata"), not fields.boolean("parallel_tool_calls", True)
    background = fields.boolean("background", False)
    conversation = conversation_of(body)
    fields.take("conversation")
    previous, keep = fields.text("previous_response_id"), fields.take("store")
    instructions = fields.text("instructions")
    given = fields.take("input")
    include = tuple(map(str, list_at(fields.take("include") or [], "include")))
    own = messages_of(given)
    opening = [] if instructions is None else [{"role": "system", "content": instructions}]
    listed = [] if (tools := fields.take("tools")) is None else list_at(tools, "tools")
    search = next((tool for tool in listed if isinstance(tool, dict) and tool.get("type") == TOOL_SEARCH), None)
    served = search is not None and search.get("execution", "server") == "server"
    offered = [tool for tool in listed if not (served and tool is search)] + _found_elsewhere(given, listed)
    functions, left_out = functions_among(as_functions(offered), "function", _declared)
    choice = fields.take("tool_choice")
    text = fields.object("text")
    text.take("verbosity")
    if (form := text.take("format")) is not None:
        values["response_format"] = _response_format(object_at(form, "text.format"))
    effort = _take_effort(fields)
    if effort in EFFORTS:
        values["reasoning_effort"] = effort
    chosen = _tool_choice(choice)
    parameters = read_options(values, chosen)
    further: JsonObject = {"single_call": single_call, "search": TOOL_SEARCH if served else None}
    request = read_conversation(fields, [*opening, *history, *own], functions, parameters, chosen, urls=urls, **further)
    request = replace(request, notes=(*request.notes, *left_out))
    echo = {
        "background": background,
        "conversation": None if conversation is None else {"id": conversation},
        "instructions": instructions,
        "max_output_tokens": values.get("max_tokens"),
        "metadata": metadata or {},
        "parallel_tool_calls": not single_call,
        "previous_response_id": previous,
        "reasoning": {"effort": effort, "summary": None},
        "store": keep is True,
        "temperature": values.get("temperature"),
        "text": {"format": form or {"type": "text"}},
        "tool_choice": choice or "auto",
        "tools": listed,
        "top_p": values.get("top_p"),
        "truncation": "disabled",
    }
    return ResponsesRequest(request, own, previous, keep if isinstance(keep, bool) else None, echo, background, include)


def _take_effort(fields: BodyFields) -> str | None:
    reasoning = fields.object("reasoning")
    reasoning.take("summary")
    reasoning.take("generate_summary")
    effort = reasoning.text("effort")
    if effort not in (None, "none", *EFFORTS):
        raise LeapSerializationError(f"{effort!r} is not one of none, {', '.join(EFFORTS)}", path="reasoning.effort")
    return effort


def messages_of(value: object) -> list[JsonObject]:
    """The chat messages of ``input``: a text, or a list of items."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    messages: list[JsonObject] = []
    reasoning = ""
    for n, item in enumerate(list_at(value, "input")):
        path = f"input[{n}]"
        item = object_at(item, path)
        kind = str(item.get("type", "message"))
        if kind == "reasoning":
            parts = [
                part for name in ("content", "summary") for part in list_at(item.get(name) or [], f"{path}.{name}")
            ]
            reasoning += "".join(_text(part, path) for part in parts) or _decrypted(item.get("encrypted_content"))
            continue
        if kind in CALLS:
            call = _call(plain_call(item), path)
            last = messages[-1] if messages else {}
            if last.get("role") == "assistant" and not reasoning:
                last.setdefault("tool_calls", []).append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind in OUTPUTS:
            call_id = text_at(item.get("call_id", item.get("id")), f"{path}.call_id")
            output = _content(item.get("output"), f"{path}.output")
            messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
        elif kind == "tool_search_output":
            tools = [_named(tool, path) for tool in as_functions(list_at(item.get("tools"), f"{path}.tools"))]
            messages.append({"role": "tool", "tool_call_id": _search_id(item), "content": references(tools)})
        elif kind in ("compaction", "compaction_summary"):
            summary = text_at(item.get("encrypted_content"), f"{path}.encrypted_content")
            messages.append({"role": "user", "content": SUMMARY + summary})
        elif kind == "message":
            role = text_at(item.get("role"), f"{path}.role")
            messages.append({"role": role, "content": _content(item.get("content"), f"{path}.content")})
        else:
            hint = "send the item itself, or previous_response_id" if kind == "item_reference" else None
            raise LeapSerializationError(f"items of type {kind!r} are not supported", path=f"{path}.type", hint=hint)
        if reasoning and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning_content"] = reasoning
        reasoning = ""
    return messages


def _shell_call(item: JsonObject) -> JsonObject:
    action = item.get("action")
    command = action.get("command") if isinstance(action, dict) else None
    call_id = item.get("call_id", item.get("id"))
    return {"name": LOCAL_SHELL, "arguments": json.dumps({"command": command or []}), "call_id": call_id}


def _search_call(item: JsonObject) -> JsonObject:
    """A search of the server's is a call of leap's own function, one of the client's a call of the client's."""
    arguments = item.get("arguments") if isinstance(item.get("arguments"), dict) else {}
    if item.get("execution") == "client":
        return {"name": TOOL_SEARCH, "arguments": json.dumps(arguments), "call_id": _search_id(item)}
    query = next((str(value) for value in (arguments or {}).values()), "")
    return {"name": FIND, "arguments": json.dumps({"query": query}), "call_id": _search_id(item)}


def _search_id(item: JsonObject) -> str:
    return str(item.get("call_id") or "search")


CALLS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "function_call": lambda item: {},
    "custom_tool_call": lambda item: {"arguments": json.dumps({"input": item.get("input")})},
    "local_shell_call": _shell_call,
    "tool_search_call": _search_call,
}
"""Items that are calls, and what a function's call says instead of theirs."""
OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def plain_call(item: JsonObject) -> JsonObject:
    """An item that is a call as that of a function, which a chat message holds."""
    name = f"{item['namespace']}.{item.get('name')}" if item.get("namespace") else item.get("name")
    return {**item, "type": "function_call", "name": name, **CALLS[item["type"]](item)}


def _found_elsewhere(items: object, declared: list[Any]) -> list[JsonObject]:
    """The tools that searches of the client's have found, but for those that are declared."""
    found: list[JsonObject] = []
    names = {str(tool.get("name")) for tool in as_functions(declared) if isinstance(tool, dict)}
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("type") == "tool_search_output":
            for tool in as_functions(list_at(item.get("tools") or [], "input.tools")):
                if isinstance(tool, dict) and str(tool.get("name")) not in names:
                    names.add(str(tool.get("name")))
                    found.append({**tool, "defer_loading": True})
    return found


def as_functions(tools: list[Any]) -> list[Any]:
    """The tools with those that take a text, the client's shell and search, and those of a namespace (``name.tool``) as
    the functions that the model gets to see."""
    functions: list[Any] = []
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == CUSTOM:
            about = {"description": _described(tool), "parameters": INPUT, "grammar": tool.get("format")}
            deferred = {"defer_loading": True} if tool.get("defer_loading") else {}
            functions.append({"type": "function", "name": tool.get("name"), **about, **deferred})
        elif kind == LOCAL_SHELL:
            told = "Run a command on the user's machine: the program and its arguments."
            functions.append({"type": "function", "name": LOCAL_SHELL, "description": told, "parameters": COMMAND})
        elif kind == TOOL_SEARCH:
            told = tool.get("description") or "Find further tools before they are called."
            parameters = tool.get("parameters") or QUERY
            functions.append({"type": "function", "name": TOOL_SEARCH, "description": told, "parameters": parameters})
        elif kind == NAMESPACE:
            inner = [object_at(each, "tools.tools") for each in as_functions(list_at(tool.get("tools"), "tools.tools"))]
            functions += [{**each, "name": f"{tool.get('name')}.{each.get('name')}"} for each in inner]
        else:
            functions.append(tool)
    return functions


def _named(tool: object, path: str) -> str:
    return text_at(object_at(tool, path).get("name"), f"{path}.name")


def _decrypted(value: object) -> str:
    """Reasoning that went out as ``ENCRYPTED``; nothing of another server's."""
    try:
        return base64.b64decode(str(value or ""), validate=True).decode()
    except ValueError:
        return ""


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
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    raise LeapSerializationError(f"parts of type {kind!r} are not supported", path=f"{path}.type")


def _text(part: object, path: str) -> str:
    part = object_at(part, path)
    return text_at(part.get("refusal") if part.get("type") == "refusal" else part.get("text"), f"{path}.text")


DECLARATION = ("name", "description", "parameters", "strict", "grammar", "defer_loading")


def _declared(tool: JsonObject) -> JsonObject:
    """A function as chat requests declare it."""
    return {name: tool[name] for name in DECLARATION if name in tool}


def _tool_choice(value: object) -> object:
    if isinstance(value, dict) and "name" in value:
        name = f"{value['namespace']}.{value['name']}" if value.get("namespace") else value["name"]
        return {"type": "function", "function": {"name": name}}
    return value


def _response_format(form: JsonObject) -> JsonObject:
    if form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {"name": form.get("name"), "schema": form.get("schema")}}


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
