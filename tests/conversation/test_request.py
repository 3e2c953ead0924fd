"""One request: read alike from every protocol, and the same after its JSON."""

from __future__ import annotations

import json
import random
import re
from dataclasses import fields, replace

import PIL.Image
import pytest

from jobs.submission.new_jobs import AnswerRequest
from leap_core.batch.input.lines import RequestReader
from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import Audio, AudioPcmF32, ChatMessage, Image, LeapFunctionCall, Text
from leap_core.conversation.option_rows import Endpoint
from leap_core.conversation.options import CONSTRAINTS, GENERATION, GenerationOptions
from leap_core.conversation.prompt_log import entry_of, request_of, text_entry
from leap_core.conversation.request import Request
from leap_core.errors import LeapOptionsError, LeapSerializationError
from leap_core.inference.constraints.shape_prompts import append_to_system
from leap_core.protocols.anthropic import read_messages
from leap_core.protocols.endpoint.bodies import CHOICES, chat_body, check_held
from leap_core.protocols.endpoint.responses_api import responses_body
from leap_core.protocols.ollama import read_ollama_chat
from leap_core.protocols.openai.requests import GenerationRequest, read_chat
from leap_core.protocols.openai.responses_request import read_responses
from leap_core.schemas.json_schema import read_schema
from leap_core.schemas.json_values import JsonObject

from ..support.lengths import lengths
from ..support.tables import check_each
from .test_option_rows import sample

JPEG = Image.from_pil_image(PIL.Image.new("RGB", (2, 2))).data
SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}
FUNCTION = LeapFunction.from_openai({"name": "look", "description": "Look.", "parameters": SCHEMA})
MESSAGES = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "Where is it?"),
    ChatMessage("assistant", function_calls=[LeapFunctionCall("look", {"at": 1}, "c1")]),
    ChatMessage("tool", "There.", tool_call_id="c1"),
]
CALL = {"name": "look", "arguments": '{"at": 1}'}
SAID = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]


def test_all_protocols_read_the_same_request() -> None:
    options = {"temperature": 0.5, "top_p": 0.9, "model": "m"}
    function = {"name": "look", "description": "Look.", "parameters": SCHEMA}
    chat = [
        *SAID,
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": CALL}]},
        {"role": "tool", "tool_call_id": "c1", "content": "There."},
    ]
    items = [{"type": "function_call", "call_id": "c1", **CALL}]
    items += [{"type": "function_call_output", "call_id": "c1", "output": "There."}]
    blocks = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "There."}]},
    ]
    tool = {"name": "look", "description": "Look.", "input_schema": SCHEMA}
    of_ollama = {"model": "m", "messages": chat, "tools": [{"type": "function", "function": function}]}
    given = {"options": {"temperature": 0.5, "top_p": 0.9, "num_predict": 9}}
    ollama = read_ollama_chat({**of_ollama, **given, "stream": False}).generation
    assert ollama is not None
    read = {
        "chat": read_chat({**of_ollama, **options, "max_tokens": 9}),
        "Responses": read_responses(
            {**options, "input": [*SAID, *items], "tools": [{"type": "function", **function}], "max_output_tokens": 9}
        ).chat,
        "Messages": read_messages(
            {**options, "system": "Be brief.", "messages": [SAID[1], *blocks], "tools": [tool], "max_tokens": 9}
        ),
        "Ollama": ollama,
    }
    wanted = Request(MESSAGES, [FUNCTION], GenerationOptions(temperature=0.5, top_p=0.9, max_tokens=9))
    for name, request in read.items():
        plain = [
            replace(each, content=[part for part in each.content if part != Text("")]) for each in request.messages
        ]
        plain = [replace(each, tool_call_id=each.tool_call_id and "c1") for each in plain]
        assert (name, Request(plain, request.functions, request.options)) == (name, wanted)


def test_a_request_is_the_same_after_its_json() -> None:
    functions = [
        FUNCTION,
        replace(FUNCTION, name="later", deferred=True),
        replace(FUNCTION, name="of", grammar='start: "A"'),
    ]
    picture = ChatMessage("user", [Text("See:"), Image(b"\xff\xd8\xff...")])
    request = Request([*MESSAGES, picture], functions, GenerationOptions(temperature=0.5, stop=["END"]))
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request
    assert Request.from_json({"messages": []}) == Request([], [])


