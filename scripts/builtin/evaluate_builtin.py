"""Measure leap's built-in model through leap itself: `python scripts/builtin/evaluate_builtin.py`.

For every skill it generates examples with values that training never saw, lets the model answer greedily and counts
exact matches: text, reasoning and calls must all be as expected. Calls are told once more by the number of functions
declared. Schemas are shown to the model and enforced, as `leap generate --json-schema` does; one row tells how often
the model keeps to them when they are only shown.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from builtin_data.dialogue import CALL_END, CALL_START, SCHEMA_INSTRUCTION, THINK_END, THINK_START, Dialogue
from builtin_data.skills import HARDER, SKILLS, example

from leap_core import ChatMessage, GenerationOptions, Leap, LeapConstraintError, ModelLoadingOptions, ModelRunner
from leap_core.conversation.calls import LeapFunction, LFMFunctionCallParser
from leap_core.conversation.responses import Complete

GREEDY = GenerationOptions(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, max_tokens=2000)
SHOWN = "extraction, schema only shown"
PARSER = LFMFunctionCallParser()


def message(role: str, content: str) -> ChatMessage:
    """A turn as leap keeps it: reasoning and calls apart from the text."""
    reasoning = calls = None
    if content.startswith(THINK_START):
        reasoning, content = content[len(THINK_START) :].split(THINK_END, 1)
    if content.startswith(CALL_START):
        calls = PARSER.parse(content[len(CALL_START) : -len(CALL_END)])
        content = ""
    return ChatMessage(role, content if content else (), reasoning_content=reasoning, function_calls=calls)


def said(answer: ChatMessage) -> tuple[str, str, list[tuple[str, list[tuple[str, object]]]]]:
    calls = [(call.name, list(call.arguments.items())) for call in answer.function_calls or ()]
    return answer.text, answer.reasoning_content or "", calls


def answer_of(runner: ModelRunner, dialogue: Dialogue, enforced: bool = True) -> ChatMessage:
    """The model's greedy answer to all but the last turn. A schema is enforced, or else stays what the system says."""
    system, options = dialogue.system, GREEDY
    if enforced and SCHEMA_INSTRUCTION in system:
        system, schema = system.split(SCHEMA_INSTRUCTION)
        system, options = system.removesuffix("\n"), replace(GREEDY, json_schema_constraint=schema)
    history = [message("system", system)] if system else []
    history += [message(turn.role, turn.content) for turn in dialogue.turns[:-1]]
    conversation = runner.create_conversation_from_history(history[:-1])
    conversation.register_functions([LeapFunction.from_openai(tool) for tool in dialogue.tools])
    try:
        for response in conversation.generate_response(history[-1], options):
            if isinstance(response, Complete):
                return response.full_message
    except LeapConstraintError as error:  # a document that does not end
        return ChatMessage("assistant", error.text)
    raise RuntimeError("the generation ended without Complete")


def measure(
    dialogues: Sequence[Dialogue], answer: Callable[[Dialogue], ChatMessage], workers: int, show: int
) -> list[bool]:
    """Which are answered exactly; prints the first `show` failures."""
    with ThreadPoolExecutor(workers) as pool:
        answers = list(pool.map(answer, dialogues))
    right = []
    for dialogue, given in zip(dialogues, answers, strict=True):
        expected = message("assistant", dialogue.answer)
        right.append(said(given) == said(expected))
        if not right[-1] and show > 0:
            show -= 1
            print(f"  asked    {dialogue.turns[-2].content!r}\n  expected {said(expected)}\n  answered {said(given)}")
    return right


def print_row(name: str, right: Sequence[bool]) -> None:
    print(f"| {name} | {sum(right)} | {len(right)} | {100 * sum(right) / len(right):.1f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin", help="a reference that Leap.load knows")
    parser.add_argument("--count", type=int, default=500, help="examples a skill")
    parser.add_argument("--skill", action="append", choices=[*SKILLS, SHOWN], help="only this; may be given again")
    parser.add_argument("--show", type=int, default=0, help="print so many failures a skill")
    parser.add_argument("--slots", type=int, default=8, help="conversations at once")
    options = parser.parse_args(arguments)
    runner = Leap.load(options.model, ModelLoadingOptions(slots=options.slots))
    print("| skill | right | of | percent |\n|---|---|---|---|")
    for row in options.skill or [*SKILLS, SHOWN]:
        skill = "extraction" if row == SHOWN else row
        count = max(1, options.count // 5) if skill in HARDER else options.count
        dialogues = [example(skill, "eval", seed) for seed in range(count)]
        answer = partial(answer_of, runner, enforced=row != SHOWN)
        right = measure(dialogues, answer, options.slots, options.show)
        print_row(row, right)
        if row == "calls":
            by_functions: dict[int, list[bool]] = defaultdict(list)
            for dialogue, exact in zip(dialogues, right, strict=True):
                by_functions[len(dialogue.tools)].append(exact)
            for functions, part in sorted(by_functions.items()):
                print_row(f"calls, {functions} declared", part)
    runner.unload()


if __name__ == "__main__":
    main()
