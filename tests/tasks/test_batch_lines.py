"""Tasks in the lines of a batch: the same results as the commands, journalled and resumed."""

from __future__ import annotations

import json

import pytest

from leap_core.batch.input.lines import RequestReader
from leap_core.errors import LeapError

LINES = [
    {"task": "extract", "schema": "name, age int", "text": "Tim is 19 years old."},
    {"id": "c", "task": "classify", "labels": ["greeting", "question"], "text": "Hello!"},
    {"task": "decide", "question": "Is the weather good?", "text": "It rains."},
    {"task": "decide", "question": "How good is it?", "score": "1..10", "prompt": "It rains."},
    {"task": "redact", "categories": "city", "text": "Tim lives in Rome, and Rome is old."},
    {"task": "translate", "to": "de", "text": "Say hello.", "max_tokens": 12},
    {"task": "summarize", "kind": "topics", "text": "Say hello.", "max_tokens": 12, "seed": 3},
    {"prompt": "Say hello."},
]
COMMANDS = [
    ("extract", "--json-schema", "name, age int"),
    ("classify", "--labels", "greeting,question"),
    ("decide", "Is the weather good?"),
    ("decide", "How good is it?", "--score", "1..10"),
    ("redact", "--categories", "city"),
    ("translate", "--to", "de", "--max-tokens", "12"),
    ("summarize", "--kind", "topics", "--max-tokens", "12", "--seed", "3"),
]


@pytest.fixture
def on_builtin(leap, builtin):
    """The command line on the built-in model, which stays loaded."""

    class Kept:
        def __getattr__(self, name):
            return getattr(builtin, name)

        def __enter__(self):
            return builtin

        def __exit__(self, *_):
            return None

    leap.runner = Kept()
    return leap


@pytest.mark.slow
def test_a_line_has_what_the_command_prints(on_builtin, tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    done = on_builtin("batch", "in.jsonl", "-o", "out.jsonl", "--format", "plain", "--concurrency", "1")
    assert done.code == 0, (tmp_path / "out.jsonl").read_text()
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for line, command, row in zip(LINES, COMMANDS, rows, strict=False):
        alone = on_builtin(*command, stdin=line.get("text") or line["prompt"])
        assert alone.stdout.rstrip("\n") == row["text"], command
    assert rows[1]["custom_id"] == "c" and sum(rows[1]["probabilities"].values()) == pytest.approx(1)
    assert rows[3]["expected"] > 0 and rows[4]["map"] is not None
    first = (tmp_path / "out.jsonl").read_bytes()
    done = on_builtin("batch", "in.jsonl", "-o", "out.jsonl", "--format", "plain", "--concurrency", "1")
    assert "8 answered (8 of them before)" in done.stderr and (tmp_path / "out.jsonl").read_bytes() == first


def test_a_changed_task_or_recipe_is_another_line(leap_home):
    def digest(line, recipes=None):
        request = RequestReader(recipes=recipes or {}).read(json.dumps(line).encode())
        return request.digest("x")

    plain = {"task": "classify", "labels": ["a", "b"], "text": "t"}
    others = [{**plain, "labels": ["b", "a"]}, {**plain, "text": "u"}, {**plain, "format": "csv"}, {"prompt": "t"}]
    own = '[[wording]]\nmodels = ["*"]\nsystem = "{labels}"\n'
    digests = {digest(plain), digest(plain, {"classify": own}), *map(digest, others)}
    assert len(digests) == 2 + len(others) and digest(plain) == digest(dict(reversed(plain.items())))


def test_the_texts_alone_can_be_written_and_failures_stay_apart(leap, tmp_path):
    from tests.batch.conftest import AnsweringRunner

    leap.runner = AnsweringRunner(lambda text: "not JSON" if "x" in text else '{"name": "Tim"}')
    lines = [{"task": "extract", "schema": "name", "format": "csv", "text": text} for text in ("a", "b")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = leap("batch", "in.jsonl", "--format", "text", "-m", "builtin")
    assert (done.code, done.stdout) == (0, "Tim\nTim\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"task": "sing", "text": "a"}, "task: 'sing' is not one of extract"),
        ({"task": ["extract"], "text": "a"}, "is not one of"),
        ({"task": "extract", "text": "a"}, "schema: missing"),
        ({"task": "extract", "schema": {"type": 5}, "text": "a"}, "schema is invalid"),
        ({"task": "extract", "schema": "a", "image": "nosuch.png"}, "image: cannot read"),
        ({"task": "extract", "schema": "a", "image": "x", "text": "a"}, "a text, a prompt, a file or an image"),
        ({"task": "classify", "labels": "a", "text": "a"}, "labels: give two or more"),
        ({"task": "classify", "labels": ["a", ""], "text": "a"}, "labels: one of the texts is empty"),
        ({"task": "classify", "labels": [1, 2], "text": "a"}, "labels: expected a list of texts"),
        ({"task": "summarize", "image": "x"}, "only extract, classify and decide take pictures"),
        ({"task": "translate", "to": 5, "text": "a"}, "to: expected a text"),
        ({"task": "translate", "to": "de", "from": 5, "text": "a"}, "from: expected a text"),
        ({"task": "decide", "question": "q", "score": [1], "text": "a"}, "score: "),
        ({"task": "redact", "text": " "}, "text: expected a text that is not empty"),
        ({"task": "redact"}, "a text, a prompt, a file or an image"),
        ({"task": "redact", "text": "a", "system": "s"}, "system: a line with the task redact has no such field"),
        ({"task": "redact", "text": "a", "temperature": -1}, "temperature"),
    ],
)
def test_a_line_that_cannot_be_used_says_why(line, message):
    with pytest.raises(LeapError, match=message):
        RequestReader().read(json.dumps(line).encode())
