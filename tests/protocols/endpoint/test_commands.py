"""Endpoints from the command line: names, batches that hold back and go on, a second model, where the key is not."""

from __future__ import annotations

import json
import math
import threading

import pytest

from leap_core.batch import answering
from leap_core.batch.answering import Pace
from leap_core.batch.escalation import When, probability
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import Complete, GenerationFinishReason, TokenLogprob
from leap_core.errors import LeapOptionsError
from leap_core.testing import ScriptedModelRunner

from .conftest import KEY
from .fake_server import chunk, fails, hangs_up, says, streams

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


def echo(body) -> str:
    return f"you said {body['messages'][-1]['content']}"


def test_a_name_answers_everywhere_with_its_key(leap, far):
    far.always = says("Paris.")
    done = leap("generate", "-m", "far", "Where?")
    assert (done.code, done.stdout) == (0, "Paris.\n"), done
    path, headers, body = far.requests[0]
    assert path == "/v1/chat/completions" and headers["authorization"] == f"Bearer {KEY}" and body["model"] == "m"
    assert leap("generate", "-m", "far#other", "Where?").code == 0 and far.requests[-1][2]["model"] == "other"
    assert leap("generate", "-m", f"{far.url}#third", "Where?").code == 0
    assert far.requests[-1][1]["authorization"] == f"Bearer {KEY}"
    assert "far" in leap("models", "endpoints").stdout
    assert leap("models", "endpoints", "far", "--remove").code == 0
    assert "there are no endpoints" in leap("models", "endpoints").stderr


def test_the_first_use_at_a_terminal_says_where_prompts_go(leap, far):
    first = leap("generate", "-m", "far", "Where?", terminal=True)
    again = leap("generate", "-m", "far", "Where?", terminal=True)
    assert "prompts go to 127.0.0.1" in first.stderr and "prompts go to" not in again.stderr


def test_offline_refuses_endpoints_only(leap, far):
    assert leap("config", "set", "offline", "true").code == 0
    done = leap("generate", "-m", "far", "Where?")
    assert done.code == 10 and "offline = true" in done.stderr and far.requests == []


def test_an_answer_that_breaks_its_schema_is_asked_again_and_then_code_6(leap, far):
    far.behaviours.append(says('{"n": "one"}'))
    far.always = says('{"n": 1}')
    done = leap("generate", "-m", "far", "--json-schema", SCHEMA, "How many?")
    assert done.code == 0 and json.loads(done.stdout) == {"n": 1}
    first, second = (body for _, _, body in far.requests)
    assert first["response_format"]["json_schema"]["schema"] == json.loads(SCHEMA)
    assert "n" in second["messages"][-1]["content"] and len(second["messages"]) == len(first["messages"]) + 2
    far.always = says("no")
    assert leap("generate", "-m", "far", "--json-schema", SCHEMA, "--option", "repair=0", "How many?").code == 6
    assert len(far.requests) == 3


def test_a_schema_is_written_as_older_servers_read_it(leap, far):
    def answer(handler):
        known = handler.body["response_format"]["type"] != "json_schema"
        (says('{"n": 1}') if known else fails(500, "response_format: not 'text' or 'json_object'"))(handler)

    far.always = answer
    for asked in (2, 3):
        done = leap("generate", "-m", "far", "--json-schema", SCHEMA, "How many?")
        assert done.code == 0 and json.loads(done.stdout) == {"n": 1}, done
        assert len(far.requests) == 2 * (asked - 1)  # each command finds it out
    assert far.requests[-1][2]["response_format"] == {"type": "json_object", "schema": json.loads(SCHEMA)}


@pytest.mark.parametrize("url", ["https://me:secret@host/v1", "https://host/v1?key=secret", "ftp://host", "https://"])
def test_an_address_with_a_key_or_without_a_host_is_refused(leap, url):
    done = leap("models", "add-endpoint", "far", url)
    assert done.code == 2 and "secret" not in done.stderr


def test_a_key_given_as_the_name_of_its_variable_is_not_saved(leap, leap_home):
    done = leap("models", "add-endpoint", "far", "https://host/v1", "--key-variable", KEY)
    assert done.code == 2 and KEY not in done.stderr and not (leap_home / "config.toml").exists()


