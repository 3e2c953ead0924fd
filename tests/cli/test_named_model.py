"""-m decides: where several models are installed and none is the default, no command asks which one answers."""

from __future__ import annotations

import pytest

import leap_cli.options.loading
from jobs.client import JobsClient
from leap_cli.config.settings import commands

REFUSED = "3 models are installed and none is the default"
CASES = '{"prompt": "hi", "expect": {"contains": "ok"}}\n'
LINES = {
    "generate": [["hi"], ["hi", "--dry-run"], ["hi", "--background"], ["hi", "--at", "+1h"], ["-t", "saved", "hi"]],
    "chat": [["hi"]],
    "say": [["hi", "-o", "x.wav"], ["hi", "-o", "x.wav", "--background"]],
    "talk": [["--input", "x.wav"]],
    "batch": [["b.jsonl"], ["b.jsonl", "-o", "o.jsonl"], ["b.jsonl", "-o", "p.jsonl", "--background"], ["v.jsonl"]],
    "transcribe": [["x.wav"], ["x.wav", "--background"]],
    "index make": [["notes", "b.jsonl"]],
    "ask": [["notes", "what?"]],
    "embed": [["hi"]],
    "extract": [["--json-schema", "name", "hi"], ["--json-schema", "name", "hi", "--background"]],
    "translate": [["--to", "fr", "hi"], ["--to", "fr", "hi", "--background"]],
    "summarize": [["hi"], ["hi", "--background"], ["hi", "--dry-run"]],
    "redact": [["hi"], ["hi", "--background"]],
    "classify": [["--labels", "a,b", "hi"], ["--labels", "a,b", "hi", "--background"]],
    "decide": [["ok?", "hi"], ["ok?", "hi", "--dry-run"]],
    "eval run": [["c.jsonl"], ["c.jsonl", "--background"]],
    "improve": [["c.jsonl", "--budget", "1"], ["c.jsonl", "--background"]],
    "train": [["c.jsonl"]],
    "serve": [["--api-key-file", "nosuch"]],
    "launch": [[], ["pi", "--dry-run"], ["pi", "--print-env", "--dry-run"]],
    "sessions log replay": [["last"]],
}
"""What is typed after each command that has -m, beside it."""
NAMING = {
    "models add-endpoint": "the name of a model elsewhere",
    "why": "what --replay changes; the model is that of the request",
    "saved templates add": "an option that is saved",
    "sessions log list": "a filter",
    "sessions log search": "a filter",
    "export": "a filter",
    "mcp": "a program that goes on",
    "setup": "the default that is set",
}
"""Commands whose --model is no model that answers."""


@pytest.fixture
def three(leap, tmp_path, monkeypatch):
    """Three installed models, and files for the commands."""
    monkeypatch.setattr(leap_cli.options.loading, "installed_models", lambda _env: ["A", "B", "C"])
    monkeypatch.setattr(JobsClient, "ensure_worker", lambda _jobs: None)
    (tmp_path / "b.jsonl").write_text('{"prompt": "hi"}\n')
    (tmp_path / "v.jsonl").write_text('{"custom_id": "1", "url": "/v1/embeddings", "body": {"input": "hi"}}\n')
    (tmp_path / "c.jsonl").write_text(CASES)
    (tmp_path / "x.wav").write_bytes(b"RIFF")
    assert leap("saved", "templates", "add", "saved", "Say: {input}").code == 0
    leap.script(*["ok"] * 40)
    return leap


def test_every_command_with_a_model_option_is_tested():
    having = {path for path, command in commands() if any("--model" in option.opts for option in command.params)}
    assert having == LINES.keys() | NAMING.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "line"), [(path, line) for path, lines in LINES.items() for line in lines])
def test_a_command_with_a_named_model_asks_no_question(three, path, line):
    done = three(*path.split(), *line, "-m", "builtin")
    assert REFUSED not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        ["batch", "b.jsonl"],
        ["serve", "--api-key-file", "nosuch"],
        ["classify", "--labels", "a,b", "hi", "--background"],
    ],
)
def test_a_command_without_a_named_model_asks_for_one(three, line):
    done = three(*line)
    assert done.code == 2 and REFUSED in done.stderr


@pytest.mark.parametrize("line", [["batch", "b.jsonl"], ["eval", "c.jsonl", "-o", "e"]])
def test_the_named_model_answers(three, line):
    done = three(*line, "-m", "builtin")
    assert done.code == 0, done.stderr
    assert {name for name, _ in three.loaded} == {"builtin"}


def test_a_logged_prompt_is_replayed_on_the_named_model(three):
    three("sessions", "log", "on")
    three("generate", "hi", "-m", "builtin")
    three.loaded.clear()
    three.script("ok")
    done = three("sessions", "log", "replay", "-m", "builtin")
    assert REFUSED not in done.stderr and {name for name, _ in three.loaded} == {"builtin"}


@pytest.mark.parametrize("line", [["batch", "b.jsonl", "-o", "o.jsonl"], ["classify", "--labels", "a,b", "hi"]])
def test_the_job_has_the_named_model(three, line):
    done = three(*line, "-m", "builtin", "--background")
    assert done.code == 0, done.stderr
    with JobsClient(three.variables | {"LEAP_HOME": str(three.home)}) as jobs:
        assert jobs.get(done.stdout.strip()).parameters["batch"]["model"] == "builtin"


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({"LEAP_BATCH_MODEL": "builtin", "LEAP_EVAL_RUN_MODEL": "builtin"}, ""),
        ({"LEAP_MODEL": "builtin"}, ""),
        ({}, 'default_model = "builtin"'),
        ({}, '[options]\nmodel = "builtin"'),
    ],
)
def test_a_model_in_a_variable_or_the_settings_counts(three, variables, settings):
    three.variables = variables
    (three.home / "config.toml").write_text(settings)
    for line in (["batch", "b.jsonl"], ["eval", "c.jsonl"], ["batch", "b.jsonl", "-o", "o.jsonl", "--background"]):
        three.script("ok")
        done = three(*line)
        assert done.code == 0, (line, done.stderr)


def test_a_model_in_a_saved_template_counts(three):
    assert three("saved", "templates", "add", "own", "Say: {input}", "-m", "builtin").code == 0
    assert three("generate", "-t", "own", "hi").code == 0


def test_agents_are_listed_without_a_default_and_a_wrong_model_is_an_error(three):
    assert three("launch").code == 0
    assert three("launch", "-m", "nosuch").code == 2
