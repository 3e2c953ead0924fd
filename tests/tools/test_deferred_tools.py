"""Folded tools: what is shown, what is found, and that prompts grow at their end alone."""

from __future__ import annotations

import json
import threading
import time

import pytest

from leap_core import Complete, FunctionCalls, FunctionResult, GenerationOptions, LeapFunction, LeapFunctionCall
from leap_core.conversation.calls.declaration import FIND
from leap_core.conversation.loading_options import LoraAdapter
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.streams import last_of
from leap_core.testing import ScriptedModelRunner
from leap_core.tools.deferred_tools import FoldedPrompt, FoldingRunner, fold, search, size_of

ABOUT = ("Reads a file.", "Runs a command in a shell.", "Changes a text in a file.", "Sends a letter to somebody.")


def tool(name: str, about: str) -> LeapFunction:
    parameters = {
        "type": "object",
        "properties": {"at": {"type": "string", "description": "Where. " * 60}},
        "required": ["at"],
    }
    return LeapFunction.from_openai(
        {"name": name, "description": f"{about} " + "More of it. " * 100, "parameters": parameters}
    )


TOOLS = [tool(name, about) for name, about in zip(("read", "bash", "edit", "post"), ABOUT, strict=True)]
ASKED = [ChatMessage("system", "You help."), ChatMessage("user", "Send a letter to Ann.")]
MOST = 500


def call(name: str, **arguments: str) -> FunctionCalls:
    return FunctionCalls((LeapFunctionCall(name, arguments),))


def test_tools_that_fit_are_not_deferred():
    assert fold(TOOLS, ASKED, 10**6) == TOOLS
    prompt = FoldedPrompt.of(ASKED, TOOLS, 10**6)
    assert (prompt.messages, prompt.functions) == (ASKED, TOOLS)


def test_tools_that_the_first_message_needs_are_declared_from_the_start():
    folded = fold(TOOLS, ASKED, MOST)
    assert [each.name for each in folded if not each.deferred][-1] == "post" and any(each.deferred for each in folded)
    shown = [each for each in FoldedPrompt.of(ASKED, TOOLS, MOST).functions if not each.deferred]
    assert size_of(shown) <= MOST < size_of(TOOLS)
    find = next(each for each in shown if each.name == FIND)
    assert "bash: Runs a command in a shell." in find.description


def test_agents_that_describe_the_place_first_are_understood():
    """Codex sends its surroundings as a message of the user before the question."""
    asked = [ChatMessage("user", "<environment><cwd>/tmp</cwd></environment>"), *ASKED[1:]]
    assert [each.name for each in fold(TOOLS, asked, MOST) if not each.deferred][-1] == "post"


def test_later_turns_defer_the_same_tools():
    """Whatever is said and called later, what is shown from the start is the same."""
    first = FoldedPrompt.of(ASKED, TOOLS, MOST)
    later = [*ASKED, ChatMessage("assistant", "Done."), ChatMessage("user", "Now run the tests in the shell.")]
    assert FoldedPrompt.of(later, TOOLS, MOST).functions == first.functions


def test_names_come_first():
    assert search(TOOLS, "bash")[0].name == "bash"
    assert [each.name for each in search(TOOLS, "nothing of the kind")] == []


def test_a_call_of_a_folded_tool_is_asked_again_with_its_declaration():
    runner = ScriptedModelRunner([call("bash", at="?")], [call("bash", at="/tmp")], "Ready.")
    folding = FoldingRunner(runner, MOST)
    seen = list(folding.start(ASKED, TOOLS, GenerationOptions()))
    (result,) = (each for each in seen if isinstance(each, FunctionResult))
    assert json.loads(result.text) == {"tool_references": ["bash"]}
    complete = seen[-1]
    assert isinstance(complete, Complete) and complete.full_message.function_calls[0].arguments == {"at": "/tmp"}
    assert [each for each in seen if isinstance(each, FunctionCalls)] == [call("bash", at="/tmp")]
    first, second = runner.requests
    assert second.messages[: len(first.messages)] == first.messages
    shown = [each.name for each in first.functions if not each.deferred]
    assert [each.name for each in second.functions if not each.deferred] == shown
    answered = [*ASKED, complete.full_message, ChatMessage("tool", "ok", tool_call_id="x")]
    last_of(folding.start(answered, TOOLS, GenerationOptions()))
    assert runner.requests[2].messages[: len(second.messages)] == second.messages, "also on the next turn"


def test_a_search_that_finds_nothing_and_one_without_end():
    looks = call(FIND, query="zzz")
    runner = ScriptedModelRunner(*[[looks]] * 5)
    complete = last_of(FoldingRunner(runner, MOST).start(ASKED, TOOLS, GenerationOptions()))
    assert complete.full_message.function_calls is None and "looked for tools more than 4 times" in complete.warnings[0]
    assert "no tool fits" in runner.requests[1].messages[-1].text
    assert len(complete.searches) == 4 and complete.stats.completion_tokens == 0


