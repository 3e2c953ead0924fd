"""The fields and parameters of an OpenAI body, taken out one by one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from ...conversation.calls import LeapFunction
from ...conversation.options import BUDGETS, GENERATION
from ...conversation.priority import BACKGROUND
from ...errors import LeapSchemaError, LeapSerializationError, shortened
from ...schemas.json_values import JsonObject, kind_of, list_at, object_at, text_at, whole_number


class Unknown(Enum):
    """What a field means that the reader does not know."""

    REFUSE = "refuse"
    """An error: in a batch of a thousand lines a misspelt option would spoil them all."""
    NOTE = "note"
    """A warning in the answer: clients of a server send fields of newer protocols."""


REFUSE, NOTE = Unknown.REFUSE, Unknown.NOTE

HARMLESS = {
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "function_call",
    "stream_options.include_obfuscation",
}
"""Fields that mean something to a hosted service only."""


class BodyFields:
    """The fields of one object. ``path`` is its place in the body."""

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, dict):
            expected = f"expected an object, not {kind_of(value)}" if path else "expected a JSON object"
            raise LeapSerializationError(expected, path=path or "body")
        self._rest = dict(value)
        self._path = path
        self._parts: list[BodyFields] = []

    def __contains__(self, name: str) -> bool:
        """Whether a field is left that is not null."""
        return self._rest.get(name) is not None

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self._path}.{name}" if self._path else name

    def take(self, name: str) -> Any:
        """The field's value, None where it is missing or null."""
        return self._rest.pop(name, None)

    def object(self, name: str) -> BodyFields:
        """The fields of an object; none where it is missing or null."""
        value = self.take(name)
        part = BodyFields({} if value is None else value, self.at(name))
        self._parts.append(part)
        return part

    def text(self, name: str) -> str | None:
        """A string. Raises LeapSerializationError for another value."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise LeapSerializationError(f"expected a string, not {kind_of(value)}", path=self.at(name))
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """true or false. Raises LeapSerializationError for another value."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise LeapSerializationError("expected true or false", path=self.at(name))
        return default if value is None else value

    def finish(self, unknown: Unknown) -> tuple[str, ...]:
        """A note for each field that is left, also in the objects of this one. Where they are refused, the first one
        raises LeapSerializationError."""
        names = [path for path in self._left() if path not in HARMLESS]
        if names and unknown is REFUSE:
            raise LeapSerializationError("there is no such field", path=names[0])
        return notes_on(f"the field {name!r} is unknown and was ignored" for name in names)

    def _left(self) -> list[str]:
        own = [self.at(name) for name, value in self._rest.items() if value is not None]
        return own + [path for part in self._parts for path in part._left()]


MOST_NOTES = 20


def notes_on(notes: Iterable[str]) -> tuple[str, ...]:
    """The warnings about a request, for its answer: each once and cut, MOST_NOTES and how many more there are."""
    different = list(dict.fromkeys(map(shortened, notes)))
    more = len(different) - MOST_NOTES
    return (*different[:MOST_NOTES], *([f"{more} more warnings were left out"] if more > 0 else []))


def functions_among(
    tools: object, kind: str, read: Callable[[JsonObject], JsonObject], *, usual: str | None = None
) -> tuple[list[LeapFunction], tuple[str, ...]]:
    """The tools of this ``kind``, whose declaration in a chat request ``read`` makes, and a note on each of the others.
    ``usual``: the kind of a tool that names none."""
    functions, notes = [], []
    for n, tool in enumerate([] if tools is None else list_at(tools, "tools")):
        tool = object_at(tool, f"tools[{n}]")
        if tool.get("type", usual) == kind:
            functions.append({"type": "function", "function": read(tool)})
        else:
            notes.append(f"tools of type {tool.get('type')!r} are not there and were left out")
    return functions_of(functions), notes_on(notes)


AT_ONCE = 1e-3
"""Seconds: leap's own 0 means that a model stays."""
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|[hms])")


def read_keep_alive(value: object) -> float | None:
    """Seconds, 0 where the model is to stay: of ``"5m"``, a number of seconds, 0 (let it go at once), or less than 0
    (it stays). Raises LeapSerializationError."""
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds):
        raise LeapSerializationError(
            f"{value!r} is no length of time: seconds, or a text such as '10m'", path="keep_alive"
        )
    return 0.0 if seconds < 0 else max(seconds, AT_ONCE)


SHORTEST_PING, LONGEST_PING = 0.1, 3600.0


