"""The table of options: what becomes of each at an endpoint and in each protocol; and a new row."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import leap_core
from leap_cli.commands.ask.batch import command as batch
from leap_cli.commands.ask.embed import command as embed
from leap_cli.framework.rare_names import NAMES
from leap_core.batch.input.lines import RequestReader
from leap_core.batch.options import ESCALATION, LIMITS
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.embedding import EMBEDDING, EmbeddingOptions
from leap_core.conversation.loading_options import CACHE, LOADING
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.option_rows import (
    Biases,
    Endpoint,
    Number,
    OneOf,
    OptionRow,
    Switch,
    Texts,
    TokenIds,
    Whole,
)
from leap_core.conversation.options import GENERATION, GenerationOptions, SamplingDefaults
from leap_core.conversation.request import Request
from leap_core.conversation.responses import Complete, GenerationFinishReason
from leap_core.errors import LeapOptionsError
from leap_core.protocols.anthropic import read_messages
from leap_core.protocols.endpoint.bodies import chat_body, check_held, text_body
from leap_core.protocols.endpoint.responses_api import responses_body
from leap_core.protocols.ollama import OllamaReply, read_ollama_chat, read_ollama_generate
from leap_core.protocols.openai.embeddings import read_embedding_request
from leap_core.protocols.openai.requests import read_chat
from leap_core.protocols.openai.responses_request import read_responses
from leap_core.tasks.task import OVERRIDES

from ..support.tables import check_each

ROOT = Path(leap_core.__file__).parent
FUNCTION = LeapFunction.from_openai({"type": "function", "function": {"name": "add", "parameters": {}}})
MESSAGES = [ChatMessage("user", "Hello!")]
OWN: dict[str, Any] = {
    "json_schema_constraint": '{"type": "string"}',
    "function_call_parser": "hermes",
    "tool_choice": "required",
    "adapters": ["/tmp/adapter.gguf"],
    "extras": "{}",
    "decision": "{}",
    "chat_template_kwargs": {"tone": "calm"},
}
LOCAL = {
    "inject_schema_into_prompt": "the prompt of a chat is the endpoint's",
    "inline_thinking_tags": "reasoning is put between tags here",
    "extras": "read here",
    "forced_logprobs": "only permits what an endpoint does",
    "additional_properties": "only permits what an endpoint does",
    "any_whitespace": "only permits what an endpoint does",
    "grounding": "values that are not in the text are marked here",
    "complete_json": "lines of batches and tasks ask for it; JSON that an endpoint cuts is an error",
    "repairs": "counted here",
    "priority": "jobs and batches have one, and strict endpoints refuse a field that they do not know",
}
"""Options that neither an endpoint is sent nor it refuses, and why."""


def sample(row: OptionRow) -> Any:
    """A value of the option that is not its default."""
    kind = row.kind
    if row.name in OWN:
        return OWN[row.name]
    if isinstance(kind, Switch):
        return not row.default
    if isinstance(kind, Whole):
        return max(kind.low, 1) + 1
    if isinstance(kind, Number):
        return kind.low + 0.5
    if isinstance(kind, OneOf):
        return kind.names[0]
    return {Texts: ["a", "b"], TokenIds: [5], Biases: {5: 1.0}}.get(type(kind), "a text")


def with_sample(name: str) -> GenerationOptions:
    return GenerationOptions(**{name: sample(GENERATION[name])})


def written(name: str) -> Any:
    """The sample as JSON has it."""
    return GENERATION[name].kind.to_json(getattr(with_sample(name), name))


def test_each_option_is_sent_refused_by_name_or_local_at_an_endpoint():
    plain = json.dumps(chat_body(Request(MESSAGES, [FUNCTION], GenerationOptions())))

    def check(name: str) -> None:
        options, place = with_sample(name), GENERATION[name].endpoint
        body = json.dumps(chat_body(Request(MESSAGES, [FUNCTION], options)))
        assert isinstance(place, str) or (body != plain) == (place in (Endpoint.SENT, Endpoint.LEAP))
        assert (place is Endpoint.LOCAL) == (name in LOCAL)
        if isinstance(place, str):
            with pytest.raises(LeapOptionsError) as caught:
                check_held(options)
            assert caught.value.option == name and place in str(caught.value)
        else:
            check_held(options)

    check_each(GENERATION, check)


def test_the_rows_have_known_fields():
    rows = [row for table in (GENERATION, LOADING, CACHE, EMBEDDING, LIMITS, ESCALATION) for row in table.values()]
    assert {name for row in rows for name in vars(row)} <= set(OptionRow.__annotations__)


def test_options_sent_to_an_endpoint_are_sent_or_refused_by_its_other_apis():
    plain = responses_body(Request(MESSAGES, [FUNCTION], GenerationOptions()))

    def check(name: str) -> None:
        options, row = with_sample(name), GENERATION[name]
        if row.chat and name not in ("json_schema_constraint", "logprobs", "top_logprobs"):
            assert text_body("Once", options)[row.chat[0]] == written(name)
        try:
            assert responses_body(Request(MESSAGES, [FUNCTION], options)) != plain
        except LeapOptionsError as error:
            assert error.option in row.chat

    sent = (Endpoint.SENT, Endpoint.LEAP)
    check_each([name for name, row in GENERATION.items() if row.endpoint in sent], check)


def readings(name: str, value: object) -> dict[str, tuple[GenerationOptions, tuple[str, ...]]]:
    """The options and notes that each protocol makes of a field."""
    said = [{"role": "user", "content": "Hello!"}]
    chat = {"model": "m", "messages": said, name: value}
    found = {
        "chat": read_chat(dict(chat)),
        "responses": read_responses({"model": "m", "input": "Hello!", name: value}).chat,
    }
    found["anthropic"] = read_messages({"max_tokens": 7, **chat})
    ollama = {"model": "m", "messages": said, "options": {name: value}}
    found["ollama"] = read_ollama_chat(ollama).generation
    texts = {"model": "m", "prompt": "Hello!", "options": {name: value}}
    found["ollama texts"] = read_ollama_generate(texts).generation
    return {protocol: (request.options, request.notes) for protocol, request in found.items()}


def test_each_protocol_reads_an_option_or_names_it_in_its_notes():
    plain = {protocol: options for protocol, (options, _) in readings("user", "somebody").items()}

    def check(name: str) -> None:
        row = GENERATION[name]
        for field in {name, *row.chat, row.ollama, row.responses, row.anthropic} - {""}:
            if field in ("response_format", "tool_choice", "logprobs"):  # of another form, or it needs functions
                continue
            for protocol, (options, notes) in readings(field, written(name)).items():
                assert options != plain[protocol] or any(field in note for note in notes), f"{protocol}: {field}"

    check_each(GENERATION, check)


def test_a_whole_number_may_be_written_with_a_point_in_every_protocol():
    def check(name: str) -> None:
        for field in GENERATION[name].chat:
            value = sample(GENERATION[name])
            request = read_chat({"messages": [{"role": "user", "content": "Hello!"}], field: float(value)})
            read = getattr(request.options, name)
            assert read == (-value if name == "priority" else value) and type(read) is int

    check_each([name for name, row in GENERATION.items() if isinstance(row.kind, Whole) and row.chat], check)


def test_a_reply_in_ollamas_protocol_has_notes():
    said = [{"role": "user", "content": "Hi"}]
    request = read_ollama_chat({"model": "m", "messages": said, "options": {"rng_seed": 3}})
    assert request.generation is not None and "options.rng_seed" in request.generation.notes[0]
    complete = Complete(ChatMessage("assistant", "Hello."), GenerationFinishReason.STOP)
    reply = OllamaReply(request.generation, "m", chat=True).whole(complete)
    assert reply["leap"] == {"warnings": list(request.generation.notes)}


def test_a_null_field_is_not_in_the_notes_of_ollamas_protocol():
    said = [{"role": "user", "content": "Hi"}]
    nothing = {name: None for name in GENERATION}
    for request in (
        read_ollama_chat({"model": "m", "messages": said, **nothing, "options": nothing}),
        read_ollama_generate({"model": "m", "prompt": "Hi", **nothing, "options": nothing}),
    ):
        assert request.generation is not None and request.generation.notes == ()


def test_recommended_options_of_models_are_rows_of_the_table():
    assert {each.name for each in fields(SamplingDefaults)} == {name for name, row in GENERATION.items() if row.model}


def test_lines_of_tasks_accept_options_that_override_a_task():
    def check(name: str) -> None:
        row = GENERATION[name]
        for field in row.chat:
            line = {"text": "Good morning.", "task": "summarize", field: written(name)}
            assert getattr(RequestReader().read_value(line).options, name) == sample(row)

    check_each([name for name in OVERRIDES if GENERATION[name].chat], check)


def test_options_of_vectors_are_those_of_the_table_in_bodies_lines_and_on_the_command_line():
    flags = {flag for each in embed.params for flag in each.opts}

    def check(name: str) -> None:
        row = EMBEDDING[name]
        value = "query" if name == "kind" else "cut" if name == "too_long" else sample(row)
        wanted = EmbeddingOptions(**{name: value})
        body = {"model": "m", "input": "a text", row.chat[0]: value}
        line = RequestReader().read_value({"custom_id": "a", **body})
        assert read_embedding_request(body).options == wanted == line.request.options
        assert wanted.to_json() == {name: value}
        assert {row.flag, NAMES.get(row.flag)} & flags and row.text in {each.help for each in embed.params}
        with pytest.raises(LeapOptionsError) as caught:
            read_embedding_request({**body, row.chat[0]: 0})
        assert caught.value.option == row.chat[0]

    check_each(EMBEDDING, check)


def test_limits_of_a_batch_are_those_of_the_table_on_the_command_line_and_in_settings():
    def check(name: str) -> None:
        row = (LIMITS | ESCALATION)[name]
        assert row.flag in {flag for each in batch.params for flag in each.opts}
        settings = BatchSettings.of("in.jsonl", "out.jsonl", **{name: sample(row)})
        assert BatchSettings.from_json(settings.to_json()) == settings
        with pytest.raises(LeapOptionsError) as caught:
            BatchSettings.of("in.jsonl", "out.jsonl", **{name: 0})
        assert caught.value.option == name

    check_each(LIMITS | ESCALATION, check)


ADDED = '''
import importlib.abc, importlib.machinery, importlib.util, json, sys

NAME = "leap_core.conversation.options"
ROW = """
    shine: float | None = _sampling(Number(0.0, 1.0), text="Let the answer shine.")

    def __post_init__(self) -> None:
        self._check_constraints()
