# ruff: noqa: E501
"""Replies of models by dialect: what they write, and the calls, text and reasoning that it means.

The forms are those that the models' templates and the test suites of other inference servers show; the functions and
values are our own. ``grid`` writes the same situations in every dialect, ``LITERALS`` are forms of single models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from leap_core.conversation.calls import LeapFunction

from .element_calls import Calls, bare, compact, deepseek_dsml, elements, kimi_k3, minimax_m3, objects

TABLE = {"restaurant": "string", "guests": "integer", "terrace": "boolean", "tip": "number", "note": ["string", "null"]}
STORE = {"record": "object", "tags": "array", "code": "string"}


def function(name: str, properties: dict[str, Any]) -> LeapFunction:
    typed = {key: {"type": kind} for key, kind in properties.items()}
    return LeapFunction.from_openai({"name": name, "parameters": {"type": "object", "properties": typed}})


FUNCTIONS = [
    function("book_table", TABLE),
    function("store", STORE),
    function("ping", {}),
    function("python", {"code": "string"}),
    function("find-files", {"path": "string"}),
    function("calendar.add", {"title": "string"}),
]


def lfm(calls: Calls) -> str:
    written = (f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls)
    return f"<|tool_call_start|>[{', '.join(written)}]<|tool_call_end|>"


def hermes(calls: Calls) -> str:
    return "\n".join(f"<tool_call>\n{objects([call])}\n</tool_call>" for call in calls)


def deepseek_v3(calls: Calls) -> str:
    head = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
    blocks = (f"{head}{name}\n```json\n{compact(given)}\n```<｜tool▁call▁end｜>" for name, given in calls)
    return f"<｜tool▁calls▁begin｜>{chr(10).join(blocks)}<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Calls) -> str:
    blocks = (f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{compact(given)}<｜tool▁call▁end｜>" for name, given in calls)
    return f"<｜tool▁calls▁begin｜>{''.join(blocks)}<｜tool▁calls▁end｜>"


def kimi_k2(calls: Calls) -> str:
    blocks = (
        f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{compact(given)}<|tool_call_end|>"
        for n, (name, given) in enumerate(calls, 3)
    )
    return f"<|tool_calls_section_begin|>{''.join(blocks)}<|tool_calls_section_end|>"


def qwen3_coder(calls: Calls, tag: str = "tool_call", line: str = "\n") -> str:
    return "\n".join(
        f"<{tag}>\n<function={name}>\n"
        + "".join(f"<parameter={key}>{line}{bare(value)}{line}</parameter>\n" for key, value in given.items())
        + f"</function>\n</{tag}>"
        for name, given in calls
    )


def seed_oss(calls: Calls) -> str:
    return qwen3_coder(calls, "seed:tool_call", "")


def minimax_m2(calls: Calls) -> str:
    blocks = (
        f'<invoke name="{name}">\n'
        + "".join(f'<parameter name="{key}">{bare(value)}</parameter>\n' for key, value in given.items())
        + "</invoke>\n"
        for name, given in calls
    )
    return f"<minimax:tool_call>\n{''.join(blocks)}</minimax:tool_call>"


def glm45(calls: Calls) -> str:
    return "\n".join(
        f"<tool_call>{name}\n"
        + "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{bare(value)}</arg_value>\n" for key, value in given.items())
        + "</tool_call>"
        for name, given in calls
    )


def gemma(calls: Calls, start: str, quote: str, end: str) -> str:
    def spelled(value: object) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, dict):
            return f"{{{','.join(f'{key}:{spelled(each)}' for key, each in value.items())}}}"
        return f"[{','.join(map(spelled, value))}]" if isinstance(value, list) else compact(value)

    return "".join(f"{start}call:{name}{spelled(given)}{end}" for name, given in calls)


def gpt_oss(calls: Calls) -> str:
    head = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
    return "<|start|>assistant".join(f"{head.format(name)}{compact(given)}<|call|>" for name, given in calls)


def command_r7b(calls: Calls) -> str:
    items = (
        f'    {{"tool_call_id": "{n}", "tool_name": "{name}", "parameters": {compact(given)}}}'
        for n, (name, given) in enumerate(calls)
    )
    return "<|START_ACTION|>[\n" + ",\n".join(items) + "\n]<|END_ACTION|>"


WRITERS: dict[str, Callable[[Calls], str]] = {
    "lfm": lfm,
    "hermes": hermes,
    "llama3_json": lambda calls: "<|python_tag|>" + "; ".join(objects([call], "parameters") for call in calls),
    "mistral": lambda calls: f"[TOOL_CALLS][{objects(calls)}]",
    "granite": lambda calls: f"<|tool_call|>[{objects(calls)}]",
    "nemotron": lambda calls: f"<TOOLCALL>[{objects(calls)}]</TOOLCALL>",
    "apertus": lambda calls: (
        f"<|tools_prefix|>[{', '.join(compact({name: given}) for name, given in calls)}]<|tools_suffix|>"
    ),
    "command_r7b": command_r7b,
    "deepseek_v3": deepseek_v3,
    "deepseek_v31": deepseek_v31,
    "kimi_k2": kimi_k2,
    "qwen3_coder": qwen3_coder,
    "seed_oss": seed_oss,
    "minimax_m2": minimax_m2,
    "glm45": glm45,
    "functiongemma": lambda calls: gemma(calls, "<start_function_call>", "<escape>", "<end_function_call>"),
    "gemma4": lambda calls: gemma(calls, "<|tool_call>", '<|"|>', "<tool_call|>"),
    "deepseek_v32": lambda calls: deepseek_dsml(calls, "function_calls"),
    "deepseek_v4": lambda calls: deepseek_dsml(calls, "tool_calls"),
    "minicpm5": lambda calls: elements(
        calls, '<function name="{name}">', '<param name="{key}">', "</param>", "</function>"
    ),
    "kimi_k3": kimi_k3,
    "minimax_m3": minimax_m3,
    "apriel": lambda calls: f"<tool_calls>[{objects(calls)}]</tool_calls>",
    "gigachat31": lambda calls: "".join(f"<|function_call|>{objects([call])}" for call in calls),
    "gigachat3": lambda calls: "".join(
        f"<|message_sep|>\n\nfunction call<|role_sep|>\n{objects([call])}" for call in calls
    ),
    "command_r": lambda calls: "Action:\n```json\n[{}]\n```".format(
        ", ".join(f'{{"tool_name": "{name}", "parameters": {compact(given)}}}' for name, given in calls)
    ),
    "functools": lambda calls: f"functools[{objects(calls)}]",
    "functionary": lambda calls: "".join(f"<function={name}>{compact(given)}</function>" for name, given in calls),
    "functionary_v32": lambda calls: "".join(f">>>{name}\n{compact(given)}" for name, given in calls),
    "gpt_oss": gpt_oss,
}
NEWER = (
    *("deepseek_v32", "deepseek_v4", "minicpm5", "kimi_k3", "minimax_m3", "apriel", "gigachat31", "gigachat3"),
    *("command_r", "functools"),
)
"""Dialects that only test_dialects has examples of."""
REASONING = {
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "command_r7b": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "gpt_oss": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
}
TOKENS = {
    "gpt_oss": ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"),
    "lfm": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "mistral": ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"),
    "llama3_json": ("<|python_tag|>",),
    "granite": ("<|tool_call|>",),
    "kimi_k2": (
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "command_r7b": (
        *("<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>"),
        *("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>", "<|tools_suffix|>"),
    "seed_oss": ("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    "minimax_m2": ("<minimax:tool_call>", "</minimax:tool_call>"),
    "gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "functiongemma": ("<start_function_call>", "<end_function_call>", "<escape>"),
    **dict.fromkeys(
        ("deepseek_v3", "deepseek_v31"),
        (
            *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
            "<｜tool▁sep｜>",
        ),
    ),
}
"""By dialect: what the models' vocabularies have as tokens; the markers of the others are text."""