def read_ping_interval(value: object, path: str = "sse_ping_interval") -> float | None:
    """Seconds without data until a stream sends a keep-alive; 0, or -1 as llama-server has it, for never. Raises
    LeapSerializationError."""
    if value is None or (value in (0, -1) and not isinstance(value, bool)):
        return None if value is None else 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not SHORTEST_PING <= value <= LONGEST_PING:
        reason = f"{value!r:.30} is not a number of seconds from {SHORTEST_PING} to {LONGEST_PING:.0f}, or 0 for none"
        raise LeapSerializationError(reason, path=path)
    return float(value)


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else math.inf
    if not isinstance(value, str):
        return None
    text = value.strip()
    if re.fullmatch(r"-?\d{1,12}(\.\d{1,9})?", text):
        return float(text)
    if len(text) > 64:
        return None
    parts = PART.findall(text.removeprefix("-"))
    if not parts or "".join(map("".join, parts)) != text.removeprefix("-"):
        return None
    return (-1 if text.startswith("-") else 1) * sum(float(number) * UNITS[unit] for number, unit in parts)


FIELDS = {name: row for row in GENERATION.values() for name in row.chat}
"""The fields of a chat request that are an option each; a later one wins over an earlier one of the same option."""
EFFORT_SHARES = {"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8}
"""How much of an answer's most tokens may be reasoning."""
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Efforts of reasoning that are one here: to reason."""

ONLY_VALUE: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
    "functions": ([],),
}
"""What leap cannot do, and the values (beside null) that do not ask for it."""

TIERS = (None, "auto", "default", "flex", "scale", "priority")
CHOICES = ("auto", "none", "required")
LARGEST_TOKEN = 2**31 - 1
"""Tokens are numbers of 32 bits in llama.cpp."""
SEEDS = 2**32
"""Negative seeds, which other servers take, wrap around at this."""
ANY_OBJECT = '{"type": "object"}'
"""The schema of ``json_object``."""


def read_parameters(body: BodyFields) -> JsonObject:
    """The options that a body gives, as ``GenerationOptions.from_json`` reads them, but for those of ``options_in``,
    which win. Takes their fields out of ``body``. Raises LeapSerializationError."""
    values = {name: value for name in (*FIELDS, *READERS) if (value := body.take(name)) is not None}
    values["service_tier"] = body.text("service_tier")
    choice, given = body.take("tool_choice"), body.take("chat_template_kwargs")
    thinking = BodyFields({} if given is None else given, body.at("chat_template_kwargs")).boolean(
        "enable_thinking", False
    )
    if body.boolean("enable_thinking", thinking):
        values["enable_thinking"] = True
    options = read_options(values, choice, given or {})
    for name, harmless in ONLY_VALUE.items():
        value = body.take(name)
        if value is not None and value not in harmless:
            raise LeapSerializationError(f"{json.dumps(value)[:60]} is not supported", path=name)
    return options


def options_in(extension: BodyFields) -> JsonObject:
    """The options that a body's ``leap`` has. Raises LeapSerializationError."""
    extra = extension.take("options")
    if extra is not None and not isinstance(extra, dict):
        raise LeapSerializationError("expected an object", path="leap.options")
    return extra or {}


def read_options(
    values: Mapping[str, Any], choice: object = None, template: Mapping[str, Any] | None = None
) -> JsonObject:
    """Options as ``GenerationOptions.from_json`` reads them, of ``values`` by the names in ``FIELDS`` and ``READERS``.
    ``choice``: the tool choice; ``template``: variables of the chat template. Raises LeapSerializationError."""
    options: JsonObject = {}
    for name, row in FIELDS.items():
        value = values.get(name) if name not in READERS else None
        if value is not None:
            options[row.name] = row.kind.from_json(name, value)
    if options.get("top_k") == -1:  # all, in the speech of other servers
        options["top_k"] = 0
    for name, read in READERS.items():
        value = values.get(name)
        if value is not None:
            options.update(read(value))
    tier = values.get("service_tier")
    if tier not in TIERS:
        known = ", ".join(map(str, TIERS[1:]))
        raise LeapSerializationError(f"{shortened(str(tier))!r} is not one of {known}", path="service_tier")
    if tier == "flex":
        options.setdefault("priority", BACKGROUND)
    kwargs: JsonObject = {}
    if (effort := options.pop("effort", None)) is not None:
        options = {"enable_thinking": True, **budget_of(effort, options.get("max_tokens")), **options}
        kwargs["reasoning_effort"] = effort
    if options.get("max_tokens", 0) == -1:  # no limit, in the speech of other servers
        options["max_tokens"] = None
    if choice is not None:
        options["tool_choice"] = _tool_choice(choice)
    if values.get("enable_thinking"):
        options["enable_thinking"] = True
    kwargs |= {name: value for name, value in (template or {}).items() if name != "enable_thinking"}
    if kwargs:
        options["chat_template_kwargs"] = kwargs
    return options


def functions_of(tools: object) -> list[LeapFunction]:
    """The declared functions. Two of one name are refused with LeapSerializationError."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise LeapSerializationError("expected a list", path="tools")
    functions = [_function(tool, f"tools[{n}]") for n, tool in enumerate(tools)]
    names: set[str] = set()
    for function in functions:
        if function.name in names:
            raise LeapSerializationError(f"the function {function.name!r} is declared twice", path="tools")
        names.add(function.name)
    return functions


def _function(tool: object, path: str) -> LeapFunction:
    """A function, with ``defer_loading`` beside it or in it, and the ``grammar`` of its text (see ``lark_of``)."""
    function = LeapFunction.from_openai(tool, path)
    assert isinstance(tool, dict)
    inner = tool.get("function", tool)
    deferred = True in (tool.get("defer_loading"), inner.get("defer_loading"))
    if not deferred and "grammar" not in inner:
        return function
    return replace(function, deferred=deferred, grammar=lark_of(inner.get("grammar"), f"{path}.format"))


def lark_of(form: object, path: str) -> str | None:
    """The grammar of a custom tool's text, in Lark's notation; None for any text. Raises LeapSerializationError."""
    if not isinstance(form, dict) or form.get("type", "text") == "text":
        return None
    form = object_at(form.get("grammar", form), path)  # chat completions have it one level deeper than Responses
    syntax, definition = form.get("syntax"), text_at(form.get("definition"), f"{path}.definition")
    if syntax not in ("lark", "regex"):
        raise LeapSerializationError(f"{syntax!r} is not one of lark, regex", path=f"{path}.syntax")
    from ...inference.constraints.compiling import lark_matcher
    from ...schemas.grammar_matcher import byte_tokenizer

    lark = definition if syntax == "lark" else f"start: TEXT\nTEXT: /{definition.replace('/', chr(92) + '/')}/"
    try:
        lark_matcher(lark, byte_tokenizer())
    except LeapSchemaError as error:
        raise LeapSerializationError(error.message, path=f"{path}.definition") from None
    return lark


def schema_text(schema: object, path: str) -> str:
    """The text of a JSON schema in a request."""
    if not isinstance(schema, (dict, bool)):
        raise LeapSerializationError("expected a JSON schema", path=path)
    return json.dumps(schema, ensure_ascii=False)


def allowed_tools(choice: object) -> set[str] | None:
    """The names of the tools that a ``tool_choice`` leaves of the declared ones; None where it leaves all."""
    given = _allowed(choice)
    if given is None:
        return None
    tools = [object_at(tool, "tool_choice.tools") for tool in list_at(given.get("tools"), "tool_choice.tools")]
    return {str(object_at(tool.get("function", tool), "tool_choice.tools").get("name")) for tool in tools}


def _allowed(choice: object) -> JsonObject | None:
    """Chat completions have the list one level deeper than Responses."""
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return None
    return object_at(choice.get("allowed_tools", choice), "tool_choice.allowed_tools")


def _tool_choice(value: object) -> str:
    if isinstance(value, str):
        return value
    if (allowed := _allowed(value)) is not None:
        return _tool_choice(allowed.get("mode", "auto"))
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise LeapSerializationError("expected auto, none, required, or a function", path="tool_choice")
    if name in CHOICES:  # as an option it would mean that
        raise LeapSerializationError(
            f"a function called {name!r} cannot be demanded by name", path="tool_choice.function.name"
        )
    return name


def _seed(value: object) -> JsonObject:
    value = whole_number(value)
    return {"rng_seed": value % SEEDS if isinstance(value, int) and value < 0 else value}


def _stop(value: object) -> JsonObject:
    return {"stop": [value] if isinstance(value, str) else value}


def _logit_bias(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object of token ids and numbers", path="logit_bias")
    try:
        biases = {int(token): bias for token, bias in value.items()}
    except ValueError:
        raise LeapSerializationError("its keys must be token ids", path="logit_bias") from None
    for token, bias in biases.items():
        if token > LARGEST_TOKEN:
            raise LeapSerializationError(f"{token} is not a token id", path="logit_bias")
        if isinstance(bias, float) and not math.isfinite(bias):
            raise LeapSerializationError(f"the bias of token {token} is too large", path="logit_bias")
    return {"logit_bias": biases}


def _response_format(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object", path="response_format")
    kind = value.get("type", "text")
    if kind == "text":
        return {"json_schema_constraint": None}
    if kind in ("json_object", "json_schema") and "schema" in value:  # as llama.cpp's server takes it
        return {"json_schema_constraint": schema_text(value["schema"], "response_format.schema")}
    if kind == "json_object":
        return {"json_schema_constraint": ANY_OBJECT}
    if kind != "json_schema":
        raise LeapSerializationError(
            f"{kind!r} is not one of text, json_object, json_schema", path="response_format.type"
        )
    named = value.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    return {"json_schema_constraint": schema_text(schema, "response_format.json_schema.schema")}


def _grammar(value: object) -> JsonObject:
    """A grammar as llama.cpp's server takes it (GBNF), or Lark's."""
    from ...schemas.gbnf import as_lark

    if not isinstance(value, str):
        raise LeapSerializationError("expected a grammar, in GBNF or Lark", path="grammar")
    if not value.strip():
        return {}
    try:
        as_lark(value)
    except LeapSchemaError as error:
        raise LeapSerializationError(error.message, path="grammar") from None
    return {"grammar_constraint": value}


def _guided_json(value: object) -> JsonObject:
    """A schema as vLLM takes it: an object, or its text."""
    if isinstance(value, str):
        return {"json_schema_constraint": value}
    return {"json_schema_constraint": schema_text(value, "guided_json")}


def _structured_outputs(value: object) -> JsonObject:
    """vLLM's newer form: one of ``json``, ``regex``, ``choice``, ``grammar`` and ``json_object``."""
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object", path="structured_outputs")
    shapes: JsonObject = {}
    for name, given in value.items():
        if name == "json_object" and given:
            shapes["json_schema_constraint"] = ANY_OBJECT
        elif name in GUIDED and given is not None:
            shapes.update(GUIDED[name](given))
        elif given not in (None, False):
            raise LeapSerializationError("is not supported", path=f"structured_outputs.{name}")
    return shapes


GUIDED: Mapping[str, Callable[[Any], JsonObject]] = {
    "json": _guided_json,
    "regex": lambda value: {"regex_constraint": value},
    "choice": lambda value: {"choices_constraint": value},
    "grammar": _grammar,
}
"""What shapes an answer in vLLM's words, which requests write after ``guided_``."""
READERS: Mapping[str, Callable[[Any], JsonObject]] = {
    "logprobs": lambda value: _logprobs(value),
    "reasoning_effort": lambda value: _effort(value),
    "seed": _seed,
    "stop": _stop,
    "logit_bias": _logit_bias,
    "priority": lambda value: _priority(value),
    "response_format": _response_format,
    "grammar": _grammar,
    "json_schema": _guided_json,
    **{f"guided_{name}": read for name, read in GUIDED.items()},
    "structured_outputs": _structured_outputs,
    **dict.fromkeys(BUDGETS, lambda value: _budget(value)),
}
"""Fields whose values are written in another way than the option's."""


def _priority(value: object) -> JsonObject:
    """The lower value goes first, as in vLLM; everywhere else in leap the higher one does."""
    value = whole_number(value)
    return {"priority": -value if isinstance(value, int) and not isinstance(value, bool) else value}


def _budget(value: object) -> JsonObject:
    """Most tokens of reasoning; below 0 any number, in the speech of other servers."""
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return {}
    return {"think_budget": value}


def _effort(value: object) -> JsonObject:
    """How much a model is to think; see ``budget_of``."""
    if value != "none" and value not in EFFORTS:
        raise LeapSerializationError(f"{value!r} is not one of none, {', '.join(EFFORTS)}", path="reasoning_effort")
    return {"effort": value} if value in EFFORTS else {}


def budget_of(effort: str, max_tokens: object) -> JsonObject:
    """The option that an effort makes of an answer's most tokens; none where either leaves reasoning its way."""
    share = EFFORT_SHARES.get(effort)
    if share is None or not isinstance(max_tokens, int) or max_tokens < 1:
        return {}
    return {"think_budget": int(max_tokens * share)}


def _logprobs(value: object) -> JsonObject:
    """A boolean of chats, or how many alternatives of plain completions."""
    if isinstance(value, bool):
        return {"logprobs": value}
    return {"logprobs": True, "top_logprobs": value}