"""


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the module of the options with one more row."""

    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        self.place = importlib.machinery.PathFinder.find_spec(name, path).origin
        return importlib.util.spec_from_loader(name, self)

    def exec_module(self, module):
        source = open(self.place, encoding="utf-8").read()
        end = source.index("\\n    def __post_init__(self) -> None:\\n        self._check_constraints()\\n")
        rest = source[end:].replace(ROW[ROW.index("    def __post_init__"):], "", 1)
        exec(compile(source[:end] + ROW + rest, self.place, "exec"), module.__dict__)


sys.meta_path.insert(0, Finder())

from leap_cli.commands.ask.generate import command
from leap_core.batch.input.lines import RequestReader
from leap_core.conversation.loading_options import CACHE, LOADING
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.request import Request
from leap_core.protocols.endpoint.bodies import chat_body
from leap_core.protocols.ollama import read_ollama_chat
from leap_core.protocols.openai.requests import read_chat
from leap_core.tasks.task import OVERRIDES

said = [{"role": "user", "content": "Hello!"}]
found = {
    "chat": read_chat({"messages": said, "shine": 0.5}).options.shine,
    "ollama": read_ollama_chat({"model": "m", "messages": said, "options": {"shine": 0.5}}).generation.options.shine,
    "endpoint": chat_body(Request([ChatMessage("user", "Hello!")], (), GenerationOptions(shine=0.5)))["shine"],
    "line": RequestReader().read_value({"prompt": "Hello!", "shine": 0.5}).options.shine,
    "line of a task": RequestReader().read_value({"text": "Hello!", "task": "summarize", "shine": 0.5}).options.shine,
    "schema": 0.5 if "shine" in Request.schema()["properties"]["options"]["properties"] else None,
    "stored": GenerationOptions.from_json({"shine": 0.5}).shine,
    "task": 0.5 if "shine" in OVERRIDES else None,
}
option = next(each for each in command.params if "--shine" in each.opts)
found["help"] = 0.5 if option.help == "Let the answer shine." and option.rare else None
from leap_cli.reference.pages import pages

found["reference"] = 0.5 if any("--shine" in text for text in pages().values()) else None
print(json.dumps(found))
'''


@pytest.mark.slow
def test_a_new_row_appears_everywhere(tmp_path):
    script = tmp_path / "added.py"
    script.write_text(ADDED)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=ROOT.parent
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert {place for place, value in json.loads(done.stdout).items() if value != 0.5} == set()
