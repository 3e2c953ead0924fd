"""What a user says so that declared functions are called: by purpose, by name, once or twice over."""

from __future__ import annotations

import re
from typing import Any

from builtin_data.functions import Function, call
from builtin_data.manners import POLITE, THANKS, roughen
from builtin_data.phrasing import expand, fill
from builtin_data.values import Values

LEAD = "[||||||||||||||||please |hey, |hi, |ok, |now |can you |could you please |I need this: |next: |and ]"

QUOTED = re.compile(r"""["']\{""")
"""What is quoted is one value."""


def spoken(values: Values, value: Any) -> str:
    if isinstance(value, bool):
        return values.pick(["on", "true", "yes"] if value else ["off", "false", "no"])
    return str(value)


def _slots(template: str, prefix: str) -> str:
    return re.sub(r"\{(\d)\}", r"{" + prefix + r"\1}", template)


def _lower(template: str) -> str:
    return template if template.startswith(("{", "I ")) else template[0].lower() + template[1:]


def arguments(values: Values, function: Function, optional: bool) -> dict[str, Any]:
    return {p.name: p.draw() for p in function.parameters if p.required or optional}


def _filled(values: Values, template: str, given: dict[str, tuple[Function, dict[str, Any]]]) -> str:
    slots = {}
    for prefix, (function, chosen) in given.items():
        for index, parameter in enumerate(function.parameters):
            if parameter.name in chosen:
                value = chosen[parameter.name]
                text = "on" if value is True and "turn" in template.lower() else spoken(values, value)
                slots[f"{prefix}{index}"] = text
    return fill(template, **slots)


def wording(values: Values, function: Function, optional: bool) -> str:
    options = function.longer if optional and function.longer else function.requests
    return expand(values.rng, values.pick(options))


def by_purpose(values: Values, function: Function) -> tuple[str, list[str]]:
    optional = bool(function.longer) and values.chance(0.5)
    chosen = arguments(values, function, optional)
    template = wording(values, function, optional)
    if not template.startswith("{") and values.chance(0.3):
        head = expand(values.rng, LEAD if "?" in template else POLITE)
        template = f"{head} {_lower(template)}" if head else template
        if template[-1] not in "?.!}":
            template += expand(values.rng, THANKS)
    if template[-1] == "}" and values.chance(0.08):
        template += values.pick([", please", " please", ", thanks"])
    template = template[0].upper() + template[1:] if values.chance(0.7) else template
    if template[-1] not in "?.!" and values.chance(0.5):
        question = re.match(r"(what|who|where|how|is|can|could|which|when)\b", template.lower())
        template += "?" if question else values.pick([".", ".", "!", ""])
    return _filled(values, roughen(values, _slots(template, "a")), {"a": (function, chosen)}), [call(function, chosen)]


def by_name(values: Values, function: Function) -> tuple[str, list[str]]:
    """`Use f with a = 3 and b = "x"` and its kin; the name keeps its case."""
    chosen = arguments(values, function, values.chance(0.5))
    name, quote = function.name, values.pick(['"{}"', '"{}"', "{}", "'{}'"])
    shown = {
        key: quote.format(v) if isinstance(v, str) else (str(v) if values.chance(0.5) else str(v).lower())
        for key, v in chosen.items()
    }
    mark = values.pick(["=", " = ", ": ", " ", " is ", " set to "])
    pairs = [f"{key}{mark}{value}" for key, value in shown.items()]
    joined = values.pick([" and ".join(pairs), ", ".join(pairs), " and ".join(pairs)])
    head = values.pick(
        [
            "Use",
            "Call",
            "Run",
            "Invoke",
            "Execute",
            "use",
            "call",
            "run",
            "Please use",
            "Please call",
            "Can you call",
            "Use the function",
            "Call the function",
            "Use the tool",
            "Call the tool",
            "I want you to call",
            "Try",
            "Make a call to",
        ]
    )
    if not chosen:
        return f"{head} {name}" + values.pick([".", "", " please", "()"]), [call(function, chosen)]
    options = [
        f"{head} {name} with {joined}",
        f"{head} {name} with {joined}.",
        f"{head} {name} {joined}",
        f"{head} {name}: {joined}",
        f"{head} {name}({', '.join(f'{k}={v}' for k, v in shown.items())})",
        f"{name} with {joined}",
        f"{name}: {joined}",
    ]
    texts = [p for p in function.parameters if p.name in chosen and p.type == "string"]
    if values.chance(0.4) and (len(texts) < 2 or quote != "{}"):  # two bare texts in a row cannot be told apart
        bare = list(shown.values())
        options = [
            f"{head} {name} with {' and '.join(bare)}",
            f"{head} {name} for {', '.join(bare)}",
            f"{name}({', '.join(bare)})",
            f"{name} {' '.join(bare)}",
            f"{head} {name} on {' and '.join(bare)}",
            f"{head} {name}({', '.join(bare)})",
            f"{name}: {', '.join(bare)}",
        ]
    return values.pick(options), [call(function, chosen)]


