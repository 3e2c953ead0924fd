"""Conversations with declared functions: which one is called, with what, and what is said about its result.

What is hardest is taught most: training sees more functions at once that are alike, more requests for two
calls, and drills.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from builtin_data import capitals, chat, repeat, sums, unknown
from builtin_data.catalogue import ALIKE, real_function
from builtin_data.dialogue import CALL_END, CALL_START, Dialogue, Turn
from builtin_data.functions import Function, Look, call, declare, look
from builtin_data.inventions import function_about, invented_function, subject
from builtin_data.manners import roughen
from builtin_data.phrasing import fill
from builtin_data.requests import by_name, by_purpose, several_values, two_requests
from builtin_data.systems import system_prompt
from builtin_data.tool_answers import outcome
from builtin_data.values import Values

COMMON = set(
    [
        "get",
        "the",
        "for",
        "a",
        "an",
        "of",
        "is",
        "it",
        "in",
        "to",
        "and",
        "with",
        "what",
        "you",
        "me",
        "can",
        "how",
        "please",
        "two",
        "number",
        "numbers",
        "by",
        "find",
        "show",
        "use",
        "this",
        "that",
        "i",
    ]
)
ARITHMETIC = {
    "add",
    "multiply",
    "subtract",
    "divide",
    "plus",
    "minus",
    "sum",
    "calculator",
    "calculate",
    "compute",
    "times",
}
DRILLED = 0.75
"""The share of training's conversations with calls that are drills."""
HINTS = [
    "You can call functions.",
    "Use the tools when they help.",
    "You are a helpful assistant with access to functions.",
    "You are a function calling assistant.",
    "Call a function if one fits.",
]


def _terms(text: str) -> set[str]:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    return {word for word in re.findall(r"[a-z]+", spaced.lower()) if word not in COMMON}


def _vocabulary(function: Function) -> set[str]:
    return function.words | _terms(function.name) | _terms(function.description)


def _clash(one: Function, other: Function) -> bool:
    if one.name == other.name or (one.words - COMMON) & (other.words - COMMON):
        return True
    calculators = [{"calculator", "calculate"} & function.words for function in (one, other)]
    return any(calculators) and bool(one.words & ARITHMETIC) and bool(other.words & ARITHMETIC)


def _function(values: Values) -> Function:
    return real_function(values) if values.chance(0.5) else invented_function(values)


def _alike(values: Values) -> Callable[[], Function]:
    """Draws functions that differ in what they do and not in what they take, so that the name has to be read."""
    if values.chance(0.5):
        table = values.pick(list(ALIKE.values()))
        return lambda: real_function(values, table)
    about = subject(values)
    return lambda: function_about(values, about)


def _few(values: Values) -> int:
    """How many functions are declared as a rule."""
    return values.pick([1, 1, 1, 2, 2, 2, 3, 3, 4] if values.split == "eval" else [1, 1, 2, 2, 3, 3, 3, 4, 4])


def toolbox(values: Values, count: int) -> list[Function]:
    """At most so many functions that cannot be taken for each other."""
    chosen: list[Function] = []
    draw = _alike(values) if values.chance(0.45 if values.split == "eval" else 0.55) else lambda: _function(values)
    for _ in range(count):
        candidate = draw() if values.chance(0.85) else _function(values)
        if not any(_clash(candidate, other) for other in chosen):
            chosen.append(candidate)
    values.rng.shuffle(chosen)
    return chosen


def asked(values: Values, box: list[Function]) -> tuple[str, list[str]]:
    """A request for one, two or three calls."""
    function = values.pick(box)
    kind = values.rng.random()
    required = [p for p in function.parameters if p.required]
    if (
        kind < 0.14
        and len(required) == 1
        and required[0].type != "boolean"
        and "expression" not in required[0].description
    ):
        return several_values(values, function)
    two = 0.26 if values.split == "eval" else 0.4
    if kind < two and all(f.parameters for f in box):
        return two_requests(values, function, values.pick(_next_to(values, function, box)))
    if kind < two + 0.16:
        return by_name(values, function)
    return by_purpose(values, function)


def _next_to(values: Values, function: Function, box: list[Function]) -> list[Function]:
    """What a second request may be for; in training mostly another function than the first."""
    others = [other for other in box if other is not function]
    return others if others and values.split == "train" and values.chance(0.7) else box


def unrelated(values: Values, box: list[Function]) -> list[Turn]:
    """A question that no declared function answers, and the usual answer."""
    known = set().union(*(_vocabulary(function) for function in box)) - COMMON
    makers: list[Callable[[Values], Dialogue]] = [
        capitals.make,
        chat.make,
        chat.make,
        sums.make,
        repeat.make,
        unknown.make,
        unknown.make,
    ]
    for _ in range(20):
        if values.chance(0.45):
            other = _function(values)
            if any(_clash(other, function) for function in box) or not other.parameters:
                continue
            text, _ = by_purpose(values, other)
            if not re.search(r"capital|^[\d\s+=?.]*$|\+|plus|sum|add ", text.lower()) and not _terms(text) & known:
                return [Turn("user", text), Turn("assistant", unknown.DEMO)]
            continue
        maker = values.pick(makers)
        if maker is sums.make and known & ARITHMETIC:
            continue
        turns = maker(values).turns
        if maker in (chat.make, repeat.make) or not _terms(turns[0].content) & known:
            return turns
    return chat.make(values).turns


