"""``leap batch`` on a runner that answers by what is asked."""

from __future__ import annotations

import json
import os

import pytest

from leap_core.conversation.messages import LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls, ReasoningChunk
from leap_core.errors import LeapConstraintError, LeapGenerationError, LeapGenerationPromptExceedContextLengthError
from leap_core.errors import LeapUnavailableError as Unavailable

from .conftest import AnsweringRunner

TEN = [{"custom_id": f"id-{n}", "prompt": str(n)} for n in range(10)]


def texts(records) -> list[tuple[str, str]]:
    return [
        (r["custom_id"], r["response"]["body"]["choices"][0]["message"]["content"]) for r in records if r["response"]
    ]


EXPECTED = [(f"id-{n}", f"<{n}>") for n in range(10)]


def test_results_have_openais_shape_in_the_order_of_the_input(batch, results):
    done, _ = batch(TEN, "--concurrency", "3")
    assert (done.code, done.stdout) == (0, "")
    assert done.stderr.startswith("leap: 10 lines: 10 answered, 0 failed; ") and done.stderr.count("\n") == 1
    assert texts(results()) == EXPECTED
    first = results()[0]
    assert set(first) == {"id", "custom_id", "response", "error"} and first["error"] is None
    assert first["response"]["status_code"] == 200
    body = first["response"]["body"]
    assert (body["object"], body["model"], body["choices"][0]["finish_reason"]) == (
        "chat.completion",
        "scripted",
        "stop",
    )
    counts = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
    assert body["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}


def test_plain_results_carry_reasoning_and_calls(batch, results):
    said = [ReasoningChunk("hm"), FunctionCalls((LeapFunctionCall("look", {"at": "x"}),))]
    batch([{"prompt": "a", "max_tokens": 9}], "--format", "plain", answer=lambda _: said)
    (record,) = results()
    assert record["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "x"}'}
    assert {key: record[key] for key in record if key != "tool_calls"} == {
        "custom_id": "line-1",
        "text": "",
        "reasoning": "hm",
        "finish_reason": "tool_calls",
        "prompt_tokens": 4,
        "completion_tokens": 1,
    }


def test_a_line_may_ask_for_several_answers(batch, results, tmp_path):
    said = iter("abcabcabc")
    lines = [{"custom_id": "x", "body": {"messages": [{"role": "user", "content": "1"}], "n": 3, "seed": 7}}]
    done, runner = batch(lines, answer=lambda _: next(said))
    body = results()[0]["response"]["body"]
    answers = [(choice["index"], choice["message"]["content"]) for choice in body["choices"]]
    assert (done.code, answers) == (0, [(0, "a"), (1, "b"), (2, "c")])
    assert body["usage"]["completion_tokens"] == 3 and body["usage"]["prompt_tokens"] == 4
    assert [request.options.rng_seed for request in runner.requests] == [7, 8, 9]
    batch(lines, "--format", "plain", answer=lambda _: "not asked again")
    assert results()[0]["answers"] == ["a", "b", "c"] and results()[0]["completion_tokens"] == 1


def test_unordered_writes_what_is_ready(batch, results):
    batch(TEN, "--unordered")
    assert sorted(texts(results())) == EXPECTED


def test_lines_come_from_stdin_and_results_go_to_stdout(leap, batch):
    _, runner = batch([])
    leap.runner = runner.__class__()
    done = leap("batch", "-", "-m", "builtin", "--format", "plain", stdin='{"prompt": "ä"}\n\n{"prompt": "b"}')
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["<ä>", "<b>"]


def test_failed_lines_are_recorded_and_retried(batch, results):
    failures = {
        "1": LeapGenerationError("broken", hint="mend it"),
        "2": LeapGenerationPromptExceedContextLengthError(9, 8),
        "3": LeapConstraintError("does not fit", text="{}"),
    }
    done, _ = batch(TEN, answer=lambda text: failures.get(text, f"<{text}>"))
    assert done.code == 8 and "7 answered, 3 failed" in done.stderr
    errors = [r["error"] for r in results()][1:4]
    assert errors[0] == {"code": "generation_failed", "message": "broken", "hint": "mend it"}
    assert errors[1]["code"] == "context_length_exceeded" and "9 tokens" in errors[1]["message"]
    assert errors[2] == {"code": "constraint_not_satisfied", "message": "does not fit", "text": "{}"}
    done, runner = batch(TEN)
    assert (done.code, runner.asked) == (0, ["1", "2", "3"]) and "(7 of them before)" in done.stderr
    assert texts(results()) == EXPECTED


def test_a_repeated_batch_loads_no_model_and_leaves_the_output_alone(batch, leap, tmp_path):
    batch(TEN)
    before = (tmp_path / "out.jsonl").read_bytes()
    done, runner = batch(TEN)
    assert (done.code, runner.asked, len(leap.loaded)) == (0, [], 1)
    assert (tmp_path / "out.jsonl").read_bytes() == before


def test_only_changed_lines_are_answered_again_and_none_is_duplicated(batch, results):
    batch(TEN)
    changed = [*TEN[:4], {"custom_id": "id-4", "prompt": "new"}, *TEN[6:], {"custom_id": "more", "prompt": "more"}]
    done, runner = batch(changed)
    assert (done.code, runner.asked) == (0, ["more", "new"])
    assert texts(results()) == [*EXPECTED[:4], ("id-4", "<new>"), *EXPECTED[6:], ("more", "<more>")]
    _, runner = batch(TEN, "--unordered")
    assert runner.asked == [] and sorted(texts(results())) == EXPECTED


def test_other_options_change_a_request_and_another_format_does_not(batch, results):
    batch(TEN)
    _, runner = batch(TEN, "--format", "plain")
    assert runner.asked == [] and [r["text"] for r in results()] == [text for _, text in EXPECTED]
    _, runner = batch(TEN, "--temperature", "0.5")
    assert len(runner.asked) == 10


@pytest.mark.slow
@pytest.mark.parametrize("ordered", ["--ordered", "--unordered"])
def test_files_cut_at_any_byte_of_the_last_line_are_repaired(batch, tmp_path, ordered):
    output, journal = tmp_path / "out.jsonl", tmp_path / "out.jsonl.journal"
    batch(TEN[:3], ordered, "--concurrency", "1")
    whole, kept = output.read_bytes(), journal.read_bytes()
    last = kept.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(1, len(kept) - last, 37):
        journal.write_bytes(kept[:-cut])
        output.write_bytes(whole[:-cut])
        done, runner = batch(TEN[:3], ordered)
        assert (done.code, len(runner.asked)) == (0, 1)
        again = output.read_bytes()
        assert sorted(texts(map(json.loads, again.splitlines()))) == EXPECTED[:3] and again.count(b"\n") == 3


def test_a_lost_or_damaged_output_is_rewritten_from_the_journal(batch, tmp_path):
    output = tmp_path / "out.jsonl"
    batch(TEN)
    whole = output.read_bytes()
    for damaged in (b"", whole[:-1], whole[:50], whole + b'{"custom', whole.replace(b"<4>", b"<5>"), b"x\n" + whole):
        output.write_bytes(damaged)
        done, runner = batch(TEN)
        assert (done.code, runner.asked) == (0, []) and output.read_bytes() == whole


def test_damage_in_the_journal_loses_only_the_lines_it_covers(batch, tmp_path, results):
    batch(TEN, "--concurrency", "1")
    journal = tmp_path / "out.jsonl.journal"
    rows = journal.read_bytes().splitlines(keepends=True)
    rows[4] = b"\0" * (len(rows[4]) - 1) + b"\n"
    journal.write_bytes(b"".join(rows))
    _, runner = batch(TEN)
    assert len(runner.asked) == 1 and texts(results()) == EXPECTED


def test_a_file_that_no_batch_wrote_is_not_overwritten(batch, tmp_path):
    output = tmp_path / "out.jsonl"
    output.write_text("precious\n")
    done, runner = batch(TEN)
    assert (done.code, runner.asked, output.read_text()) == (2, [], "precious\n")
    assert "no journal of a batch lies beside it (hint: give another output, or --replace" in done.stderr
    done, _ = batch(TEN, "--replace")
    assert done.code == 0 and output.read_text().count("\n") == 10
    (tmp_path / "out.jsonl.journal").write_text("precious\n")
    assert batch(TEN)[0].code == 2 and (tmp_path / "out.jsonl.journal").read_text() == "precious\n"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (['{"prompt": "a"}', "{", '{"prompt": 1}'], "in.jsonl: 2 of 3 lines cannot be used: line 2: not JSON"),
        ([{"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}], "line 2: the id 'x' is already on line 1"),
    ],
)
def test_bad_lines_are_reported_before_a_model_is_loaded(batch, leap, tmp_path, lines, told):
    done, _ = batch(lines)
    assert done.code == 2 and told in done.stderr and done.stderr.count("\n") == 1
    assert leap.loaded == [] and not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "out.jsonl.journal").exists()
    done, runner = batch(lines, "--skip-invalid")
    assert (done.code, runner.asked) == (0, ["a"]) and "invalid and left out" in done.stderr


def test_an_empty_batch_loads_no_model(batch, leap, tmp_path):
    done, _ = batch([])
    assert (done.code, leap.loaded, (tmp_path / "out.jsonl").read_bytes()) == (0, [], b"")
    assert done.stderr == "leap: 0 lines: 0 answered, 0 failed\n"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("missing.jsonl",), "cannot read"),
        (("in.jsonl", "-o", "nowhere/out.jsonl"), "there is no directory"),
        (("in.jsonl", "-o", "."), "is a directory"),
        (("in.jsonl", "-o", "in.jsonl"), "input and output at once"),
        (("in.jsonl", "--pattern", "x"), "has no variable"),
        (("in.jsonl", "--concurrency", "0"), "must be 1 or more"),
        (("in.jsonl", "--tools-file", "in.jsonl"), "is not a JSON list"),
    ],
)
def test_wrong_usage(leap, batch, args, told):
    batch([{"prompt": "a"}])
    done = leap("batch", *args, "-m", "builtin")
    assert done.code == 2 and told in done.stderr and "Traceback" not in done.stderr