def test_a_request_of_a_later_version_is_refused() -> None:
    with pytest.raises(LeapSerializationError, match="2 is not 1, which this leap reads"):
        Request.from_json({"version": 2, "messages": []})


def made_up(chance: random.Random) -> Request:
    """A request of any messages, functions and options that go together."""
    functions = [
        replace(
            FUNCTION, name=f"f{n}", deferred=chance.random() < 0.2, grammar=chance.choice([None, None, 'start: "A"'])
        )
        for n in range(chance.choice([0, 0, 1, 2]))
    ]
    parts = [Text("See:"), Image(JPEG), Audio.from_float_samples([0.5], 8000), AudioPcmF32((0.5,), 8000)]
    said = ["", "Hello!", "a\n\nb", 'quote " and \u00e9', chance.sample(parts, chance.randint(1, 4))]
    messages = [ChatMessage("system", "Be brief.")] if chance.random() < 0.4 else []
    for n in range(chance.choice([0, 0, 1, 2])):
        call = LeapFunctionCall("look", {"at": chance.randint(0, 9), "text": "\u00fc"}, f"c{n}")
        calls = [call] if chance.random() < 0.5 else []
        thought = chance.choice([None, "Hm."])
        messages += [ChatMessage("user", chance.choice(said)), ChatMessage("assistant", "So.", thought, calls)]
        messages += [ChatMessage("tool", "There.", tool_call_id=f"c{n}")] if calls else []
    messages += [ChatMessage("user", chance.choice(said)) for _ in range(chance.choice([1, 1, 1, 2]))]
    names = chance.sample([name for name in GENERATION if name not in CONSTRAINTS], chance.randint(0, 6))
    names += chance.sample(CONSTRAINTS, chance.randint(0, 1))
    options = {name: sample(GENERATION[name]) for name in names if name != "tool_choice" or functions}
    return Request(messages, functions, GenerationOptions(**options))


def requests(count: int) -> list[Request]:
    chance = random.Random(72)
    return [made_up(chance) for _ in range(count)]


def same(request: Request) -> JsonObject:
    """The request's JSON, with schemas that are equal as equal values, and texts in one piece."""
    value = request.to_json()
    for message in value["messages"]:
        parts = message["content"]
        if isinstance(parts, list) and all(part["type"] == "text" for part in parts):
            message["content"] = "".join(part["text"] for part in parts)
    if (schema := value["options"].get("json_schema_constraint")) is not None:
        value["options"]["json_schema_constraint"] = json.loads(schema)
    return value


def briefly(request: Request) -> str:
    return f"{[message.text for message in request.messages]} {request.options.to_json()}"


COUNT = lengths(30, 3000, "count")


@COUNT
def test_a_request_survives_each_form_that_carries_all_of_it(count):
    schema = read_schema(json.dumps(Request.schema()))

    def check(request: Request) -> None:
        text = json.dumps(request.to_json())
        assert Request.from_json(json.loads(text)) == request
        assert schema.problems(text) == []
        job = AnswerRequest(request=request)
        assert AnswerRequest.of(json.loads(json.dumps(job.to_json(), default=str))).request == request
        asked = GenerationRequest(*(getattr(request, each.name) for each in fields(Request)))
        line = {"custom_id": "a", "body": asked.to_line([message.to_json() for message in request.messages])}
        read = RequestReader().read(json.dumps(line).encode())
        assert isinstance(read, Request) and same(Request(read.messages, read.functions, read.options)) == same(request)

    check_each(requests(count), check, briefly)


