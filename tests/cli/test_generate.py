"""``leap generate`` on the scripted runner."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.messages import ChatMessage, LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls, MessageResponse, ReasoningChunk
from leap_core.errors import LeapGenerationError, LeapModelNotFoundError


def test_the_answer_alone_goes_to_stdout(leap):
    leap.script(["Paris", "."])
    done = leap("generate", "-m", "some", "What is the capital of France?")
    assert (done.code, done.stdout, done.stderr) == (0, "Paris.\n", "")


def test_the_prompt_is_arguments_then_a_blank_line_then_standard_input(leap):
    runner = leap.script("ok")
    leap("generate", "-m", "some", "Sum", "up:", stdin="one\ntwo\n")
    assert [m.text for m in runner.requests[0].messages] == ["Sum up:\n\none\ntwo"]


def test_a_dash_places_standard_input(leap):
    runner = leap.script("ok")
    leap("generate", "-m", "some", "Read this:", "-", "In", "short?", stdin="the text\n")
    assert runner.requests[0].messages[-1].text == "Read this:\n\nthe text\n\nIn short?"


def test_system_prompt_and_sampling_options_reach_the_model(leap):
    runner = leap.script("ok")
    flags = "--temperature 0.3 --top-p 0.9 --min-p 0.1 --top-k 7 --repetition-penalty 1.05 --frequency-penalty -0.5"
    flags += " --presence-penalty 0.5 --option repeat-last-n=32 --seed 5 --max-tokens 9 --stop END --stop ###"
    leap("generate", "-m", "some", "-s", "Be brief.", *flags.split(), "hello")
    (request,) = runner.requests
    assert request.messages == (ChatMessage("system", "Be brief."), ChatMessage("user", "hello"))
    assert request.options.to_json() == {
        "temperature": 0.3,
        "top_p": 0.9,
        "min_p": 0.1,
        "top_k": 7,
        "repetition_penalty": 1.05,
        "frequency_penalty": -0.5,
        "presence_penalty": 0.5,
        "repeat_last_n": 32,
        "rng_seed": 5,
        "max_tokens": 9,
        "stop": ["END", "###"],
    }


def test_loading_options_reach_the_loader(leap):
    leap.script("ok")
    leap("generate", "-m", "some", "--context-size", "512", "--threads", "3", "--gpu-layers", "-1", "hello")
    ((reference, options),) = leap.loaded
    assert reference == "some"
    assert (options.context_size, options.cpu_threads, options.n_gpu_layers) == (512, 3, -1)


def test_json_is_one_document(leap):
    leap.script([ReasoningChunk("hm"), "Par", "is."], model_id="tiny")
    done = leap("generate", "-m", "some", "--format", "json", "hello")
    document = json.loads(done.stdout)
    assert document["model"] == "tiny"
    assert document["finish_reason"] == "stop"
    assert document["message"] == {"role": "assistant", "content": "Paris.", "reasoning_content": "hm"}
    assert document["stats"]["completion_tokens"] == 3


def test_jsonl_has_one_event_per_line_that_reads_back(leap):
    leap.script(["Par", "is\n."])
    done = leap("generate", "-m", "some", "--format", "jsonl", "hello")
    events = [MessageResponse.from_json(json.loads(line)) for line in done.stdout.splitlines()]
    assert [type(event).__name__ for event in events] == ["Chunk", "Chunk", "Complete"]
    assert events[-1].full_message.text == "Paris\n."


def test_jsonl_without_streaming_has_only_the_last_event(leap):
    leap.script(["Par", "is."])
    done = leap("generate", "-m", "some", "--format", "jsonl", "--no-stream", "hello")
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["complete"]


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_reasoning_is_shown_on_stderr_when_asked_for(leap, stream):
    runner = leap.script([ReasoningChunk("2 and 2"), "4"])
    done = leap("generate", "-m", "some", "--think", "show", stream, "2+2?")
    assert (done.stdout, done.stderr) == ("4\n", "2 and 2\n")
    assert runner.requests[0].options.enable_thinking


def test_reasoning_is_not_shown_otherwise(leap):
    leap.script([ReasoningChunk("2 and 2"), "4"])
    assert leap("generate", "-m", "some", "2+2?").stderr == ""


def test_reasoning_is_dimmed_on_a_terminal_only(leap):
    leap.script([ReasoningChunk("hm"), "4"])
    assert leap("generate", "-m", "some", "--think", "show", "x", terminal=True).stderr == "\x1b[2mhm\x1b[0m\n"
    leap.variables["NO_COLOR"] = "1"
    leap.script([ReasoningChunk("hm"), "4"])
    assert leap("generate", "-m", "some", "--think", "show", "x", terminal=True).stderr == "hm\n"


def test_calls_are_json_lines(leap):
    leap.script(["Looking.", FunctionCalls((LeapFunctionCall("weather", {"city": "Bern"}),))])
    done = leap("generate", "-m", "some", "weather?")
    first, call = done.stdout.splitlines()
    assert first == "Looking."
    assert json.loads(call) == {"name": "weather", "arguments": '{"city": "Bern"}'}


def test_stats_go_to_stderr(leap):
    leap.script(["a", "b"])
    done = leap("generate", "-m", "some", "--stats", "hello")
    assert done.stdout == "ab\n"
    assert done.stderr.startswith("leap: prompt 4 tokens, answer 2 tokens, ")


def test_an_answer_that_was_cut_says_so(leap):
    leap.script(["a", "b", "c"])
    done = leap("generate", "-m", "some", "--max-tokens", "2", "hello")
    assert (done.code, done.stdout) == (0, "ab\n")
    assert done.stderr == "leap: the answer was cut at --max-tokens\n"


def test_an_answer_that_was_cut_while_thinking_says_so(leap):
    leap.script([ReasoningChunk("a"), ReasoningChunk("b"), "c"])
    done = leap("generate", "-m", "some", "--max-tokens", "2", "hello")
    assert (done.code, done.stdout.strip()) == (0, "")
    said = "the answer was cut at --max-tokens, while the model was still thinking (--think-budget)"
    assert done.stderr == f"leap: {said}\n"


def test_a_full_context_says_so(leap):
    leap.script(["a"] * 9, context_size=6)
    done = leap("generate", "-m", "some", "hello")
    assert (done.code, done.stdout) == (0, "aaa\n")
    assert "context is full" in done.stderr


def test_an_error_in_the_middle_keeps_the_text_so_far(leap):
    leap.script(["half", LeapGenerationError("llama_decode failed")])
    done = leap("generate", "-m", "some", "hello")
    assert (done.code, done.stdout, done.stderr) == (1, "half\n", "leap: error: llama_decode failed\n")


def test_a_missing_model(leap):
    leap.load_error = LeapModelNotFoundError("there is no model 'x'", hint="leap models lists them")
    done = leap("generate", "-m", "x", "hello")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == "leap: error: there is no model 'x' (hint: leap models lists them)\n"


def test_a_prompt_longer_than_the_context(leap):
    leap.script("never", context_size=8)
    done = leap("generate", "-m", "some", "word " * 20)
    assert (done.code, done.stdout) == (5, "")
    assert "the prompt has 23 tokens and the context holds 8" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        ([], b"", "the prompt is empty"),
        (["  "], b" \n", "the prompt is empty"),
        (["-", "-"], b"x", "only once"),
        ([], b"\x7fELF\0\0\0", "standard input is not text"),
        (["bad \udce9"], b"", "not valid UTF-8"),
        (["-s", "bad \udce9", "x"], b"", "--system is not valid"),
        (["--temperature", "-1", "x"], b"", "temperature: -1.0 must be 0 or more"),
        (["--temperature", "nan", "x"], b"", "temperature"),
        (["--top-p", "1.5", "x"], b"", "--top-p: 1.5 must be between 0 and 1"),
        (["--max-tokens", "0", "x"], b"", "--max-tokens: 0 must be 1 or more"),
        (["--max-tokens", "many", "x"], b"", "'many' is not a valid integer"),
        (["--stop", "", "x"], b"", "stop"),
        (["--context-size", "2", "x"], b"", "--context-size"),
        (["--threads", "0", "x"], b"", "--threads"),
        (["--threads", "99999999999", "x"], b"", "--threads"),
        (["-m", "", "x"], b"", "-m needs a model"),
        (["--format", "xml", "x"], b"", "'xml' is not one of"),
        (["--tempature", "1", "x"], b"", "No such option '--tempature'"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(leap, args, stdin, says):
    done = leap("generate", "-m", "some", *args, stdin=stdin)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.startswith("leap: error: ") and done.stderr.count("\n") == 1
    assert leap.loaded == [], "nothing was loaded for a request that is wrong"


def test_json_has_one_shape_with_a_schema_too(leap):
    leap.script('{"age": 3}')
    document = json.loads(leap("generate", "--json-schema", "age int", "--format", "json", "x").stdout)
    assert json.loads(document["message"]["content"]) == {"age": 3} and document["finish_reason"] == "stop"
    leap.script('{"age": 3}')
    assert json.loads(leap("generate", "--json-schema", "age int", "x").stdout) == {"age": 3}