@dataclass(frozen=True)
class Case:
    """``said``: whether a warning names what could not be read. ``text`` None: any text that is not empty."""

    dialect: str
    about: str
    reply: str
    calls: Calls = field(default_factory=list)
    text: str | None = ""
    reasoning: str = ""
    said: bool = False


ONE: Calls = [("book_table", {"restaurant": "Da Enzo", "guests": 4})]
TWO: Calls = [*ONE, ("ping", {})]
ALL_TYPES: Calls = [("book_table", {"restaurant": "x", "guests": -2, "terrace": True, "tip": 2.5, "note": None})]
NESTED: Calls = [("store", {"record": {"a": {"b": [1, {"c": "d"}]}, "e": {}}, "tags": ["x", "y", []], "code": "7"})]
ESCAPED: Calls = [("store", {"code": "if a < b:\n\tprint(\"{'x'}\")  # C:\\dir\\n"})]
UNICODE: Calls = [("book_table", {"restaurant": "東京 🍣 Ünïcödé — «ok»"})]
DIGITS: Calls = [("store", {"code": "00420"})]


def grid() -> Iterator[Case]:
    """The same situations in every dialect."""
    for name, write in WRITERS.items():
        if name in NEWER:
            continue
        (start, end), why = REASONING.get(name, ("<think>", "</think>")), "Four people."
        final = "<|channel|>final<|message|>{}<|end|><|start|>assistant" if name == "gpt_oss" else "{}"
        final = ">>>all\n{}\n" if name == "functionary_v32" else final
        yield Case(name, "one call", write(ONE), ONE)
        yield Case(name, "two calls", write(TWO), TWO)
        yield Case(name, "a value of each type", write(ALL_TYPES), ALL_TYPES)
        yield Case(name, "nested values", write(NESTED), NESTED)
        yield Case(name, "quotes, backslashes and line breaks", write(ESCAPED), ESCAPED)
        yield Case(name, "letters beyond ASCII", write(UNICODE), UNICODE)
        yield Case(name, "a text of digits", write(DIGITS), DIGITS)
        yield Case(name, "no arguments", write([("ping", {})]), [("ping", {})])
        yield Case(
            name, "a name with a dot", write([("calendar.add", {"title": "x"})]), [("calendar.add", {"title": "x"})]
        )
        yield Case(
            name, "a name with a hyphen", write([("find-files", {"path": "/"})]), [("find-files", {"path": "/"})]
        )
        yield Case(name, "text before", f"{final.format('I book it.')}{write(ONE)}", ONE, "I book it.")
        if name == "functionary_v32":
            start = end = why = ""  # no model of this dialect thinks
        yield Case(name, "reasoning before", f"{start}{why}{end}{write(ONE)}", ONE, "", why)
        yield Case(name, "reasoning and text", f"{start}{why}{end}{final.format('So.')}{write(TWO)}", TWO, "So.", why)
        yield Case(name, "no call", final.format("Which evening?"), [], "Which evening?")
        cut = write(ONE)[: write(ONE).index("Enzo") + 2]
        yield Case(name, "cut within a value", cut, [], None, said=True)


