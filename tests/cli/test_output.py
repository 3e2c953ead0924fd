"""The formats, and what reaches which stream."""

from __future__ import annotations

import io
import json

import pytest

from leap_cli.framework.environment import Environment
from leap_cli.framework.output import Format, Output

MODELS = [
    {"name": "LFM2-350M", "size": 1234, "local": True, "tasks": ["text", "tools"], "note": None},
    {"name": "grün", "size": 5, "local": False, "tasks": [], "note": "two\nlines"},
]


def written(format, act, **environment):
    env = Environment(**environment)
    act(Output(env, format))
    return env.stdout.getvalue(), env.stderr.getvalue()


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (
            Format.TEXT,
            "NAME       SIZE  LOCAL  TASKS        NOTE\n"
            "LFM2-350M  1234  yes    text, tools  -\n"
            "grün       5     no                  two lines\n",
        ),
        (Format.QUIET, "LFM2-350M\ngrün\n"),
    ],
)
def test_records_for_people_and_for_xargs(format, expected):
    columns = ["name", "size", "local", "tasks", "note"]
    assert written(format, lambda output: output.records(MODELS, columns, name="name")) == (expected, "")


def test_records_for_programs():
    document, _ = written(Format.JSON, lambda output: output.records(MODELS, ["name"], name="name"))
    assert json.loads(document) == MODELS
    lines, _ = written(Format.JSONL, lambda output: output.records(iter(MODELS), ["name"], name="name"))
    assert [json.loads(line) for line in lines.splitlines()] == MODELS


@pytest.mark.parametrize(("format", "expected"), [("text", ""), ("quiet", ""), ("json", "[]\n"), ("jsonl", "")])
def test_no_records(format, expected):
    assert written(format, lambda output: output.records([], ["name"], name="name")) == (expected, "")


def test_one_record():
    show = lambda output: output.record(MODELS[0], name="name")  # noqa: E731
    assert written("text", show)[0].splitlines()[:2] == ["name   LFM2-350M", "size   1234"]
    assert json.loads(written("json", show)[0]) == json.loads(written("jsonl", show)[0]) == MODELS[0]
    assert written("quiet", show)[0] == "LFM2-350M\n"


def test_progress_is_for_terminals_and_cleared_before_other_output():
    def act(output):
        output.progress("10 %")
        output.progress("20 %")
        output.text("data\n")
        output.note("done")

    assert written("text", act) == ("data\n", "leap: done\n")
    clear = "\r\x1b[K"
    stdout, stderr = written("text", act, stderr_is_terminal=True)
    assert (stdout, stderr) == ("data\n", f"{clear}10 %{clear}20 %{clear}leap: done\n")


def test_text_of_a_model_cannot_control_a_terminal():
    text = "a\x1b[2Jb\x07c\x9bd\re\tf\n"
    assert written("text", lambda output: output.text(text)) == (text, "")
    shown, _ = written("text", lambda output: output.text(text), stdout_is_terminal=True)
    assert shown == "a�[2Jb�c�d�e\tf\n"
    _, shown = written("text", lambda output: output.aside(text), stderr_is_terminal=True, variables={"NO_COLOR": "1"})
    assert shown == "a�[2Jb�c�d�e\tf\n"


def test_text_of_a_model_cannot_change_the_text_direction_of_a_terminal():
    text = "rm \u202efdp.exe\u2066"
    shown, _ = written("text", lambda output: output.text(text), stdout_is_terminal=True)
    assert shown == "rm �fdp.exe�"
    stdout, _ = written("json", lambda output: output.document({"text": text}))
    assert "\\u202e" in stdout and json.loads(stdout) == {"text": text}


def test_json_holds_no_control_characters():
    value = {"text": "a\x1b\x7f\x9bä"}
    for format in ("json", "jsonl"):
        stdout, _ = written(format, lambda output: output.document(value) or output.event(value))
        assert "\\u009b" in stdout and "ä" in stdout and not set(stdout) & set("\x1b\x7f\x9b")
        assert json.loads(stdout.splitlines()[-1]) == value


def test_everything_is_flushed_as_it_is_written():
    class Watched(io.StringIO):
        flushed = ""

        def flush(self):
            self.flushed = self.getvalue()

    env = Environment(stdout=Watched(), stderr=Watched())
    Output(env).text("piece")
    Output(env).note("said")
    assert (env.stdout.flushed, env.stderr.flushed) == ("piece", "leap: said\n")
