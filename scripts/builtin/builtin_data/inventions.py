"""Invented functions: any verb with any object, any noun of anything, named in every style."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from builtin_data.functions import Function, Parameter, restyle
from builtin_data.phrases import phrases
from builtin_data.values import Values

VERBS = phrases("inventions", "verbs")
OBJECTS = phrases("inventions", "objects")
NOUNS = phrases("inventions", "nouns")
ENTITY_NAMES = phrases("inventions", "entity_names")
EXTRA_NAMES = phrases("inventions", "extra_names")
EXTRA_NUMBERS = frozenset(phrases("inventions", "extra_numbers"))


def _word(values: Values, known: list[str]) -> str:
    """Words that name things are kept apart between the splits as names are.

    Training also coins them of any words, so that one of which nothing is known can be found again in a request.
    """
    if values.split == "train" and values.chance(0.45):
        return values.coined()
    return values.fresh(lambda: values.pick(known)) if values.chance(0.96) else values.invented()


NAMING = frozenset([*VERBS, *OBJECTS, *NOUNS, *EXTRA_NAMES])
"""Words that name functions and their parameters: what is asked about must not be one of them."""


def _told_apart(draw: Callable[[], str]) -> Callable[[], str]:
    def again() -> str:
        return next(text for text in iter(draw, None) if not NAMING.intersection(text.lower().split()))

    return again


def value_draw(values: Values, json_type: str) -> Callable[[], Any]:
    if json_type == "integer":
        return lambda: values.integer(0, 100) if values.chance(0.7) else values.integer(-50, 10000)
    if json_type == "number":
        return values.number
    if json_type == "boolean":
        return lambda: values.chance(0.5)
    return _told_apart(
        values.pick(
            [
                values.word,
                values.first_name,
                values.place_name,
                values.code,
                values.code,
                values.random_string,
                values.name,
                values.word,
                values.invented,
            ]
        )
    )


def _extra(values: Values, used: set[str]) -> Parameter:
    name = next(n for n in iter(lambda: _word(values, EXTRA_NAMES), None) if n not in used)
    used.add(name)
    if values.chance(0.2):
        json_type = values.pick(["string", "integer", "number", "boolean"])
    else:
        json_type = values.pick(["integer", "number"]) if name in EXTRA_NUMBERS else "string"
    options = None
    draw = value_draw(values, json_type)
    if json_type == "string" and values.chance(0.12):
        options = list({values.word() for _ in range(3)})
        options.sort()
        chosen = options
        draw = lambda: values.pick(chosen)  # noqa: E731
    if values.chance(0.1):
        name += "_" + values.pick(EXTRA_NAMES)
    description = values.pick(
        [
            f"The {name.replace('_', ' ')}",
            f"{name.replace('_', ' ').capitalize()} to use",
            f"Which {name.replace('_', ' ')}",
        ]
    )
    return Parameter(name, json_type, draw, description, True, options)


def _with_extras(values: Values, parameters: list[Parameter]) -> list[str]:
    """Ways of stating the parameters after the first, each named in the request."""
    extras = list(enumerate(parameters))[1:]
    if not extras:
        return [""]
    names = [p.name.replace("_", " ") for _, p in extras]
    slots = ["{" + str(i) + "}" for i, _ in extras]
    pairs = list(zip(names, slots, strict=True))
    return [
        " with " + " and ".join(f"{n} {s}" for n, s in pairs),
        " with " + ", ".join(f"{n} = {s}" for n, s in pairs),
        ", " + ", ".join(f"{n} {s}" for n, s in pairs),
        " (" + ", ".join(f"{n}: {s}" for n, s in pairs) + ")",
        " and set " + " and ".join(f"{n} to {s}" for n, s in pairs),
        " using " + " and ".join(f"{n} {s}" for n, s in pairs),
        ". The " + " and the ".join(f"{n} is {s}" for n, s in pairs),
    ]


def _count(values: Values) -> int:
    return values.pick([1, 1, 1, 1, 2, 2, 3])


@dataclass
class Subject:
    """What several functions of one program are about: an order, by its number."""

    thing: str | None
    entity: Parameter


def _entity(values: Values, named: str | None, description: str, numbers: float) -> Parameter:
    name = named or values.pick(ENTITY_NAMES)
    if values.chance(numbers):
        return Parameter(name, "integer", lambda: values.integer(1, 9999), description)
    return Parameter(name, "string", value_draw(values, "string"), description)


def subject(values: Values) -> Subject:
    thing = values.pick([None, _word(values, OBJECTS)])
    return Subject(thing, _entity(values, thing if values.chance(0.4) else None, f"The {thing or 'thing'}", 0.2))


def _place(values: Values) -> Subject:
    name = values.pick(["city", "city", "location", "place", "town", "country", "state", "region"])
    return Subject(None, Parameter(name, "string", _told_apart(values.place_name), f"The {name}"))


def _lookup(values: Values, about: Subject | None = None) -> Function:
    """A fact about something: `get_price(id)`, or about a place: `get_traffic(city)`."""
    local = about is None and values.chance(0.25)
    about = about or (_place(values) if local else subject(values))
    thing, entity = about.thing, about.entity
    noun = _word(values, NOUNS)
    words = [noun] if values.chance(0.85) else [_word(values, NOUNS), noun]
    spoken = " ".join(words)
    name = values.pick(
        [
            ["get", *words],
            ["get", *words],
            ["find", *words],
            ["lookup", *words],
            [*words],
            ["fetch", *words],
            ["read", *words],
            [*words, "of"],
        ]
    )
    if thing and values.chance(0.5):
        name = [name[0], thing, *name[1:]] if len(name) > 1 and name[-1] != "of" else [thing, *name]
    used = {entity.name}
    parameters = [entity] + [_extra(values, used) for _ in range(_count(values) - 1)]
    the = f"the {thing} " if thing else ""
    if thing and values.chance(0.2):
        the = f"{thing} "
    core = [
        f"What is the {spoken} of {the}{{0}}",
        f"Get the {spoken} of {the}{{0}}",
        f"Get the {spoken} for {the}{{0}}",
        f"{spoken} of {the}{{0}}",
        f"Tell me the {spoken} of {the}{{0}}",
        f"Show me the {spoken} [of|for] {the}{{0}}",
        f"[Look up|Find|Check|Fetch|Read] the {spoken} [of|for] {the}{{0}}",
        f"I need the {spoken} [of|for] {the}{{0}}",
        f"What's the {spoken} of {the}{{0}}",
        f"{spoken} for {the}{{0}}",
        f"What {spoken} does {the}{{0}} have",
    ]
    if local:
        core = [
            f"What is the {spoken} in {{0}}",
            f"What's the {spoken} [in|for|of] {{0}}",
            f"[Tell me|Show me|Get|Find|Check|I need] the {spoken} [in|for|of] {{0}}",
            f"[the |]{spoken} in {{0}}",
            f"[How is|How's] the {spoken} in {{0}} [|today|right now|now]",
        ]
    tails = _with_extras(values, parameters)
    requests = [c + values.pick(tails) for c in core]
    description = values.pick(
        [
            f"Returns the {spoken} of a {thing or 'thing'}.",
            f"Get the {spoken}",
            f"Looks up the {spoken}.",
            f"The {spoken} of something",
        ]
    )
    return Function(restyle(values, name), description, parameters, requests, set(words))


def _action(values: Values, about: Subject | None = None) -> Function:
    """Something done to something: `approve_invoice(id, note)`."""
    verb, thing = _word(values, VERBS), about.thing if about and about.thing else _word(values, OBJECTS)
    entity = about.entity if about else _entity(values, thing if values.chance(0.35) else None, f"The {thing}", 0.25)
    used = {entity.name}
    parameters = [entity] + [_extra(values, used) for _ in range(_count(values) - 1)]
    core = [
        f"{verb} the {thing} {{0}}",
        f"{verb} {thing} {{0}}",
        f"[Please|Can you|Could you|I want you to|Now] {verb} the {thing} {{0}}",
        f"{verb} {{0}}",
        f"I want to {verb} [the |]{thing} {{0}}",
        f"{verb} the {thing} [named|called|with {entity.name}] {{0}}",
    ]
    requests = [c[0].upper() + c[1:] + values.pick(_with_extras(values, parameters)) for c in core]
    name = restyle(values, values.pick([[verb, thing], [verb, thing], [verb, thing], [thing, verb], [verb]]))
    description = values.pick(
        [
            f"{verb.capitalize()} a {thing}.",
            f"{verb.capitalize()}s the {thing}",
            f"Use this to {verb} a {thing}.",
            f"{verb} {thing}",
        ]
    )
    return Function(name, description, parameters, requests, {verb})


def _operation(values: Values) -> Function:
    """Something computed from numbers: `zorp(a, b)`, or from numbers with names: `get_zorp(width, height)`."""
    if values.chance(0.4):
        return _formula(values)
    verb = _word(values, VERBS)
    names = values.pick(
        [
            ["a", "b"],
            ["x", "y"],
            ["first", "second"],
            ["left", "right"],
            ["m", "n"],
            ["value", "factor"],
            ["base", "exponent"],
        ]
    )
    kind = values.pick(["number", "integer", "number"])
    parameters = [Parameter(n, kind, value_draw(values, kind), f"The {n} number") for n in names]
    requests = [
        f"{verb} {{0}} and {{1}}",
        f"{verb} {{0}} with {{1}}",
        f"What is the {verb} of {{0}} and {{1}}",
        f"[Compute|Calculate] the {verb} of {{0}} and {{1}}",
        f"{verb} {{0}} by {{1}}",
        f"{verb} of {{0}} and {{1}}",
        f"Please {verb} {{0}} and {{1}}",
        f"Use {verb} on {{0}} and {{1}}",
    ]
    description = values.pick(
        [f"{verb.capitalize()} two numbers.", f"The {verb} of two numbers", f"Computes the {verb}."]
    )
    return Function(
        restyle(values, values.pick([[verb], [verb], [verb, "numbers"], ["compute", verb]])),
        description,
        parameters,
        requests,
        {verb},
    )


def _formula(values: Values) -> Function:
    noun = _word(values, NOUNS)
    kind = values.pick(["number", "integer", "number"])
    drawn = dict.fromkeys(_word(values, sorted(EXTRA_NUMBERS)) for _ in range(9))
    names = [name for name in drawn if name != noun][: values.pick([1, 2, 2, 2, 3])]
    parameters = [Parameter(n, kind, value_draw(values, kind), f"The {n.replace('_', ' ')}") for n in names]
    pairs = [f"{n.replace('_', ' ')} {{{i}}}" for i, n in enumerate(names)]
    given = values.pick([" and ", " and ", ", "]).join(pairs)
    requests = [
        f"What is the {noun} [with|for|of] {given}",
        f"[Compute|Calculate|Work out|Get|Find] the {noun} [with|for|from] {given}",
        f"[Compute|Calculate] the {noun}: {given}",
        f"{noun} [with|for|of] {given}",
        f"{noun}, {given}",
        "What is the " + noun + " if the " + " and the ".join(pair.replace(" {", " is {") for pair in pairs),
    ]
    name = restyle(values, values.pick([[noun], ["get", noun], ["compute", noun], ["calculate", noun]]))
    description = values.pick([f"Computes the {noun}.", f"Calculate the {noun}", f"The {noun} of something"])
    return Function(name, description, parameters, requests, {noun})


def function_about(values: Values, about: Subject) -> Function:
    return values.pick([_lookup, _action])(values, about)


def invented_function(values: Values) -> Function:
    return values.pick([_lookup, _lookup, _action, _action, _operation])(values)