@COUNT
def test_an_entry_of_the_log_has_all_of_a_request_or_says_what_it_lacks(count):
    lacks = "log does not (hold|contain)"

    def check(request: Request) -> None:
        entry = entry_of("generate", "m", request)
        is_plain = [each.role.value for each in request.messages][-2:] in (["user"], ["system", "user"])
        is_plain &= len(request.messages[-1].content) == 1 and isinstance(request.messages[-1].content[0], Text)
        try:
            assert same(request_of(entry)) == same(request)
            assert is_plain and not request.functions
        except LeapOptionsError as error:
            assert re.search(lacks, str(error)) and not (is_plain and not request.functions)

    check_each(requests(count), check, briefly)
    with pytest.raises(LeapOptionsError, match="continues a text"):
        request_of(text_entry("generate", "m", "Once", None))
    broken = Request([ChatMessage("user", "Hello!")], [], GenerationOptions(json_schema_constraint="{"))
    assert request_of(entry_of("generate", "m", broken)) == broken


OF_TEMPLATE = ("chat_template_kwargs", "enable_thinking")


def at_endpoint(request: Request) -> Request:
    """What an endpoint is asked for: without options of this side, and what only leap knows of messages."""
    options, choices = request.options, request.options.choices_constraint
    local = [name for name, row in GENERATION.items() if row.endpoint is Endpoint.LOCAL]
    plain = {name: GENERATION[name].default for name in (*local, "choices_constraint")}
    messages = list(request.messages)
    if choices is not None:
        messages = append_to_system(messages, CHOICES + json.dumps(list(choices)))
    messages = [replace(message, reasoning_content=None) for message in messages]
    functions = [replace(function, deferred=False, grammar=None) for function in request.functions]
    return Request(messages, functions, replace(options, **plain, logprobs=options.wants_logprobs))


@COUNT
def test_an_endpoint_gets_all_of_a_request_or_an_option_is_refused_by_name(count):
    def check(request: Request) -> None:
        refused = [
            name
            for name, row in GENERATION.items()
            if isinstance(row.endpoint, str) and getattr(request.options, name) != row.default
        ]
        if refused:
            with pytest.raises(LeapOptionsError) as caught:
                check_held(request.options)
            assert caught.value.option in refused
            return
        check_held(request.options)
        wanted = same(at_endpoint(request))
        read = read_chat(json.loads(json.dumps(chat_body(request))))
        assert (same(Request(read.messages, read.functions, read.options)), read.notes) == (wanted, ())
        if any(part for message in request.messages for part in message.content if not isinstance(part, Text)):
            return  # Responses have pictures in another form
        try:
            body = json.loads(json.dumps(responses_body(request)))
        except LeapOptionsError as error:
            assert error.option in {name for row in GENERATION.values() for name in row.chat}
            return
        read = read_responses(body).chat
        wanted["options"].pop("logprobs", None)  # ``include`` asks for them
        if read.notes:
            assert len(read.notes) == 1 and "'chat_template_kwargs'" in read.notes[0]
            wanted["options"] = {name: value for name, value in wanted["options"].items() if name not in OF_TEMPLATE}
        assert same(Request(read.messages, read.functions, read.options)) == wanted

    check_each(requests(count), check, briefly)


def test_the_schema_takes_of_each_option_what_a_request_takes():
    schema = read_schema(json.dumps(Request.schema()))
    values = [
        True,
        False,
        None,
        0,
        1,
        -1,
        2,
        -2,
        16,
        21,
        1024,
        2**64,
        0.5,
        1.5,
        2.5,
        "",
        "a",
        "auto",
        "required",
        "lfm",
    ]
    values += [
        [],
        ["a"],
        ["", "a"],
        [5],
        [-1],
        {},
        {"5": 1.5},
        {"a": 1},
        {"a": "b"},
        [{"path": "a.gguf"}],
        [{}],
        ["x", 5],
    ]

    def check(name: str) -> None:
        for value in values:
            if name in ("json_schema_constraint", "extras", "adapters") and isinstance(value, (str, list)):
                continue  # a text in another language, and paths may be written in other ways
            given = {"messages": [], "options": {name: value}}
            try:
                Request.from_json(given)
            except (LeapOptionsError, LeapSerializationError):
                assert schema.problems(json.dumps(given)), value
            else:
                assert not schema.problems(json.dumps(given)), value

    check_each(GENERATION, check)
    two = {"messages": [], "options": {"regex_constraint": "a", "grammar_constraint": "b"}}
    assert schema.problems(json.dumps(two))