R, V = '{"restaurant": "Rosa"}', [("book_table", {"restaurant": "Rosa"})]
ROSA = f'{{"name": "book_table", "arguments": {R}}}'
PARAMETERS = ROSA.replace("arguments", "parameters")
PING = '{"name": "ping", "arguments": {}}'
BOTH: Calls = [*V, ("ping", {})]
CODE: Calls = [("python", {"code": "for n in (1, 2):\n    print(n)"})]
Q = "<function=book_table>\n<parameter=restaurant>\nRosa\n</parameter>\n</function>"
M = '<invoke name="book_table"><parameter name="restaurant">Rosa</parameter></invoke>'
KIMI = "<|tool_call_begin|>functions.book_table:0<|tool_call_argument_begin|>" + R
SEP = "<｜tool▁sep｜>"
TO = " to=functions.book_table"


def literals() -> Iterator[Case]:
    """Forms of single models."""
    for text, calls in (
        ("[book_table(restaurant='Rosa')]", V),
        ('[book_table(restaurant="Rosa"), ping()]', BOTH),
        (
            "[book_table(restaurant='L\\'Orso', note='\\\"by the window\\\"')]",
            [("book_table", {"restaurant": "L'Orso", "note": '"by the window"'})],
        ),
        ("[book_table(guests=04, restaurant='x')]", [("book_table", {"guests": 4, "restaurant": "x"})]),
        ("[store(code=04)]", [("store", {"code": "04"})]),
        ("[store(tags={'a', 'b'})]", [("store", {"tags": ["a", "b"]})]),
        ("[store(record={}, tags=[])]", [("store", {"record": {}, "tags": []})]),
        ("[python(code='grep -c \"]\" x.log')]", [("python", {"code": 'grep -c "]" x.log'})]),
        ("[python(code='cat > a << E\nx = 1\nE')]", [("python", {"code": "cat > a << E\nx = 1\nE"})]),
        ("[python(code='awk 'NR<5' a.txt')]", [("python", {"code": "awk 'NR<5' a.txt"})]),
        ("[python(code='printf a\x00b')]", [("python", {"code": "printf a\x00b"})]),
        (" [ping()]", [("ping", {})]),
        ("ping()", [("ping", {})]),
        ("[ping()]]", [("ping", {})]),
        ("[[ping()]]", [("ping", {})]),
        ("[ping()]\n[ping()]", [("ping", {}), ("ping", {})]),
        ("```\n[ping()]\n```", [("ping", {})]),
        (f'{{"tool_calls": [{ROSA}, {PING}]}}', BOTH),
        (f"[{ROSA}]", V),
    ):
        yield Case("lfm", "between the markers", f"<|tool_call_start|>{text}<|tool_call_end|>", calls)
    block = "<|tool_call_start|>[ping()]<|tool_call_end|>"
    yield Case("lfm", "text after", f"{block}\nThe host answers.", [("ping", {})], "The host answers.")
    yield Case("lfm", "no end marker", block.removesuffix("<|tool_call_end|>"), [("ping", {})])
    yield Case("lfm", "an empty block", "<|tool_call_start|>[]<|tool_call_end|>")
    yield Case(
        "lfm",
        "a call with a bad one",
        "<|tool_call_start|>[ping(), store(x=b'z')]<|tool_call_end|>",
        [("ping", {})],
        "",
        said=True,
    )
    for text, calls in (
        (f"\n{ROSA}\n", V),
        (ROSA, V),
        (f'{{"arguments": {R}, "name": "book_table"}}', V),
        (f'{{"name": "book_table", "arguments": {compact(R)}}}', V),
        (f"{ROSA}, {PING}", BOTH),
        (f"{ROSA}\n{PING}", BOTH),
        (f"[{ROSA}, {PING}]", BOTH),
        (f"\n```json\n{ROSA}\n```\n", V),
        ('{"name": "ping"}', [("ping", {})]),
        (f'{{"type": "function", "function": {ROSA}}}', V),
    ):
        yield Case("hermes", "between the tags", f"<tool_call>{text}</tool_call>", calls)
    yield Case("hermes", "no end tag", f"<tool_call>\n{ROSA}", V)
    yield Case("hermes", "text after", f"<tool_call>{ROSA}</tool_call> Done.", V, "Done.")
    yield Case(
        "hermes",
        "an end tag in a value",
        '<tool_call>{"name": "store", "arguments": {"code": "</tool_call>"}}</tool_call>',
        [("store", {"code": "</tool_call>"})],
    )
    yield Case("hermes", "a missing brace", f"<tool_call>\n{ROSA[:-1]}", [], None, said=True)
    yield Case("hermes", "a wrong call among others", f"<tool_call>{{oops</tool_call>{hermes(V)}", V, None, said=True)
    for separator in ("; ", ";", " ; ", ";\n", "\n"):
        yield Case("llama3_json", "calls without the tag", f"{PARAMETERS}{separator}{PING}", BOTH)
        yield Case("llama3_json", "calls after the tag", f"<|python_tag|>{PARAMETERS}{separator}{PING}", BOTH)
    yield Case("llama3_json", "no tag", PARAMETERS, V)
    yield Case("llama3_json", "arguments in place of parameters", ROSA, V)
    yield Case("llama3_json", "type function", f'{{"type": "function", "name": "book_table", "parameters": {R}}}', V)
    yield Case("llama3_json", "a tag for each call", f"<|python_tag|>{PARAMETERS}<|python_tag|>{PING}", BOTH)
    yield Case("llama3_json", "text before the tag", f"One moment. <|python_tag|>{PARAMETERS}", V, "One moment.")
    yield Case("llama3_json", "a method of a built-in tool", "<|python_tag|>ping.call()", [("ping", {})])
    yield Case("llama3_json", "python code", f"<|python_tag|>{CODE[0][1]['code']}", [], CODE[0][1]["code"], said=True)
    yield Case(
        "llama3_json",
        "brackets in a value",
        '{"name": "store", "parameters": {"code": "a {b} [c] \\"d\\""}}',
        [("store", {"code": 'a {b} [c] "d"'})],
    )
    for text, calls in (
        (f"[TOOL_CALLS] [{ROSA}]", V),
        (f'[TOOL_CALLS][{{"name": "book_table", "arguments": {R}, "id": "a1B2c3D4e"}}]', V),
        (f'[TOOL_CALLS] [{{"arguments": {R}, "name": "book_table"}}]', V),
        ('[TOOL_CALLS] [{"arguments": {"code": "name"}, "name": "store"}]', [("store", {"code": "name"})]),
        (f"[TOOL_CALLS]book_table{R}", V),
        (f"[TOOL_CALLS]book_table {R}", V),
        (f"[TOOL_CALLS]book_table[ARGS]{R}", V),
        (f"[TOOL_CALLS]book_table[CALL_ID]a1B2c3D4e[ARGS]{R}", V),
        (f"[TOOL_CALLS]book_table{R}[TOOL_CALLS]ping{{}}", BOTH),
        (f"[TOOL_CALLS]book_table[ARGS]{R}[TOOL_CALLS]ping[ARGS]{{}}", BOTH),
        (
            '[TOOL_CALLS]store{"record": {"a": {"b": 1}}, "tags": ["[TOOL_CALLS]"]}',
            [("store", {"record": {"a": {"b": 1}}, "tags": ["[TOOL_CALLS]"]})],
        ),
        (f"[TOOL_CALLS] [{ROSA}][TOOL_CALLS] [{PING}]", BOTH),
    ):
        yield Case("mistral", "after the marker", text, calls)
    yield Case("mistral", "text around", f"Yes.[TOOL_CALLS] [{ROSA}]\nI booked it.", V, "Yes.\nI booked it.")
    yield Case("mistral", "text after a name and arguments", f"[TOOL_CALLS]book_table[ARGS]{R} Done.", V, "Done.")
    yield Case("mistral", "no JSON", "[TOOL_CALLS] I cannot book.", [], None, said=True)
    yield Case("mistral", "wrong JSON", '[TOOL_CALLS]book_table{"restaurant": }', [], None, said=True)
    yield Case("granite", "white space", f"<|tool_call|> [\n  {ROSA},\n  {PING}\n]", BOTH)
    yield Case("granite", "the tag of Granite 3.1", f"<tool_call> [{ROSA}]", V)
    yield Case("granite", "text around", f"Yes.\n<|tool_call|> [{ROSA}]\nI booked it.", V, "Yes.\n\nI booked it.")
    yield Case("granite", "one object", f"<|tool_call|>{ROSA}", V)
    yield Case("granite", "arguments first", f'<|tool_call|>[{{"arguments": {R}, "name": "book_table"}}, {PING}]', BOTH)
    yield Case("nemotron", "text after", f"<TOOLCALL>[{ROSA}]</TOOLCALL>Done.", V, "Done.")
    yield Case(
        "nemotron",
        "wrong arguments",
        '<TOOLCALL>[{"name": "ping", "arguments": {"a": oops</TOOLCALL> Sorry.',
        [],
        None,
        said=True,
    )
    yield Case("apertus", "text after", f'<|tools_prefix|>[{{"book_table": {R}}}]<|tools_suffix|>Done.', V, "Done.")
    yield Case("apertus", "no end marker", f'<|tools_prefix|>[{{"book_table": {R}}}]', V)
    yield Case(
        "command_r7b",
        "line breaks",
        f'<|START_ACTION|>\n[\n    {{"tool_call_id": "0", "tool_name": "book_table", "parameters": {R}}}\n]\n<|END_ACTION|>',
        V,
    )
    yield Case("command_r7b", "a response", "<|START_RESPONSE|>Gern.<|END_RESPONSE|>", [], "Gern.")
    yield Case("command_r7b", "empty thinking", f"<|START_THINKING|><|END_THINKING|>{command_r7b(V)}", V)
    yield Case(
        "deepseek_v3",
        "no line break before the fence's end",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function{SEP}book_table\n```json\n{R}```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        V,
    )
    for name, write in (("deepseek_v3", deepseek_v3), ("deepseek_v31", deepseek_v31)):
        inner = write(V).removeprefix("<｜tool▁calls▁begin｜>").removesuffix("<｜tool▁calls▁end｜>")
        yield Case(name, "no outer markers", inner, V)
        yield Case(
            name, "no markers of the end", f"<｜tool▁calls▁begin｜>{inner.removesuffix('<｜tool▁call▁end｜>')}", V
        )
        yield Case(name, "a missing brace", write(V).replace("}", ""), [], None, said=True)
    yield Case("kimi_k2", "no section markers", f"{KIMI}<|tool_call_end|>", V)
    yield Case(
        "kimi_k2",
        "no section and end markers",
        f"{KIMI}<|tool_call_begin|>functions.ping:1<|tool_call_argument_begin|>{{}}",
        BOTH,
    )
    yield Case(
        "kimi_k2",
        "white space",
        f"<|tool_calls_section_begin|>\n{KIMI.replace('functions', ' functions')}\n<|tool_call_end|>\n<|tool_calls_section_end|>",
        V,
    )
    yield Case(
        "kimi_k2",
        "an id without functions",
        f"<|tool_calls_section_begin|>{KIMI.replace('functions.', '')}<|tool_call_end|><|tool_calls_section_end|>",
        V,
    )
    yield Case("kimi_k2", "within open reasoning", f"<think>I book.{kimi_k2(V)}", V, "", "I book.")
    yield Case("kimi_k2", "a marker of the end in text", "Nothing.<|tool_calls_section_end|>", [], "Nothing.")
    for name, tag in (("qwen3_coder", "tool_call"), ("seed_oss", "seed:tool_call")):
        code = qwen3_coder(CODE, tag)
        yield Case(name, "code in a value", code, CODE)
        yield Case(name, "no start tag", f"{Q}\n</{tag}>", V)
        yield Case(name, "no tags", Q, V)
        yield Case(name, "no tags, two functions", f"{Q}\n<function=ping>\n</function>", BOTH)
        yield Case(name, "two functions in a tag", f"<{tag}>\n{Q}\n<function=ping>\n</function>\n</{tag}>", BOTH)
        yield Case(name, "no end of the parameter", f"<{tag}>{Q.replace('</parameter>' + chr(10), '')}</{tag}>", V)
        yield Case(name, "no line breaks", f"<{tag}>{Q.replace(chr(10), '')}</{tag}>", V)
        yield Case(
            name,
            "text between",
            f"Now:\n<{tag}>\n{Q}\n</{tag}>\nand\n<{tag}>\n<function=ping>\n</function>\n</{tag}>",
            BOTH,
            "Now:\n\nand",
        )
        yield Case(
            name,
            "HTML in a value",
            qwen3_coder([("store", {"code": "<p class='a'>\n <b>x</b> & y\n</p>"})], tag),
            [("store", {"code": "<p class='a'>\n <b>x</b> & y\n</p>"})],
        )
        yield Case(
            name,
            "a line break at the end of a value",
            f"<{tag}>\n<function=store>\n<parameter=code>x = 1\n\n</parameter>\n</function>\n</{tag}>",
            [("store", {"code": "x = 1\n" if name == "qwen3_coder" else "x = 1\n\n"})],
        )
        yield Case(
            name,
            "a list of objects",
            qwen3_coder([("store", {"tags": [{"a": 1}, {"b": False}]})], tag),
            [("store", {"tags": [{"a": 1}, {"b": False}]})],
        )
        yield Case(
            name,
            "Python's words",
            f"<{tag}><function=book_table><parameter=terrace>True</parameter><parameter=note>None</parameter></function></{tag}>",
            [("book_table", {"terrace": True, "note": None})],
        )
    yield Case("minimax_m2", "no line breaks", f"<minimax:tool_call>{M}</minimax:tool_call>", V)
    yield Case(
        "minimax_m2",
        "two blocks",
        f'<minimax:tool_call>{M}</minimax:tool_call>\n<minimax:tool_call><invoke name="ping"></invoke></minimax:tool_call>',
        BOTH,
    )
    yield Case("minimax_m2", "no outer tags", M, V)
    yield Case("minimax_m2", "no outer end tag", f"<minimax:tool_call>\n{M}", V)
    yield Case("glm45", "indented elements", glm45(V).replace("<arg", "    <arg"), V)
    yield Case("glm45", "no line breaks", glm45(TWO).replace("\n", ""), TWO)
    yield Case("glm45", "no arguments and a line break", "<tool_call>ping\n</tool_call>", [("ping", {})])
    yield Case("glm45", "text between", f"A\n\n{glm45(V)}\n\nB\n\n{glm45([('ping', {})])}", BOTH, "A\n\n\n\nB")
    yield Case("glm45", "no end tag", glm45(V).removesuffix("</tool_call>"), V)
    yield Case(
        "glm45",
        "an element that does not end",
        "<tool_call>store\n<arg_key>code\n<arg_value>x</arg_value>\n</tool_call>",
        [],
        None,
        said=True,
    )
    yield Case(
        "gemma4",
        "keys between quotes",
        '<|tool_call>call:store{record:{<|"|>3<|"|>:<|"|>x<|"|>}}<tool_call|>',
        [("store", {"record": {"3": "x"}})],
    )
    yield Case(
        "gemma4",
        "a number that ends with a point",
        "<|tool_call>call:book_table{tip:3.,guests:2}<tool_call|>",
        [("book_table", {"tip": 3.0, "guests": 2})],
    )
    yield Case(
        "gemma4",
        "a comma and a brace in a text",
        '<|tool_call>call:store{code:<|"|>a, b:{c}<|"|>}<tool_call|>',
        [("store", {"code": "a, b:{c}"})],
    )
    yield Case("gemma4", "JSON's quotes", f"<|tool_call>call:book_table{R}<tool_call|>", V)
    yield Case(
        "functiongemma",
        "a number as a text",
        "<start_function_call>call:book_table{guests:<escape>4<escape>}<end_function_call>",
        [("book_table", {"guests": 4})],
    )
    yield Case(
        "functiongemma",
        "white space",
        "<start_function_call>call: book_table {restaurant:<escape>Rosa<escape>}<end_function_call>",
        V,
    )
    yield Case("functiongemma", "no end marker", "<start_function_call>call:ping{}", [("ping", {})])
    yield Case(
        "functionary",
        "text around",
        f"I<function=book_table>{R}</function> do<function=ping>{{}}</function>.",
        BOTH,
        "I do.",
    )
    yield Case("functionary", "white space", "<function=ping>{ } </function> ", [("ping", {})])
    for text, calls, shown in (
        (f"book_table\n{R}", V, ""),
        (f"all\nWith pleasure.\n>>>book_table\n{R}", V, "With pleasure."),
        (f">>>all\nWith pleasure.>>>book_table\n{R}>>>ping\n{{}}", BOTH, "With pleasure."),
        (f">>>book_table\n{R}\n ", V, ""),
        (f">>>book_table\n{R}\n>>>all\nDone.", V, "Done."),
        (f">>>python\n{CODE[0][1]['code']}", CODE, ""),
        (">>>all\nIn Python:\n>>> 1 + 1\n2", [], "In Python:\n>>> 1 + 1\n2"),
        ("all\n", [], ""),
        ("allow me", [], "allow me"),
    ):
        yield Case("functionary_v32", "recipients", text, calls, shown)
    yield Case("functionary_v32", "wrong JSON", '>>>book_table\n{"restaurant": }', [], None, said=True)
    for header in (
        f"{TO}<|channel|>analysis<|message|>",
        f"<|channel|>analysis{TO}<|message|>",
        f"<|channel|>commentary{TO}<|message|>",
        f"{TO}<|channel|>commentary json<|message|>",
        f"{TO}<|channel|>analysis <|constrain|>json<|message|>",
    ):
        yield Case("gpt_oss", "a header", f"{header}{R}", V)
        yield Case(
            "gpt_oss",
            "a header after reasoning",
            f"<|channel|>analysis<|message|>Why?<|end|>\n<|start|>assistant{header}{R}<|call|>",
            V,
            "",
            "Why?",
        )
    yield Case(
        "gpt_oss",
        "commentary to the user",
        "<|channel|>commentary<|message|>First the table.<|end|>",
        [],
        "First the table.",
    )
    yield Case(
        "gpt_oss",
        "an answer, then a call",
        f"<|channel|>final<|message|>Ok.<|end|><|start|>assistant<|channel|>commentary{TO} <|constrain|>json<|message|>{R}",
        V,
        "Ok.",
    )
    for name in ("hermes", "llama3_json", "mistral", "qwen3_coder", "gemma4", "command_r7b"):
        yield Case(name, "JSON alone", ROSA, V)
        yield Case(name, "JSON in a fence", f"```json\n{ROSA}\n```", V)
        yield Case(name, "JSON in a list", f"[{ROSA}, {PING}]", BOTH)


CASES = [*grid(), *literals()]