def test_the_model_of_the_lines_is_used_when_none_is_given(leap, batch):
    lines = [{"body": {"model": "builtin", "messages": [{"role": "user", "content": "a"}]}}]
    _, runner = batch(lines, "-m", "builtin")
    leap.runner = type(runner)()
    done = leap("batch", "in.jsonl")
    assert done.code == 0 and "built-in" not in done.stderr and leap.loaded[-1][0] == "builtin"


@pytest.mark.parametrize(
    ("models", "code", "told"),
    [
        (["no-such-model"], 2, "the lines ask for the model 'no-such-model'"),
        (["builtin", "other"], 2, "the lines name the models 'builtin', 'other'"),
    ],
)
def test_two_or_missing_models_of_lines_are_errors(leap, batch, models, code, told):
    batch([{"prompt": "a", "model": model} for model in models])
    done = leap("batch", "in.jsonl")
    assert done.code == code and told in done.stderr and "-m MODEL" in done.stderr


def test_without_a_model_the_builtin_one_is_reported_once(leap, batch):
    _, runner = batch([{"prompt": "a"}])
    leap.runner = type(runner)()
    done = leap("batch", "in.jsonl", "-q")
    assert done.code == 0 and done.stderr.startswith("leap: no model given, so the built-in demo model answers")


