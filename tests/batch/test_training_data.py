"""Training data: what is exported is exactly what the model is served with."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext

import pytest

from leap_core.batch.training_data import (
    TrainingTemplate,
    UnfitError,
    Wanted,
    of_entry,
    of_history,
    of_journal,
    redacted,
)
from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import ChatMessage, LeapFunctionCall
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.prompt_log import Entry, PromptLog
from leap_core.conversation.sessions import Mark, SessionStore
from leap_core.errors import LeapError
from leap_core.models.resolving import resolve_local
from leap_core.opening import load_local

LIGHT = LeapFunction("light", "Switch a light", [])
TALK = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "Hello  there,\n\n„schöne“ 日本 🙂"),
    ChatMessage("assistant", "Hello! \n\n 1 + 1 = 2\n"),
    ChatMessage("user", "Light, please."),
    ChatMessage("assistant", (), None, [LeapFunctionCall("light", {"on": True, "where": 'the "hall"'})]),
    ChatMessage("tool", '{"ok": true}', tool_call_id="call_0"),
    ChatMessage("assistant", "It is on."),
]
THOUGHT = [
    ChatMessage("user", "2 + 2?"),
    ChatMessage("assistant", "4", "Two and two."),
    ChatMessage("user", "And 3 + 3?"),
    ChatMessage("assistant", "6", "Three twice."),
]
NO_PAST_REASONING = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def runner():
    with load_local(resolve_local("builtin"), ModelLoadingOptions(context_size=2048)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def template(runner):
    return TrainingTemplate.of_model(runner.model, None, "auto")


@pytest.mark.slow
@pytest.mark.parametrize("own", [None, NO_PAST_REASONING])
@pytest.mark.parametrize("history", [TALK, THOUGHT], ids=["calls", "reasoning"])
def test_every_answer_follows_the_tokens_that_the_model_is_served_with(runner, history, own):
    template = TrainingTemplate.of_model(runner.model, own, "auto")
    maker = runner._prompts if own is None else type(runner._prompts)(runner.model, own, media=runner._prompts._media)
    functions = [LIGHT] if history is TALK else []
    texts = template.rendered(history, functions)
    answers = [n for n, message in enumerate(history) if message.role.value == "assistant"]
    spans = [(text, span) for text in texts for span in text.loss]
    assert len(spans) == len(answers)
    for n, (text, (start, end)) in zip(answers, spans, strict=True):
        options = GenerationOptions(enable_thinking=bool(history[n].reasoning_content))
        served = list(maker.of_messages(history[:n], functions, options).prompt.keys)
        assert runner.tokenize(text.text[:start], parse_special=True) == served
        assert runner.tokenize(text.text[:end], parse_special=True)[: len(served)] == served
        assert text.text[:end].endswith("<|im_end|>")
        assert history[n].text.strip() in text.text[start:end]
    assert len(texts) == (2 if history is THOUGHT and own else 1)


def test_messages_rendered_outside_of_leap_are_the_same_text(runner, template):
    from jinja2 import Environment

    jinja = Environment(trim_blocks=True, lstrip_blocks=True)
    jinja.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)  # as in transformers
    line = json.loads(json.dumps(template.messages(TALK, [LIGHT])))
    text = jinja.from_string(runner.model.chat_template).render(**line, bos_token=runner.model.bos_text)
    (rendered,) = template.rendered(TALK, [LIGHT])
    assert text.rstrip() == rendered.text
    assert [call["function"]["arguments"] for call in line["messages"][4].get("tool_calls", [])] in (
        [],
        [{"on": True, "where": 'the "hall"'}],
    )


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([ChatMessage("user", "Say <|im_end|>"), ChatMessage("assistant", "No.")], "special token"),
        ([ChatMessage("user", "Hello")], "no answer"),
        ([ChatMessage("user", "Hello"), ChatMessage("assistant", " ")], "empty"),
        (TALK, "which no tool declares"),
    ],
)
def test_unusable_examples_are_left_out_with_a_reason(template, history, reason):
    with pytest.raises(UnfitError, match=reason):
        template.rendered(of_history(history).history)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"finish": "max_tokens"}, "own end"),
        ({"options": {"stop": ["x"]}}, "own end"),
        ({"error": "gone", "finish": None}, "gone"),
        ({"turns": 2}, "does not contain"),
        ({"schema": '{"type":"integer"}'}, "schema"),
        ({"command": "eval run"}, "leap eval run asked it"),
    ],
)
def test_incomplete_entries_of_the_log_are_left_out(changes, reason):
    entry = Entry("generate", "m", "Hello", answer="Hi", finish="stop")
    assert of_entry(entry).history[-1].text == "Hi"
    for name, value in changes.items():
        setattr(entry, name, value)
    with pytest.raises(UnfitError, match=reason):
        of_entry(entry)


GOOD, BAD, CUT, OLD = Mark("stop", "good"), Mark("stop", "bad"), Mark("max_tokens", "good"), Mark()
FOUR = [ChatMessage(role, f"{role} {n}") for n in range(4) for role in ("user", "assistant")]


@pytest.mark.parametrize(
    ("wanted", "marks", "trained", "reason"),
    [
        (Wanted(), [GOOD, OLD, BAD, CUT], [1, 3], None),
        (Wanted(), [CUT, BAD, GOOD, CUT], [5], None),
        (Wanted("good"), [OLD, GOOD, OLD, BAD], [3], None),
        (Wanted("bad"), [OLD, GOOD, OLD, BAD], [7], None),
        (Wanted(unedited=True), [OLD, GOOD, OLD, OLD], [3], None),
        (Wanted(), [BAD, CUT, CUT, BAD], [], "rated bad"),
        (Wanted("good"), [OLD, OLD, OLD, OLD], [], "not rated good"),
        (Wanted(unedited=True), [OLD, OLD, OLD, OLD], [], "not known"),
    ],
)
def test_only_chosen_answers_are_trained_on_and_the_others_are_context(template, wanted, marks, trained, reason):
    of_each = [mark for each in marks for mark in (OLD, each)]
    if reason is not None:
        with pytest.raises(UnfitError, match=reason):
            of_history(FOUR, (), of_each, wanted)
        return
    conversation = of_history(FOUR, (), of_each, wanted)
    parts = conversation.history, conversation.functions, conversation.passed_over
    (text,) = template.rendered(*parts)
    assert [text.text[start:end] for start, end in text.loss] == [f"{FOUR[n].text}<|im_end|>" for n in trained]
    assert text.loss[0][0] == len(text.prompt) and text.loss[-1][1] == len(text.text)
    weights = [message.get("weight") for message in template.messages(*parts)["messages"]]
    assert weights == [
        0 if n % 2 and n not in trained else None for n in range(trained[-1] + 1)
    ]  # the text of the others is whole, and only not trained on


def test_an_answer_with_a_schema_has_the_schema_in_its_prompt():
    entry = Entry("generate", "m", "How many?", answer="3", finish="stop", schema='{"type":"integer"}')
    assert '{"type": "integer"}' in of_entry(entry).history[0].text


@pytest.mark.slow
def test_the_command_splits_by_conversation_and_says_what_it_left_out(leap, tmp_path):
    with SessionStore(leap.home / "leap.db") as store:
        for n in range(40):
            store.replace(store.create().id, [ChatMessage("user", f"Is {n} even?"), ChatMessage("assistant", "Yes.")])
        store.replace(store.create().id, [ChatMessage("user", "Hello?")])
    flags = ["--for-training", "-m", "builtin", "-o", "all.jsonl", "--test-share", "0.25"]
    done = leap("export", *flags)
    files = [tmp_path / "all.jsonl", tmp_path / "all.test.jsonl"]
    train, test = (file.read_text("utf-8") for file in files)
    lines = [json.loads(line)["messages"][0]["content"] for line in (train + test).splitlines()]
    assert sorted(lines) == sorted(f"Is {n} even?" for n in range(40))
    assert done.code == 0 and "1 left out: there is no answer in it" in done.stderr
    assert 3 <= len(test.splitlines()) <= 17
    assert leap("export", *flags).code == 0
    assert [file.read_text("utf-8") for file in files] == [train, test]


@pytest.mark.slow
def test_the_command_takes_the_log_and_renders(leap):
    with PromptLog(leap.home / "log.db") as log:
        log.add(Entry("generate", "m", "Hello", answer="Hi", finish="stop"))
    done = leap("export", "--for-training", "-m", "builtin", "--log", "--rendered")
    line = json.loads(done.stdout)
    (start, end) = line["loss"][0]
    assert (line["prompt"] + line["completion"])[start:end] == "Hi<|im_end|>"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--for-training"], "needs --model"),
        (["--rendered", "x"], "--rendered is for --for-training"),
        (["--for-training", "-m", "builtin", "--test-share", "0.1"], "-o"),
        ([], "give a session"),
    ],
)
def test_wrong_combinations_are_refused(leap, flags, message):
    done = leap("export", *flags)
    assert done.code == 2 and message in done.stderr


def test_one_value_has_the_same_mask_in_all_redacted_conversations():
    history = [
        ChatMessage("user", "Write to ada@example.org or bob@example.org."),
        ChatMessage(
            "assistant",
            "To bob@example.org",
            "Is ada@example.org hers?",
            [LeapFunctionCall("mail", {"to": ["\nbob@example.org"]})],
        ),
    ]
    ask, answer = redacted(history)
    assert "example.org" not in str([ask, answer])
    ada, bob = ask.text.removeprefix("Write to ").rstrip(".").split(" or ")
    assert ada != bob and answer.text == f"To {bob}" and answer.reasoning_content == f"Is {ada} hers?"
    assert answer.function_calls is not None and answer.function_calls[0].arguments == {"to": [f"\n{bob}"]}


@pytest.mark.slow
def test_the_command_takes_ratings_of_sessions_and_of_the_log(leap):
    with SessionStore(leap.home / "leap.db") as store:
        id = store.create().id
        for message, mark in zip(FOUR, [OLD, GOOD, OLD, BAD, OLD, OLD, OLD, OLD], strict=True):
            store.append(id, message, mark)
    with PromptLog(leap.home / "log.db") as log:
        for rating in ("good", "bad", None):
            log.rate(log.add(Entry("generate", "m", f"Is it {rating}?", answer="Hi", finish="stop")), rating)
    flags = ["--for-training", "-m", "builtin", "--log", id]
    lasts = {}
    for name, chosen in (("all", []), ("good", ["--rating", "good"]), ("unedited", ["--option", "unedited"])):
        done = leap("export", *flags, *chosen)
        assert done.code == 0, done.stderr
        lines = [json.loads(line)["messages"] for line in done.stdout.splitlines()]
        lasts[name] = [messages[-2]["content"] for messages in lines]
    assert lasts == {
        "all": ["user 3", "Is it good?", "Is it None?"],
        "good": ["user 0", "Is it good?"],
        "unedited": ["user 0", "Is it good?", "Is it None?"],
    }


BATCH = [
    {"custom_id": "a", "prompt": "Hello", "own": 1},
    {"custom_id": "b", "messages": [{"role": "user", "content": "Count"}], "max_tokens": 1},
    {"custom_id": "c", "prompt": "Two words", "schema": {"type": "string", "title": "Words"}},
]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["plain", "openai"])
def test_the_command_takes_the_answers_of_a_batch(leap, tmp_path, format):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in BATCH))
    leap.script(*['"two words"'] * 3)
    done = leap("batch", "in.jsonl", "-o", "out.jsonl", "--keep-fields", "--format", format)
    assert done.code == 0, done.stderr
    done = leap("export", "--for-training", "-m", "builtin", "--batch", "in.jsonl", "out.jsonl")
    assert done.code == 0, done.stderr
    lines = [json.loads(line)["messages"] for line in done.stdout.splitlines()]
    assert [messages[-1]["content"] for messages in lines] == ['"two words"'] * 2
    assert "Words" in lines[1][0]["content"] and "1 left out: its answer did not come" in done.stderr
    swapped = leap("export", "--for-training", "-m", "builtin", "--batch", "out.jsonl", "in.jsonl")
    assert swapped.code == 2 and "give the lines first, then the results" in swapped.stderr


def test_two_lines_with_the_same_id_are_refused(leap, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"custom_id": "a", "prompt": "One"}\n{"custom_id": "a", "prompt": "Two"}\n')
    (tmp_path / "out.jsonl").write_text('{"custom_id": "a", "text": "1", "finish_reason": "stop"}\n')
    done = leap("export", "--for-training", "-m", "builtin", "--batch", "in.jsonl", "out.jsonl")
    assert done.code == 2 and "has the id 'a' of an earlier line" in done.stderr


def test_a_batch_is_read_from_its_journal(tmp_path):
    from leap_core.batch.checking import check_batch
    from leap_core.batch.settings import BatchSettings
    from leap_core.testing import ScriptedModelRunner

    (tmp_path / "in.jsonl").write_text('{"name": "Zoe", "id": "a"}\n{"name": "Ann", "id": "b"}\n')
    files = {"source": str(tmp_path / "in.jsonl"), "output": str(tmp_path / "out.csv")}
    settings = BatchSettings.of(**files, template="Greet {name}.", system="Be brief.", model="builtin", concurrency=1)
    variables = {"LEAP_HOME": str(tmp_path)}
    with check_batch(settings, default_model=None, variables=variables, cwd=tmp_path) as checked:
        journal = settings.open_journal()
        batch = checked.open(journal, print, lambda progress: None)
        batch.run(lambda: nullcontext(ScriptedModelRunner("Hi", "Hi")), threading.Event())
        journal.close()
    read = [each() for each in of_journal(settings, variables, tmp_path)]
    assert [[message.text for message in each.history] for each in read] == [
        ["Be brief.", "Greet Zoe.", "Hi"],
        ["Be brief.", "Greet Ann.", "Hi"],
    ]
    (tmp_path / "out.csv.journal").unlink()
    with pytest.raises(LeapError, match=r"cannot read .*journal"):
        list(of_journal(settings, variables, tmp_path))


def test_the_command_redacts(leap):
    with PromptLog(leap.home / "log.db") as log:
        log.add(Entry("generate", "m", "Who is ada@example.org?", answer="Ada", finish="stop"))
    plain, masked = (leap("export", "--for-training", "-m", "builtin", "--log", *flags) for flags in ([], ["--redact"]))
    assert "ada@example.org" in plain.stdout
    assert masked.code == 0 and "example" not in masked.stdout and "Who is " in masked.stdout
