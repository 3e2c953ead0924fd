"""Lines of a batch: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from PIL import Image as pillow

from leap_core.batch.input.line_index import check_lines, read_again
from leap_core.batch.input.line_parts import LineTemplate, with_names
from leap_core.batch.input.lines import RequestReader, key_of
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.media.fetching import UrlAccess
from leap_core.conversation.messages import Audio, Image, Text
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapError, LeapSerializationError

from .conftest import rows_of

ASK = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def read(value: object, **settings: object):
    return RequestReader(**settings).read(json.dumps(value).encode())  # type: ignore[arg-type]


def problem(row: bytes | object, **settings: object) -> str:
    raw = row if isinstance(row, bytes) else json.dumps(row).encode()
    checked = check_lines(rows_of(raw), RequestReader(**settings))  # type: ignore[arg-type]
    return str(checked.problems[0])


def test_all_forms_of_a_line_make_the_same_request():
    body = {"messages": ASK, "temperature": 0.5}
    forms = [
        {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body},
        {"custom_id": "a", **body},
        {"id": "a", "prompt": "Hi", "temperature": 0.5},
    ]
    requests = [read(form) for form in forms]
    assert len({request.digest("a") for request in requests}) == 1
    assert requests[0].custom_id == "a" and requests[0].options.temperature == 0.5


def test_parameters_of_openai_become_options():
    request = read(
        {
            "messages": ASK,
            "model": "m",
            "max_completion_tokens": 5,
            "stop": "END",
            "seed": 3,
            "logit_bias": {"7": -2},
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "user": "someone",
            "n": 1,
            "stream": False,
            "top_p": None,
        }
    )
    expected = GenerationOptions(max_tokens=5, stop=["END"], rng_seed=3, logit_bias={7: -2}, tool_choice="look")
    assert (request.options, request.model) == (expected, "m")
    assert request.functions == [LeapFunction.from_openai(TOOL)]


@pytest.mark.parametrize(
    "given", [{"schema": SCHEMA}, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}]
)
def test_a_schema_of_a_line_replaces_the_commands_constraint(given):
    request = read({"prompt": "Hi", **given}, options=GenerationOptions(regex_constraint="a+", temperature=0.1))
    assert json.loads(request.options.json_schema_constraint or "") == SCHEMA
    assert (request.options.regex_constraint, request.options.temperature) == (None, 0.1)


def test_a_line_can_ask_for_plain_text_and_no_tools():
    look = (LeapFunction.from_openai(TOOL),)
    options = GenerationOptions(json_schema_constraint="{}", tool_choice="look")
    line = {"prompt": "x", "response_format": {"type": "text"}, "tools": []}
    request = read(line, options=options, functions=look)
    assert (request.options.json_schema_constraint, request.options.tool_choice, request.functions) == (None, None, [])


def test_the_commands_system_prompt_is_for_lines_without_one():
    asked = {"messages": [{"role": "system", "content": "own"}, *ASK]}
    assert [m.text for m in read(asked, system="given").messages] == ["own", "Hi"]
    assert [m.text for m in read({"prompt": "Hi"}, system="given").messages] == ["given", "Hi"]
    assert [m.text for m in read({"prompt": "Hi", "system": "own"}, system="given").messages] == ["own", "Hi"]


def test_a_template_is_filled_with_the_fields_of_a_line():
    template = LineTemplate("{{{n}}} of {text}: {tags}")
    request = read({"id": 7, "n": 2, "text": "ä{x}", "tags": ["b"], "prompt": "ignored"}, template=template)
    assert (request.custom_id, request.messages[0].text) == ("7", '{2} of ä{x}: ["b"]')
    assert problem({"n": 1}, template=template) == "line 1: the template needs tags, text"
    assert read({"id": 1.5, "text": "a"}, template=LineTemplate("{text}")).custom_id is None


@pytest.mark.parametrize("text", ["{", "{}", "{a.b}", "{a!r}", "{a:>5}", "{0}", "no variable"])
def test_unusable_templates_are_refused(text):
    with pytest.raises(LeapSerializationError, match="template"):
        LineTemplate(text)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (b"{", "not JSON: Expecting property name"),
        (b"[1]", "expected a JSON object or a string"),
        (b'{"prompt": "a", "temperature": NaN}', "NaN is not a JSON number"),
        (b'{"prompt": "a", "prompt": "b"}', "'prompt' is given twice"),
        (b'{"prompt": "\xff"}', "not UTF-8 text (byte 13)"),
        (b'{"prompt": "\\ud800"}', "half of a surrogate pair"),
        (b"[" * 100_000, "not JSON that can be used"),
        ({"text": "a"}, "expected body, messages, prompt, input, file, image or audio (--pattern"),
        ({"prompt": ""}, "prompt: expected a text that is not empty"),
        ({"prompt": 3}, "prompt: expected a text"),
        ({"prompt": "a", "messages": ASK}, "either messages or a prompt"),
        ({"messages": []}, "messages: there must be at least one message"),
        ({"messages": [{"role": "oracle", "content": ""}]}, "messages[0].role: unknown role 'oracle'"),
        ({"prompt": "a", "temprature": 1}, "temprature: there is no such field"),
        ({"prompt": "a", "temperature": -1}, "temperature: -1 must be 0 or more"),
        ({"prompt": "a", "temperature": "hot"}, "temperature: 'hot' is not a finite number"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens: 0 must be 1 or more"),
        ({"prompt": "a", "stop": [1]}, "stop: must be a list of non-empty strings"),
        ({"prompt": "a", "n": 17}, "n: 17 is not a number from 1 to 16"),
        ({"prompt": "a", "stream": True}, "stream: true is not supported"),
        ({"prompt": "a", "id": ""}, "id: expected a text that is not empty"),
        ({"prompt": "a", "model": 3}, "model: expected a string"),
        (
            {"prompt": "a", "tools": [], "tool_choice": "required"},
            "tool_choice: 'required', but no functions are registered",
        ),
        ({"prompt": "a", "tools": {}}, "tools: expected a list"),
        ({"prompt": "a", "tools": [TOOL, TOOL]}, "tools: the function 'look' is declared twice"),
        ({"prompt": "a", "tools": [{}]}, "tools[0].name: expected the function's name"),
        (
            {"prompt": "a", "tools": [TOOL], "tool_choice": {"type": "function", "function": "look"}},
            "tool_choice: expected auto, none, required, or a function",
        ),
        ({"prompt": "a", "tool_choice": {"function": None}}, "tool_choice: expected auto"),
        (b'{"prompt": "a", "logit_bias": {"7": 1e400}}', "the number 1e400 is too large"),
        ({"prompt": "a", "logit_bias": {str(2**31): 1}}, "logit_bias: 2147483648 is not a token id"),
        ({"prompt": "a", "tools": [TOOL], "tool_choice": "see"}, "tool_choice: there is no function 'see'"),
        ({"prompt": "a", "schema": {"type": "strnig"}}, "schema/type:"),
        ({"prompt": "a", "response_format": {"type": "xml"}}, "response_format.type: 'xml' is not"),
        ({"custom_id": "a", "body": []}, "body: expected an object"),
        ({"custom_id": "a", "body": {}}, "body.messages: missing"),
        ({"custom_id": "a", "url": "/v1/files", "body": {}}, "url: '/v1/files' is not supported"),
        ({"url": "/v1/embeddings", "body": {}}, "input: expected a text or a list of texts"),
        ({"url": "/v1/embeddings", "body": {"input": "x", "messages": []}}, "messages: there is no such field"),
        ({"input": "x", "temperature": 1}, "temperature: there is no such field"),
        ({"input": "x", "input_type": "question"}, "input_type: 'question' is not one of query, document"),
        ({"input": "x", "pooling": "max"}, "pooling: 'max' is not one of mean, cls, last"),
        ({"input": [True]}, "input: expected a text or a list of texts"),
        ({"custom_id": "a", "method": "GET", "body": {}}, "method: 'GET' is not POST"),
        ({"custom_id": "a", "extra": 1, "body": {}}, "extra: there is no such field"),
    ],
)
def test_unusable_lines_are_refused(row, told):
    said = problem(row)
    assert said.startswith("line 1: ") and told in said


def test_ids_are_unique_and_blank_lines_count_in_line_numbers():
    rows = [
        b"\xef\xbb\xbf" + b'{"prompt": "a", "id": "x"}\n',
        b"\n",
        b'{"prompt": "b"}\r\n',
        b'{"prompt":"c","id":"x"}',
    ]
    checked = check_lines(rows_of(b"".join(rows)), RequestReader())
    assert [checked.index.number(n) for n in range(len(checked.index))] == [1, 3]
    assert [str(problem) for problem in checked.problems] == ["line 4: the id 'x' is already on line 1"]
    assert checked.models == {None}


def test_prompt_and_options_decide_the_key():
    def key(custom_id="a", circumstances="model", **fields):
        row = json.dumps({"id": custom_id, "prompt": "Hi", "temperature": 0, **fields}).encode()
        return key_of(check_lines(rows_of(row), RequestReader()).index.digest(0), circumstances)

    others = [key("b"), key(circumstances="other"), key(prompt="Ho"), key(temperature=1), key(tools=[TOOL])]
    assert key() == key() and len({key(), *others}) == 6


def test_a_line_may_name_image_and_audio_files(tmp_path) -> None:
    pillow.new("RGB", (40, 40), "red").save(tmp_path / "red.png")
    (tmp_path / "hum.wav").write_bytes(Audio.from_float_samples([0.1] * 4000, 16_000).data)
    request = read({"image": ["red.png", "red.png"], "audio": "hum.wav", "prompt": "What is it?"}, directory=tmp_path)
    first, second, sound, text = request.messages[0].content
    assert isinstance(first, Image) and first == second and isinstance(sound, Audio) and text == Text("What is it?")
    alone = read({"image": "red.png", "system": "Describe."}, directory=tmp_path)
    assert [message.role.value for message in alone.messages] == ["system", "user"]
    assert alone.messages[1].content == (first,)
    templated = read({"image": "red.png", "what": "colour"}, directory=tmp_path, template=LineTemplate("Its {what}?"))
    assert templated.messages[0].content == (first, Text("Its colour?"))
    in_message = read({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
        "url": (tmp_path / "red.png").as_uri()}}]}]})  # fmt: skip
    assert in_message.messages[0].content == (first,)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"image": "none.png", "prompt": "a"}, "none.png: No such file"),
        ({"image": "text.png", "prompt": "a"}, "image: .*text.png: not a picture"),
        ({"audio": "text.png", "prompt": "a"}, "audio: .*text.png: not a sound"),
        ({"image": 5, "prompt": "a"}, "image: expected the name of a file"),
        ({"image": [""], "prompt": "a"}, "image: expected the name of a file"),
    ],
)
def test_a_line_whose_file_is_not_an_image_names_it(tmp_path, value, says) -> None:
    (tmp_path / "text.png").write_text("some text")
    with pytest.raises(LeapSerializationError, match=says):
        read(value, directory=tmp_path)


def test_lines_with_an_image_are_compared_with_their_checked_version(tmp_path) -> None:
    """The second had the digest of a line without its picture, so that it passed for a changed one."""
    for name in ("red", "blue"):
        pillow.new("RGB", (40, 40), name).save(tmp_path / f"{name}.png")
    templated = RequestReader(directory=tmp_path, template=LineTemplate("Its {what}?"))
    for reader, lines in (
        (RequestReader(directory=tmp_path), [{"image": "red.png", "prompt": text} for text in "abc"]),
        (templated, [{"image": name, "what": "colour"} for name in ("red.png", "blue.png", "red.png")]),
        (templated, [{"what": "colour"}, {"image": "red.png", "what": "colour"}]),
    ):
        rows = [json.dumps(line).encode() + b"\n" for line in lines]
        index = check_lines(rows_of(b"".join(rows)), reader).index
        assert [read_again(reader, index, n)[1] for n in range(len(rows))] == [reader.read(row) for row in rows]


def test_lines_of_a_servers_clients_cannot_name_its_files(tmp_path) -> None:
    pillow.new("RGB", (40, 40), "red").save(tmp_path / "red.png")
    (tmp_path / "hum.wav").write_bytes(Audio.from_float_samples([0.1] * 4000, 16_000).data)
    settings = BatchSettings.of("-", "-", directory=str(tmp_path), urls=UrlAccess.DATA, own_clients=False)
    reader = BatchSettings.from_json(json.loads(json.dumps(settings.to_json()))).reader()
    templated = replace(reader, template=LineTemplate("Its {what}?"))
    file = [{"type": "image_url", "image_url": {"url": (tmp_path / "red.png").as_uri()}}]
    adapters = {"options": {"adapters": ["/x/poet.gguf"]}}
    for reads, line, says in (
        (reader, {"image": "red.png", "prompt": "a"}, "image: the names of files are not taken here"),
        (reader, {"audio": "hum.wav", "prompt": "a"}, "audio: the names of files are not taken here"),
        (templated, {"image": "red.png", "what": "colour"}, "image: the names of files are not taken here"),
        (reader, {"task": "extract", "schema": "name", "image": "red.png"}, "image: the names of files are not"),
        (reader, {"messages": [{"role": "user", "content": file}]}, "file: URLs are not taken here"),
        (reader, {"body": {"messages": [{"role": "user", "content": file}]}}, "file: URLs are not taken here"),
        (reader, {"prompt": "a", "leap": adapters}, "clients name no files; ask for the model MODEL+ADAPTER"),
        (reader, {"body": {"messages": [{"role": "user", "content": "a"}], "leap": adapters}}, "clients name no files"),
    ):
        with pytest.raises(LeapError, match=re.escape(says)):
            reads.read_value(line)
        replace(reads, urls=UrlAccess.FILES, own_clients=True).read_value(line)
        if "adapters" not in str(line):
            with pytest.raises(LeapError, match="not taken here"):
                reads.for_another_machine(json.dumps(line).encode())
    carried = RequestReader(directory=tmp_path).for_another_machine(b'{"image": "red.png", "prompt": "a"}')
    assert isinstance(reader.read(carried).messages[0].content[0], Image), "the line has the picture itself"


def test_a_line_goes_to_another_machine_with_the_files_it_names(tmp_path) -> None:
    pillow.new("RGB", (40, 40), "red").save(tmp_path / "red.png")
    (tmp_path / "hum.wav").write_bytes(Audio.from_float_samples([0.1] * 4000, 16_000).data)
    part = {"type": "image_url", "image_url": {"url": (tmp_path / "red.png").as_uri()}}
    message = {"role": "user", "content": [part, {"type": "text", "text": "file: what?"}]}
    here = RequestReader(directory=tmp_path)
    templated = RequestReader(directory=tmp_path, template=LineTemplate("Its {what}?"))
    lines = [
        (here, {"image": ["red.png"], "audio": "hum.wav", "prompt": "What?", "mine": 1}),
        (here, {"custom_id": "a", "body": {"messages": [message]}}),
        (here, {"messages": [message]}),
        (templated, {"image": "red.png", "what": "colour"}),
    ]
    raws = [json.dumps(value).encode() for _, value in lines]
    readers = [replace(reader, keep_fields=True) for reader, _ in lines]
    wanted = [reader.read(raw) for reader, raw in zip(readers, raws, strict=True)]
    sent = [reader.for_another_machine(raw) for reader, raw in zip(readers, raws, strict=True)]
    for name in ("red.png", "hum.wav"):
        (tmp_path / name).unlink()
    assert [reader.read(raw) for reader, raw in zip(readers, sent, strict=True)] == wanted
    assert [with_names(json.loads(raw)) for raw in (sent[0], sent[3])] == [
        {"image": "red.png", "audio": "hum.wav", "prompt": "What?", "mine": 1},
        {"image": "red.png", "what": "colour"},
    ]
    for raw in (b'"a prompt"', b'{"prompt": "image"}', b'{"prompt": "a file: b"}', sent[1]):
        assert here.for_another_machine(raw) == raw
    damaged = json.loads(sent[3]) | {"image": {"name": "red.png", "data": "?"}, "prompt": "a"}
    with pytest.raises(LeapSerializationError, match=r"image: red.png: not base64"):
        here.read_value({"image": [damaged["image"]], "prompt": "a"})