def several_values(values: Values, function: Function) -> tuple[str, list[str]]:
    """One function for two or three things: `the weather in Oslo and Bergen`."""
    parameter = next(p for p in function.parameters if p.required)
    unquoted = [request for request in function.requests if not QUOTED.search(request)]
    if not unquoted:
        return by_purpose(values, function)
    template = expand(values.rng, values.pick(unquoted))
    drawn = list(dict.fromkeys(parameter.draw() for _ in range(values.pick([2, 2, 2, 3]))))
    texts = [str(value) for value in drawn]
    if len(texts) == 2 and values.chance(0.25) and template.rstrip("?.!").endswith("{0}"):
        link = template.rstrip("?.!").split(" ")[-2] if template.count(" ") else ""
        tail = values.pick(
            [
                f". And {link} {{1}}",
                f"? And {link} {{1}}?",
                f" and {link} {{1}}",
                f" and also {link} {{1}}",
                "? And {1}?",
            ]
        )
        text = fill(roughen(values, template.rstrip("?.!") + tail), **{"0": texts[0], "1": texts[1]})
    else:
        joined = (
            ", ".join(texts[:-1]) + values.pick([" and ", " and ", " and ", ", and ", " and also ", ", "]) + texts[-1]
            if len(texts) > 1
            else texts[0]
        )
        if values.chance(0.12):
            joined = "both " + joined if len(texts) == 2 and " and " in joined else joined
        text = fill(roughen(values, template), **{"0": joined})
    return text, [call(function, {parameter.name: value}) for value in drawn]


def two_requests(values: Values, first: Function, second: Function) -> tuple[str, list[str]]:
    """Two calls: of two functions, or of one twice."""
    given = {"a": (first, arguments(values, first, False)), "b": (second, arguments(values, second, False))}
    one = _slots(wording(values, first, False), "a")
    two = _slots(wording(values, second, False), "b")
    bare_one, bare_two = one.rstrip("?.!"), _lower(two.rstrip("?.!"))
    end = two[-1] if two[-1] in "?.!" else values.pick([".", "", "?"])
    template = values.pick(
        [
            f"{bare_one} and {bare_two}{end}",
            f"{bare_one} and {bare_two}{end}",
            f"{bare_one}, and {bare_two}{end}",
            f"{one if one[-1] in '?.!' else one + '.'} {two}",
            f"{bare_one}. {two}",
            f"{bare_one}, then {bare_two}{end}",
            f"{bare_one}. Also, {bare_two}{end}",
            f"{bare_one}? And {bare_two}?",
            f"First {_lower(bare_one)}, then {bare_two}{end}",
            f"{bare_one} and also {bare_two}{end}",
            f"{bare_one}; {bare_two}{end}",
            f"Please {_lower(bare_one)} and {bare_two}{end}",
            f"{bare_one}. Then {bare_two}{end}",
        ]
    )
    return _filled(values, roughen(values, template), given), [
        call(function, chosen) for function, chosen in given.values()
    ]