def test_texts_of_all_rounds_are_one():
    runner = ScriptedModelRunner(["I look. ", call(FIND, query="bash")], ["It is there."])
    folding = FoldingRunner(runner, MOST)
    assert last_of(folding.start(ASKED, TOOLS, GenerationOptions())).full_message.text == "I look. It is there."
    assert Complete.from_json(last_of(FoldingRunner(runner_of_two(), MOST).start(ASKED, TOOLS)).to_json()).searches


def test_a_stop_within_a_search_leaves_no_search_in_the_answer():
    runner = ScriptedModelRunner(["I look. ", call(FIND, query="bash")], ["never"])
    generation = FoldingRunner(runner, MOST).start(ASKED, TOOLS, GenerationOptions())
    assert next(generation).text == "I look. "
    generation.stop()
    complete = last_of(generation)
    assert complete.full_message.function_calls is None and complete.full_message.text == "I look. "
    assert complete.warnings == () and len(runner.requests) == 1


def test_a_found_tool_keeps_its_grammar():
    patch = LeapFunction("patch", "Changes files.", TOOLS[0].parameters, deferred=True, grammar='start: "a" "b"')
    runner = ScriptedModelRunner([call(FIND, query="patch")], [call("patch", input="x")], "ab")
    complete = last_of(FoldingRunner(runner).start(ASKED, [patch], GenerationOptions()))
    assert complete.full_message.function_calls[0].arguments == {"input": "ab"}


def patching(grammar: str) -> LeapFunction:
    return LeapFunction("patch", "Changes files.", TOOLS[0].parameters, grammar=grammar)


def test_a_text_that_is_written_again_keeps_seed_and_adapters(tmp_path):
    adapter = LoraAdapter(tmp_path / "a.gguf")
    runner = ScriptedModelRunner([call("patch", input="x")], "ab")
    options = GenerationOptions(rng_seed=7, adapters=[adapter], temperature=0.9)
    last_of(FoldingRunner(runner).start(ASKED, [patching('start: "a" "b"')], options))
    again = runner.requests[1].options
    assert (again.rng_seed, again.adapters, again.temperature) == (7, (adapter,), 0.0)


@pytest.mark.slow
def test_an_ambiguous_grammar_takes_bounded_time():
    runner = ScriptedModelRunner([call("patch", input="a" * 2000)])
    begun = time.thread_time()
    complete = last_of(FoldingRunner(runner).start(ASKED, [patching('start: e\ne: e e | "a"')], GenerationOptions()))
    assert time.thread_time() - begun < 5
    assert complete.full_message.function_calls[0].arguments == {"input": "a" * 2000}
    assert "was not checked against its grammar" in complete.warnings[0]


def test_a_stop_waits_for_no_grammar_to_be_compiled():
    compiling, compiled = threading.Event(), threading.Event()

    class Slow(ScriptedModelRunner):
        def start(self, messages, functions=(), options=None):
            if options is not None and options.grammar_constraint is not None:
                compiling.set()
                assert compiled.wait(100)
            return super().start(messages, functions, options)

    generation = FoldingRunner(Slow([call("patch", input="x")], "ab")).start(
        ASKED, [patching('start: "a" "b"')], GenerationOptions()
    )
    completes = []
    reading = threading.Thread(target=lambda: completes.append(last_of(generation)))
    reading.start()
    assert compiling.wait(100)
    generation.stop()  # would wait for the reader, were it under its lock
    compiled.set()
    reading.join(100)
    assert completes[0].full_message.function_calls[0].arguments == {"input": "x"}


class Elsewhere(ScriptedModelRunner):
    hides_deferred = False


def test_a_server_elsewhere_is_sent_what_was_found_alone():
    runner = Elsewhere([call(FIND, query="bash")], "Yes.")
    last_of(FoldingRunner(runner, MOST).start(ASKED, TOOLS, GenerationOptions()))
    first, second = ([each.name for each in request.functions] for request in runner.requests)
    assert "bash" not in first and second == [*first, "bash"]


def test_only_one_wrapper_defers_tools():
    """A client that folds speaks to a server that folds too: the client's searches are its own."""
    runner = ScriptedModelRunner([call(FIND, query="bash")], [call("bash", at="/")])
    complete = last_of(FoldingRunner(FoldingRunner(runner, MOST), MOST).start(ASKED, TOOLS, GenerationOptions()))
    assert [each.name for each in complete.full_message.function_calls] == ["bash"] and len(complete.searches) == 1


def runner_of_two() -> ScriptedModelRunner:
    return ScriptedModelRunner([call(FIND, query="bash")], "Yes.")
