"""``leap_core.batch.Mapper``: a model as a function over the columns of any data frame."""

from __future__ import annotations

import base64
import json
import pickle

import pytest

from leap_core.batch import Mapper
from leap_core.batch.clusters.line_answerer import unload_all
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapError, LeapGenerationError, LeapOptionsError, LeapSerializationError
from leap_core.models.builtin import model_path

from ..conftest import AnsweringRunner

NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0}
needs_model = pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet")
SHORT = GenerationOptions(temperature=0.0, max_tokens=4)


@pytest.fixture(autouse=True)
def fresh_runners():
    yield
    unload_all()


@pytest.fixture
def scripted():
    """A mapper over a runner that answers by what is asked, and that runner."""

    def make(*args, answer=lambda text: f"<{text}>", **given):
        unload_all()
        mapper, runner = Mapper("scripted", *args, **given), AnsweringRunner(answer)
        mapper._load = lambda *_args, **_given: runner
        return mapper, runner

    return make


def test_columns_in_columns_out(scripted):
    mapper, _ = scripted(prompt="{greeting}, {name}!")
    table = {"greeting": ["Hi", "Ho"], "name": ["Ä", 7]}
    out = mapper(table)
    assert out == {
        **table,
        "answer": ["<Hi, Ä!>", "<Ho, 7!>"],
        "error": ["", ""],
        "usage": [{"prompt_tokens": 5, "completion_tokens": 1}] * 2,
    }
    assert mapper({"greeting": [], "name": []})["answer"] == []


def test_errors_are_values(scripted):
    failing = {"b": LeapGenerationError("broken")}
    mapper, _ = scripted(prompt="{text}", answer=lambda text: failing.get(text, f"<{text}>"))
    out = mapper({"text": ["a", "b", " ", None, "d"]})
    assert out["answer"] == ["<a>", "", "", "<null>", "<d>"]
    assert out["error"][1] == "broken" and "not empty" in out["error"][2] and out["usage"][1] == NO_USAGE


def test_messages_schema_and_task_are_those_of_a_line(scripted):
    said = [{"role": "system", "content": "Be {{brief}}."}, {"role": "user", "content": "{q}"}]
    mapper, runner = scripted(messages=said, schema="name str", options=GenerationOptions(temperature=0.5))
    mapper({"q": ["who?"], "prompt": ["not asked"]})
    (request,) = runner.requests
    assert [message.text for message in request.messages] == ["Be {brief}.", "who?"]
    assert json.loads(request.options.json_schema_constraint)["properties"]["name"] == {"type": "string"}
    assert request.options.temperature == 0.5
    mapper, _ = scripted(prompt="{mail}", task={"task": "translate", "to": "de"}, answer=lambda _: "schlimm")
    assert mapper({"mail": ["awful"]})["answer"] == ["schlimm"]


def test_bytes_of_pictures_go_to_the_model(scripted):
    png = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    mapper, runner = scripted(prompt="{q}")
    out = mapper({"q": ["what?", "and?"], "image": [{"bytes": png, "path": None}, b"no picture"]})
    assert out["answer"][0] and out["error"][0] == "" and out["error"][1]
    assert type(runner.requests[0].messages[-1].content[0]).__name__ == "Image"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "either a prompt or messages"),
        ({"prompt": "{a}", "messages": []}, "either a prompt or messages"),
        ({"prompt": "always the same"}, "names no column"),
        ({"task": {"task": "redact"}, "schema": "a str"}, "no schema beside it"),
        ({"prompt": "{a.b}"}, "not a plain name"),
    ],
)
def test_options_that_fit_no_row_are_refused_at_once(given, told):
    with pytest.raises((LeapOptionsError, LeapSerializationError), match=told):
        Mapper("builtin", **given)


def test_a_missing_column_and_an_input_other_than_a_table_are_errors(scripted):
    mapper, _ = scripted(prompt="{text}")
    with pytest.raises(LeapSerializationError, match="no column text; it has other"):
        mapper({"other": [1]})
    with pytest.raises(LeapSerializationError, match="is no table"):
        mapper(7)
    with pytest.raises(LeapError, match="nosuch"):
        Mapper("nosuch-model", prompt="{text}")({"text": ["a"]})


def test_pandas_frames_and_iterators_of_frames_as_spark_passes_them(scripted):
    pandas = pytest.importorskip("pandas")
    mapper, runner = scripted(prompt="{text} {n}")
    frame = pandas.DataFrame({"text": ["a", "b"], "n": [1.5, float("nan")]}, index=[7, 9])
    out = mapper(frame)
    assert list(out.index) == [7, 9] and list(out["answer"]) == ["<a 1.5>", "<b null>"]
    assert list(frame.columns) == ["text", "n"], "the frame that was given changed"
    frames = list(mapper(iter([frame, frame])))
    assert len(frames) == 2 and list(frames[1]["answer"]) == ["<a 1.5>", "<b null>"]
    assert len(runner.requests) == 6


def test_arrow_tables(scripted):
    pyarrow = pytest.importorskip("pyarrow")
    mapper, _ = scripted(prompt="{text}")
    table = pyarrow.table({"text": ["a", "b"], "answer": [1, 2]})
    out = mapper(table)
    assert out.column_names == ["text", "answer", "error", "usage"] and out["answer"].to_pylist() == ["<a>", "<b>"]
    batch = mapper(table.to_batches()[0])
    assert isinstance(batch, pyarrow.RecordBatch) and batch.num_columns == 4


@needs_model
def test_a_mapper_is_pickled_without_its_model():
    mapper = Mapper("builtin", prompt="Say {text}.", options=SHORT)
    first = mapper({"text": ["one"]})["answer"]
    again = pickle.loads(pickle.dumps(mapper))
    assert again({"text": ["one"]})["answer"] == first and len(pickle.dumps(mapper)) < 4000