@pytest.mark.slow
def test_a_batch_with_faults_answers_each_line_once_and_never_shows_the_key(leap, far, leap_home, tmp_path):
    faults = [fails(429, KEY, Retry_After="0.2"), hangs_up, fails(503, KEY), streams(chunk({"content": "half"}))]
    for n in range(40):
        far.behaviours.append(faults[n // 10] if n % 10 == 5 else says(echo))
    far.always = says(echo)
    (tmp_path / "in.txt").write_text("".join(f"line {n}\n" for n in range(60)))
    source, output = str(tmp_path / "in.txt"), tmp_path / "out.jsonl"
    done = leap("batch", source, "-m", "far", "-o", str(output), "--concurrency", "4", "--input-format", "lines")
    assert done.code == 0, done
    rows = [json.loads(row) for row in output.read_text().splitlines()]
    assert [row["text"] for row in rows] == [f"you said line {n}" for n in range(60)]
    assert far.most_at_once <= 4
    leap("generate", "-m", "far", "Where?", terminal=True)
    far.always = fails(401, f"bad key {KEY}")
    refused = leap("generate", "-m", "far", "Where?")
    assert refused.code == 10 and KEY not in refused.stderr
    for file in [each for root in (leap_home, tmp_path) for each in root.rglob("*") if each.is_file()]:
        assert file == tmp_path / "key" or KEY.encode() not in file.read_bytes(), file


def test_lines_of_a_batch_are_not_streamed_and_retried_when_cut_off(leap, far, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("one\ntwo\n")
    far.behaviours.append(lambda handler: handler.send(200, "application/json", b'{"choices": [{"mess'))
    far.always = says(echo)
    done = leap("batch", str(source), "-m", "far", "-o", str(output), "--input-format", "lines", "--format", "text")
    assert done.code == 0, done.stderr
    assert output.read_text() == "you said one\nyou said two\n"
    assert len(far.requests) == 3 and not any("stream" in body for _, _, body in far.requests)


def test_a_batch_ends_when_the_endpoint_refuses_all_and_resumes_later(leap, far, tmp_path):
    far.behaviours.extend([says(echo)] * 3)
    far.always = fails(401)
    (tmp_path / "in.txt").write_text("".join(f"line {n}\n" for n in range(10)))
    line = ["batch", str(tmp_path / "in.txt"), "-m", "far", "-o", str(tmp_path / "out"), "--format", "plain"]
    assert leap(*line, "--concurrency", "1").code == 10
    far.always = says(echo)
    assert leap(*line).code == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 10
    assert sum(body["messages"][-1]["content"] == "line 0" for _, _, body in far.requests) == 1


def test_lines_that_fail_their_schema_locally_go_to_the_endpoint(leap, far, tmp_path):
    near = says(lambda body: '{"n": 1}' if "easy" in str(body["messages"]) else "hard")

    def answer(handler):
        (near if handler.body["model"] == "near" else says('{"n": 2}'))(handler)

    far.always = answer
    (tmp_path / "in.txt").write_text("easy\nhard\n")
    done = leap(
        *("batch", str(tmp_path / "in.txt"), "-m", "far#near", "--escalate-to", "far", "--escalate-when", "invalid"),
        *("--json-schema", SCHEMA, "--format", "plain", "-o", str(tmp_path / "out")),
    )
    assert done.code == 0 and "1 of 2 answers (50 %) came from far, for 7 tokens of prompts" in done.stderr, done
    easy, hard = (json.loads(row) for row in (tmp_path / "out").read_text().splitlines())
    assert (easy["text"], hard["text"]) == ('{"n": 1}', '{"n": 2}')
    assert "answered_by" not in easy and (hard["answered_by"], hard["escalated"]) == ("m", "invalid")


def test_answers_judged_bad_by_the_first_model_go_to_the_second(leap, far, tmp_path, monkeypatch):
    lock = threading.Lock()

    class Near(ScriptedModelRunner):
        """Answers with the prompt, and finds what has ``bad`` in it bad."""

        def start(self, messages, functions=(), options=None):
            text = messages[-1].text
            script: object = f"I say {text}"
            if options.choices_constraint is not None:
                (answer,) = options.choices_constraint
                share = 0.1 if "bad" in text.partition("Is it good?")[0] else 0.9
                score = TokenLogprob(answer.encode(), math.log(share if answer == "yes" else 1 - share))
                message = ChatMessage("assistant", answer)
                script = [Complete(message, GenerationFinishReason.STOP, logprobs=(score,))]
            with lock:  # lines are prepared ahead in other threads
                self.add(script)
                return super().start(messages, functions, options)

    monkeypatch.setattr(leap, "load", lambda *_: Near())
    far.always = says("better")
    (tmp_path / "in.txt").write_text("one\nbad\n")
    line = [
        "batch",
        str(tmp_path / "in.txt"),
        "-m",
        "builtin",
        "--escalate-to",
        "far",
        "--format",
        "plain",
        "-o",
        "out",
    ]
    line += ["--concurrency", "1"]
    done = leap(*line, "--escalate-when", "check<0.5", "--check", "Is it good?")
    assert done.code == 0 and "1 of 2 answers (50 %) came from far" in done.stderr, done
    first, second = (json.loads(row) for row in (tmp_path / "out").read_text().splitlines())
    assert (first["text"], second["text"], second["escalated"]) == ("I say one", "better", "check")
    for wrong in (("--check", "Is it good?"), ("--escalate-when", "check"), ("--escalate-when", "check<2")):
        assert leap(*line, "--replace", *wrong).code == 2
    assert leap(*line, "--on", "ray").code == 2


def test_when_is_parsed_and_applied():
    def complete(text: str, *probabilities: float) -> Complete:
        scores = tuple(TokenLogprob(b"x", each) for each in probabilities)
        return Complete(ChatMessage("assistant", text), GenerationFinishReason.STOP, logprobs=scores)

    when = When.parse("invalid,uncertain<0.8|refused")
    assert when == When(True, 0.8, True)
    assert when.reason(complete("I cannot help with that.")) == "refused"
    assert when.reason(complete("yes", -0.5)) == "uncertain" and when.reason(complete("yes", -0.01)) is None
    assert 0.36 < probability(complete("yes", -1.0, -1.0)) < 0.37
    for wrong in ("", "uncertain", "uncertain<2", "bad"):
        with pytest.raises(LeapOptionsError):
            When.parse(wrong)


class Hour:
    """A clock, and an event that never comes: who waits for it lets time pass."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


def test_a_rate_limit_is_kept(monkeypatch):
    hour = Hour()
    monkeypatch.setattr(answering, "time", hour)
    pace, sent = Pace(requests=2), []
    for _ in range(5):
        assert pace.wait(hour)
        sent.append(hour.now)
    assert sent == pytest.approx([0, 0, 60, 60, 120])
    tokens = Pace(tokens=10)
    tokens.spend(12)
    assert tokens.wait(hour) and hour.now == pytest.approx(180)


def test_an_endpoint_can_have_headers_a_path_and_fields(leap, fake):
    line = (
        "models",
        "add-endpoint",
        "near",
        fake.url,
        "--model",
        "m",
        "--option",
        "path=/chat",
        "--header",
        "X-Title=leap",
    )
    assert leap(*line, "--body", '{"provider": {"order": ["one"]}, "top_a": 0.5}').code == 0
    assert leap("generate", "-m", "near", "Where?").code == 0
    path, headers, body = fake.requests[0]
    assert path == "/v1/chat" and headers["x-title"] == "leap"
    assert (body["provider"], body["top_a"]) == ({"order": ["one"]}, 0.5)
    for wrong in (
        ["--header", "X"],
        ["--header", "a b=c"],
        ["--option", "path=chat"],
        ["--body", "[1]"],
        ["--body", "{"],
    ):
        done = leap("models", "add-endpoint", "other", fake.url, *wrong)
        assert done.code == 2 and done.stderr.count("\n") == 1, done
    assert "other" not in leap("models", "endpoints").stdout