def _called(values: Values, calls: list[str], learn: bool = True) -> Turn:
    return Turn("assistant", f"{CALL_START}[{', '.join(calls)}]{CALL_END}", learn)


def _by_key(call: str) -> str:
    """The call with its arguments sorted, as histories that went through the library have it."""
    name, inside = call[:-1].split("(", 1)
    parts = re.findall(r'\w+=(?:"[^"]*"|[^,]*)', inside)
    return f"{name}({', '.join(sorted(parts))})"


def _round(values: Values, box: list[Function]) -> list[Turn]:
    """Request, call, result or results, and the sentence about them."""
    text, calls = asked(values, box)
    resorted = values.chance(0.12)
    turns = [
        Turn("user", text),
        _called(values, [_by_key(call) for call in calls] if resorted else calls, not resorted),
    ]
    turns += _results(values, len(calls))
    if len(calls) == 1 and values.chance(0.3):
        turns += _follow_up(values, box, calls[0])
    return turns


def _results(values: Values, count: int) -> list[Turn]:
    """Tool messages and the sentence about them."""
    results = [outcome(values) for _ in range(count)]
    return [Turn("tool", content) for content, _ in results] + [
        Turn("assistant", " ".join(said for _, said in results))
    ]


FOLLOW_UPS = [
    "And {v}?",
    "And in {v}?",
    "And for {v}?",
    "What about {v}?",
    "How about {v}?",
    "and {v}",
    "Now {v}.",
    "Now for {v}",
    "The same for {v}.",
    "And of {v}?",
    "Also {v}",
    "what about {v}",
    "And now {v}?",
    "And what about {v}?",
    "Same for {v}",
    "Then {v}.",
]


def _follow_up(values: Values, box: list[Function], call_text: str) -> list[Turn]:
    """The same again for something else, asked in two words."""
    function = next(f for f in box if call_text.startswith(f.name + "("))
    if len(function.parameters) != 1 or function.parameters[0].type == "boolean":
        return []
    parameter = function.parameters[0]
    value = parameter.draw()
    text = fill(roughen(values, values.pick(FOLLOW_UPS)), v=value)
    return [Turn("user", text), _called(values, [call(function, {parameter.name: value})]), *_results(values, 1)]


def _dialogue(values: Values, skill: str, last: Callable[[list[Function]], list[Turn]], count: int) -> Dialogue:
    box = toolbox(values, count)
    style = look(values)
    turns: list[Turn] = []
    more = 0.35 if values.split == "eval" else 0.68  # one reading of the declarations teaches several calls
    while values.chance(more) and len(turns) < 16:
        turns += _round(values, box) if values.chance(0.6) else unrelated(values, box)
    return _declared(values, skill, [*turns, *last(box)], box, style)


def _declared(values: Values, skill: str, turns: list[Turn], box: list[Function], style: Look) -> Dialogue:
    system = values.pick(HINTS) if values.chance(0.12) else system_prompt(values, 0.6)
    return Dialogue(skill, turns, system, [declare(values, function, style) for function in box])


def _request(values: Values, box: list[Function], none_fits: float = 0.2) -> list[Turn]:
    """A request and its calls, or an answer where no function fits."""
    if values.chance(none_fits):
        return unrelated(values, box)
    text, calls = asked(values, box)
    return [Turn("user", text), _called(values, calls)]


def make_call(values: Values) -> Dialogue:
    """Ends with a call, or with an answer where no function fits."""
    if values.split == "train" and values.chance(DRILLED):
        return _drill(values)
    return _dialogue(values, "calls", lambda box: _request(values, box), _few(values))


def _drill(values: Values) -> Dialogue:
    """Requests to several functions with no results between them, so that a reading of the declarations teaches much
    about which of them is meant. Only training has them."""
    box = toolbox(values, values.pick([2, 3, 3, 4, 4, 5, 6]))
    turns = [turn for _ in range(values.integer(8, 21 - 2 * len(box))) for turn in _request(values, box, 0.1)]
    return _declared(values, "calls", turns, box, look(values))


def make_many(values: Values) -> Dialogue:
    """As `make_call`, with five or six functions to choose from."""
    return _dialogue(values, "calls", lambda box: _request(values, box), values.integer(5, 6))


def make_answer(values: Values) -> Dialogue:
    """Ends with the sentence about a tool's result."""
    return _dialogue(values, "tool answers", lambda box: _round(values, box), _few(values))