def test_a_lost_runner_ends_the_batch_and_keeps_its_results(batch, results):
    def answer(text):
        return Unavailable("the host is gone") if text == "7" else f"<{text}>"

    done, runner = batch(TEN, "--concurrency", "1", answer=answer)
    assert done.code == 10 and "the host is gone" in done.stderr
    kept = len(results())
    assert kept < 10
    done, again = batch(TEN)
    assert done.code == 0 and texts(results()) == EXPECTED and len(again.asked) <= 10 - kept


def test_progress_is_shown_on_a_terminal_only(leap, batch):
    _, runner = batch(TEN)
    leap.runner = type(runner)()
    done = leap("batch", "in.jsonl", "-m", "builtin", terminal=True)
    assert " of 10 lines, " in done.stderr and "\r" in done.stderr


def test_a_batch_resumes_on_systems_without_pread(batch, results, monkeypatch):
    monkeypatch.delattr(os, "pread")  # as on Windows
    monkeypatch.delattr(os, "pwrite")
    batch(TEN[:6])
    done, runner = batch(TEN)
    assert done.code == 0, done.stderr
    assert texts(results()) == EXPECTED and runner.asked == ["6", "7", "8", "9"]


def test_a_conversation_that_ends_with_an_answer_is_answered_again(leap, tmp_path):
    runner = AnsweringRunner()
    leap.runner = runner
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    lines = [{"messages": said}, {"messages": [*said, {"role": "user", "content": "three"}, said[1]]}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = leap("batch", "in.jsonl", "-m", "builtin", "--format", "plain", "--ordered")
    assert done.code == 0, done
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["<one>", "<three>"]


def test_the_conversations_that_export_writes_are_answered_anew(leap, tmp_path):
    leap.script("Rome.")
    assert leap("generate", "-m", "some", "--session", "s", "Italy?").code == 0
    assert leap("export", "s", "--format", "jsonl", "-o", "all.jsonl").code == 0
    leap.runner = AnsweringRunner()
    done = leap("batch", "all.jsonl", "-m", "builtin", "--format", "text")
    assert (done.code, done.stdout) == (0, "<Italy?>\n")


def test_lines_have_the_priority_of_a_batch_unless_they_set_their_own(batch, results):
    lines = [
        {"custom_id": "a", "prompt": "a", "priority": "urgent"},
        {"custom_id": "b", "body": {"messages": [{"role": "user", "content": "b"}], "priority": 3}},
    ]
    done, runner = batch(lines, "--concurrency", "1", "--keep-fields", "--format", "plain")
    assert done.code == 0, done.stderr
    asked = {request.messages[-1].text: request.options.priority for request in runner.requests}
    assert asked == {"a": -20, "b": -3}
    assert results()[0]["priority"] == "urgent", "a field of its user's own"


def test_the_command_of_a_job_has_the_priority_of_the_job(leap):
    for value, priority in (("-14", -14), ("", None)):
        leap.runner, leap.variables["LEAP_JOB_PRIORITY"] = AnsweringRunner(), value
        assert leap("generate", "-m", "builtin", "hi").code == 0
        assert [request.options.priority for request in leap.runner.requests] == [priority]
