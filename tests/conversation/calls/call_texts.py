"""What models write as calls, and what must come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leap_core.conversation.calls import LeapFunctionCall

S, E = "<|tool_call_start|>", "<|tool_call_end|>"
H, K = "<tool_call>", "</tool_call>"
DECLARED = ("f", "get_weather", "Calendar.create_event", "search-web")
UNREADABLE = "unreadable"


def call(name: str, **arguments: Any) -> LeapFunctionCall:
    return LeapFunctionCall(name, arguments)


@dataclass(frozen=True)
class Row:
    """A reply and what comes of it: strings are text, lists are calls, UNREADABLE is a warning."""

    text: str
    expected: list[Any]
    parser: str | None = "lfm"


def lfm(body: str, *calls: LeapFunctionCall) -> Row:
    """Calls between the markers and nothing else."""
    return Row(f"{S}{body}{E}", [list(calls)])


def value(written: str, expected: Any) -> Row:
    return lfm(f"[f(x={written})]", call("f", x=expected))


def broken(body: str) -> Row:
    """What stands between the markers cannot be read, and is text."""
    return Row(f"{S}{body}{E}", [body, UNREADABLE])


def hermes(body: str, *calls: LeapFunctionCall) -> Row:
    return Row(f"{H}{body}{K}", [list(calls)], "hermes")


def broken_hermes(body: str) -> Row:
    return Row(f"{H}{body}{K}", [body, UNREADABLE], "hermes")


LFM_GOOD = [
    lfm('[f(a="x", b=1)]', call("f", a="x", b=1)),
    lfm("[f(a='x')]", call("f", a="x")),
    lfm("[f()]", call("f")),
    lfm('[f(a="x"), f(a="y")]', call("f", a="x"), call("f", a="y")),
    lfm("[f(a=1), get_weather(city='Rome'), f()]", call("f", a=1), call("get_weather", city="Rome"), call("f")),
    lfm("[Calendar.create_event(title='x')]", call("Calendar.create_event", title="x")),
    lfm("[search-web(q='x')]", call("search-web", q="x")),
    lfm("[undeclared(x=1)]", call("undeclared", x=1)),
    lfm(" [ f ( a = 1 , b = 2 ) ] ", call("f", a=1, b=2)),
    lfm("\n[\n  f(\n    a=1,\n  ),\n]\n", call("f", a=1)),
    lfm("f(a=1)", call("f", a=1)),
    lfm("f(a=1), f(a=2)", call("f", a=1), call("f", a=2)),
    lfm(
        "[f(from=1, class='x', None_=2, True_=3)]",
        LeapFunctionCall("f", {"from": 1, "class": "x", "None_": 2, "True_": 3}),
    ),
    lfm("[f(größe=1)]", LeapFunctionCall("f", {"größe": 1})),
    lfm("[f(**{'a b': 1, 'c': 2})]", LeapFunctionCall("f", {"a b": 1, "c": 2})),
    value('"it\'s"', "it's"),
    value("'say \"hi\"'", 'say "hi"'),
    value(r"'it\'s'", "it's"),
    value(r'"a\"b"', 'a"b'),
    value(r'"line\nbreak\ttab"', "line\nbreak\ttab"),
    value('"raw\nbreak"', "raw\nbreak"),
    value(r'"C:\\temp\\"', "C:\\temp\\"),
    value(r'"\d+"', r"\d+"),
    value(r'r"C:\temp"', r"C:\temp"),
    value(r'"\u00e9\x41"', "éA"),
    value(r'"\ud83d\ude00"', "😀"),
    value(r'"\ud83d"', "\ufffd"),
    value("'''a 'b' c'''", "a 'b' c"),
    value('"a" "b"', "ab"),
    value('"[f(y=1)], (z)"', "[f(y=1)], (z)"),
    value('"a=b, c"', "a=b, c"),
    value('""', ""),
    value('"日本語 😀"', "日本語 😀"),
    value("-5", -5),
    value("+5", 5),
    value("3.25", 3.25),
    value("-0.5e3", -500.0),
    value("1E-2", 0.01),
    value(".5", 0.5),
    value("5.", 5.0),
    value("007", "007"),
    value("'\\N{NO SUCH THING}\\n'", "\\N{NO SUCH THING}\\n"),
    value("'\\U00FFFFFF'", "\\U00FFFFFF"),
    value("1_000", 1000),
    value("0x1F", 31),
    value("0b101", 5),
    value("12345678901234567890", 12345678901234567890),
    value("0", 0),
    value("00", "00"),
    value("True", True),
    value("true", True),
    value("False", False),
    value("false", False),
    value("None", None),
    value("null", None),
    value("[1, 'a', [2.5, None], []]", [1, "a", [2.5, None], []]),
    value("[1, 2,]", [1, 2]),
    value("(1, 2)", [1, 2]),
    value("(1,)", [1]),
    value("(1)", 1),
    value("{}", {}),
    value("{'a': {'b': [True, {'c': None}]}}", {"a": {"b": [True, {"c": None}]}}),
    value('{"a": true, "b": null}', {"a": True, "b": None}),
    value("{a: 1, 2: 'x'}", {"a": 1, "2": "x"}),
    lfm('{"name": "f", "arguments": {"a": [1, null]}}', call("f", a=[1, None])),
    lfm('[{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"a": 1}}]', call("f"), call("f", a=1)),
    lfm('{"name": "f", "arguments": {}}\n{"name": "f", "arguments": {"a": 1}}', call("f"), call("f", a=1)),
    lfm('{"name": "f", "arguments": "{\\"a\\": 1}"}', call("f", a=1)),
    lfm('{"type": "function", "function": {"name": "f", "arguments": {}}}', call("f")),
    value(f'"{E}"', E),
    value("{1, 2}", [1, 2]),
    value("{'a'}", ["a"]),
    value("TRUE", True),
    value("NULL", None),
    lfm("[f(a=1,  # the first\n b=2)]", call("f", a=1, b=2)),
    value("'# no comment'", "# no comment"),
    lfm('{"name": "f"}', call("f")),
    lfm('{"name": "f", "arguments": null}', call("f")),
    value("'sed -n '360,450p' f.py'", "sed -n '360,450p' f.py"),
    value("'it's fine'", "it's fine"),
    value('"He said "hi" to me"', 'He said "hi" to me'),
    value("'print('a', 'b')'", "print('a', 'b')"),
    value("'echo 'hi''", "echo 'hi'"),
    value("'grep 'or' f'", "grep 'or' f"),
    value("'awk -F'=' '{print $1}' f'", "awk -F'=' '{print $1}' f"),
    value("['it's', 'b']", ["it's", "b"]),
    value("{'cmd': 'echo 'a, b''}", {"cmd": "echo 'a, b'"}),
    lfm("[f(a='sed -n '1,2p' f', b='5')]", call("f", a="sed -n '1,2p' f", b="5")),
    lfm("[f(a='it's fine', b=1), f(a='don't')]", call("f", a="it's fine", b=1), call("f", a="don't")),
]

QUOTED = [
    Row(text, [text])
    for text in (
        'The document says "[f(a=1)]".',
        "Write `[f(a=1)]` to call it.",
        "```\n[f(a=1)]\n```",
        "I called [f(a=1)] for you",
        "[f(a=1)] is what I would call",
        "[f(a=1)][2]",
        "> [f(a=1)]",
        "Sure:\n[f(a=1)]",
    )
]
"""A list of calls that is only spoken of is text."""

ECHOED = [
    Row(f"{S}[f(a=1)]{E}[f(a=1)]{E}", [[call("f", a=1)]]),
    Row(f"{S}[f(a=1)]{E}\n[f(a=1)]\n{E}", [[call("f", a=1)]]),
    Row(f"{S}[f(a=1)]{E}[f(a=1)]{E}[f(a=1)]{E}", [[call("f", a=1)]]),
    Row(f"{S}[f(a=1)]{E}[f(a=1)]", [[call("f", a=1)]]),
    Row(f"{S}[f(a=1)]{E}[f(a=2)]{E}", [[call("f", a=1)], "[f(a=2)]"]),
    Row(f"{S}[f(a=1)]{E} [f(a=1)] was made", [[call("f", a=1)], " [f(a=1)] was made"]),
    Row(f"{S}[f(a=1)]{E} [f(", [[call("f", a=1)], " [f("]),
    Row(f"Now {S}[f(a=1)]{E}[f(a=1)]{E} done", ["Now ", [call("f", a=1)], " done"]),
]

PARTLY_READABLE = [
    Row(f"{S}[f(a=1), f(1), f(a=2)]{E}", [[call("f", a=1), call("f", a=2)], UNREADABLE]),
    Row(f"{S}[f(a=x), f(a=2)]{E} ok", [[call("f", a=2)], UNREADABLE, " ok"]),
    Row(f'{S}[{{"name": "f", "arguments": 5}}, {{"name": "f"}}]{E}', [[call("f")], UNREADABLE]),
    Row(f"{S}f(a=1), f(=){E}", [[call("f", a=1)], UNREADABLE]),
    Row(f"{S}[f(a=1), f(a='it is]{E} ok", [[call("f", a=1)], UNREADABLE, " ok"]),
    Row(f"{S}[f(a=1), f(a=[2)]{E}", [[call("f", a=1)], UNREADABLE]),
    Row(f"{S}[f(a=1), f(a=", [[call("f", a=1)], UNREADABLE]),
    Row(f"{S}[f(a=1), f(a='x' or 'y'), f(a=3)]{E}", [[call("f", a=1), call("f", a=3)], UNREADABLE]),
    Row(f"{S}[f(a=1)]{S}[f(a=2)]{E}", [[call("f", a=1)], [call("f", a=2)]]),
    Row(f"{S}[f(a=1)]{S}[f(a=){E}", [[call("f", a=1)], "[f(a=)", UNREADABLE]),
    Row(f"{S}[f(a='{S}[f(a=2)]{E}' oops)]{E}", ["[f(a='[f(a=2)]", UNREADABLE, "' oops)]"]),
    Row("[f(a=1), f(a=b)]", [[call("f", a=1)], UNREADABLE]),
    Row("[f(a=1), g(a=b)]", ["[f(a=1), g(a=b)]"]),
    Row(f'{H}[{{"name": "f"}}, {{"name": 5}}]{K}', [[call("f")], UNREADABLE], "hermes"),
    Row(f'{H}[{{"name": "f"}}, {{"name": "f", "arguments": {{"a": 1}}}}]{K}', [[call("f"), call("f", a=1)]], "hermes"),
    Row(
        f'{H}{{"name": "f"}}{H}{{"name": "f", "args": 5}}{K}',
        [[call("f")], '{"name": "f", "args": 5}', UNREADABLE],
        "hermes",
    ),
]

IN_DOUBT = [
    broken("[f(a='echo 'a', b='c'')]"),
    broken("[f(a='x' y, b='z', c='w')]"),
]
"""Inner quotes that could end in two places."""

EXPRESSIONS = [
    *(
        value(written, "ab")
        for written in ("'a' + 'b'", "'a'+'b'", "'a' 'b'", "'a' + \"b\"", "('a' +\n 'b')", "'\\x61' + 'b'")
    ),
    value("'rm -rf ' + '/tmp/x'", "rm -rf /tmp/x"),
    value("'\\N{BULLET} x'", "• x"),
    *(
        broken(f"[f(x={written})]")
        for written in (
            "'a', 'b'",
            "'a' or 'b'",
            "'a' if True else 'b'",
            "'%s' % 'b'",
            "'a' + y",
            "'a' + 1",
            "'a' + str(1) + 'b'",
            "'a' y='b'",
            "'a': 'b'",
            "'a'; 'b'",
            "'a'||'b'",
            "'a'.'b'",
            "'a' ? 'b' : 'c'",
            "'a'.join('b')",
            "'a'['b']",
            "'a' * 2",
            "f'{'a'}'",
            "not 'a' or 'b'",
            "['a' or 'b']",
            "{'k': 'a' or 'b'}",
            "{'k': 1, 'k': 2}",
        )
    ),
    *(lfm(f'{{"name": "f", "{key}": {{"a": 1}}}}', call("f", a=1)) for key in ("args", "input", "parameters")),
    lfm('{"type": "tool_use", "id": "x", "name": "f", "input": {"a": 1}}', call("f", a=1)),
    *(
        broken(f'{{"name": "f", {rest}}}')
        for rest in (
            '"a": 1',
            '"kwargs": {"a": 1}',
            '"arguments": {}, "a": 1',
            '"arguments": {"a": 1}, "args": {"a": 2}',
            '"input": [1]',
            '"args": "x"',
            '"arguments": {"a": 1, "a": 2}',
            '"name": "g"',
        )
    ),
]
"""Nothing is guessed about arguments: strings that follow each other are joined, other expressions are refused."""

LFM_TEXT = [
    Row("Just text.", ["Just text."]),
    Row("", []),
    Row(f"Let me see.\n{S}[f(a=1)]{E}", ["Let me see.\n", [call("f", a=1)]]),
    Row(f"A {S}[f(a=1)]{E} B {S}[f(a=2)]{E} C", ["A ", [call("f", a=1)], " B ", [call("f", a=2)], " C"]),
    Row(f"{S}[f(a=1)]{E}{S}[f(a=2)]{E}", [[call("f", a=1)], [call("f", a=2)]]),
    Row(f"{S}[f(a=1)]", [[call("f", a=1)]]),
    Row(f"{S}{S}[f(a=1)]{E}", [[call("f", a=1)]]),
    Row(f"stray {E}marker", ["stray marker"]),
    Row("a < b and <|tool_cal", ["a < b and <|tool_cal"]),
    Row("1 < 2 <|im <|tool_call_start|", ["1 < 2 <|im <|tool_call_start|"]),
    Row("[f(a=1)]", [[call("f", a=1)]]),
    Row(" \n[f(a=1), f(a=2)]\n", [[call("f", a=1), call("f", a=2)]]),
    Row("[Calendar.create_event(title='x')]", [[call("Calendar.create_event", title="x")]]),
    Row("[f(**{'a': 1})]", [[call("f", a=1)]]),
    Row("[f(a=+ 1)]", [[call("f", a=1)]]),
    Row("[f(a='it's')]", [[call("f", a="it's")]]),
    Row(
        "Sure: [f(a=1), get_weather(city='x')] done",
        ["Sure: [f(a=1), get_weather(city='x')] done"],
    ),
    Row("[ f( a = ']' ) ]", [[call("f", a="]")]]),
    Row("[g(a=1)]", ["[g(a=1)]"]),
    Row("[f(a=1), g(b=2)]", ["[f(a=1), g(b=2)]"]),
    Row("[f(1)]", ["[f(1)]"]),
    Row("[f(a=1", ["[f(a=1"]),
    Row("see [f](http://x.y/f) and [f()](url)", ["see [f](http://x.y/f) and [f()](url)"]),
    Row("[1, 2] and [ ] and [get", ["[1, 2] and [ ] and [get"]),
    Row("[[f(a=1)]]", ["[[f(a=1)]]"]),
    Row(f"[f(a=1)]{E}", [[call("f", a=1)]]),
    Row(f"raw {S}[f()]{E}", [f"raw {S}[f()]{E}"], None),
]

LFM_BROKEN = [
    broken("[f(a=0x_)]"),
    broken("[f(a=0b)]"),
    broken(f"[f(a=0x{'f' * 3100})]"),
    broken("nonsense"),
    broken("[f(a=)]"),
    broken("[f('positional')]"),
    broken("[f(a=1, a=2)]"),
    broken("[f(a=b)]"),
    broken("[f(a=1) f(a=2)]"),
    broken("[f(a=1)] trailing"),
    broken("[f(a=__import__('os').system('x'))]"),
    broken("[f(a=1+1)]"),
    broken("[f(a=nan)]"),
    broken("[f(a=1e999)]"),
    broken("[f(a=" + "[" * 200 + "]" * 200 + ")]"),
    broken('{"arguments": {}}'),
    broken('{"name": "f", "arguments": [1]}'),
    Row(f"{S}{E}", []),
    Row(f"{S}[]{E}", []),
    Row(f"{S} [ ] {E} none", [" none"]),
    broken("[f(a=1__" + "_" * 5000 + "x)]"),
    Row(f"{S}[f(a=1", ["[f(a=1", UNREADABLE]),
    Row(f'{S}[f(a="x)]{E} after', ['[f(a="x)]', UNREADABLE, " after"]),
    Row(f'{S}[f(a="x)]{E} b {S}[f(a="y")]{E}', ['[f(a="x)]', UNREADABLE, " b ", [call("f", a="y")]]),
    Row(f"{S}oops{S}[f(a=1)]{E}", ["oops", UNREADABLE, [call("f", a=1)]]),
    Row(f"{S}bad{E}{S}[f(a=1)]{E}", ["bad", UNREADABLE, [call("f", a=1)]]),
]

HERMES = [
    hermes('{"name": "f", "arguments": {"a": 1}}', call("f", a=1)),
    hermes('\n{"name": "f", "arguments": {"a": "x\\ny", "b": [true, null]}}\n', call("f", a="x\ny", b=[True, None])),
    hermes('{"arguments": {}, "name": "f"}', call("f")),
    hermes("{'name': 'f', 'arguments': {'a': True}}", call("f", a=True)),
    hermes('{"name": "f", "arguments": "{\\"a\\": 1}"}', call("f", a=1)),
    hermes('{"name": "f", "arguments": {"a": "</tool_call>"}}', call("f", a="</tool_call>")),
    hermes('{"name": "a.b-c", "arguments": {"x": "\\u00e9"}}', LeapFunctionCall("a.b-c", {"x": "é"})),
    Row(
        f'Hm.\n{H}\n{{"name": "f", "arguments": {{}}}}\n{K}\n{H}{{"name": "f", "arguments": {{"a": 2}}}}{K}',
        ["Hm.\n", [call("f")], [call("f", a=2)]],
        "hermes",
    ),
    Row(f'{H}{{"name": "f", "arguments": {{}}}}', [[call("f")]], "hermes"),
    Row("[f(a=1)] stays", ["[f(a=1)] stays"], "hermes"),
    Row("<tool_cal and </tool", ["<tool_cal and </tool"], "hermes"),
    broken_hermes('{"arguments": {}}'),
    broken_hermes('{"name": 5, "arguments": {}}'),
    broken_hermes('{"name": "f", "arguments": [1]}'),
    broken_hermes('{"name": "f", "arguments": {}'),
    broken_hermes('{"name": "f", "arguments": {}} extra'),
    broken_hermes("f(a=1)"),
    broken_hermes("[1]"),
    Row(f'{H}{{"name": "f"', ['{"name": "f"', UNREADABLE], "hermes"),
]

REPAIRED = [
    lfm("[f(a=1)]]", call("f", a=1)),
    lfm("[f(a=1)])", call("f", a=1)),
    lfm("[f(a=1))]", call("f", a=1)),
    lfm("[f(a=1)]\n]", call("f", a=1)),
    lfm("[[f(a=1)]]", call("f", a=1)),
    lfm("[[f(a=1)], [f(a=2)]]", call("f", a=1), call("f", a=2)),
    *(
        row
        for between in ("\n", "", " ", "; ", ", ", ";\n")
        for row in (
            lfm(f"[f(a=1)]{between}[f(a=2)]", call("f", a=1), call("f", a=2)),
            lfm(f"[f(a='x')]{between}[f(a='y')]", call("f", a="x"), call("f", a="y")),
            lfm(f"[f(a='it's')]{between}[f(a='a 'b' c')]", call("f", a="it's"), call("f", a="a 'b' c")),
            Row(f"[f(a='x')]{between}[f(a='y')]", [[call("f", a="x"), call("f", a="y")]]),
            Row(f"{S}[f(a='x')]{between}[f()]{E}{S}[f(a='y')]{E}", [[call("f", a="x"), call("f")], [call("f", a="y")]]),
        )
    ),
    lfm("f(a='x'); f(a='y')", call("f", a="x"), call("f", a="y")),
    lfm("[f(a='[f()][f()]')]", call("f", a="[f()][f()]")),
    lfm("f(a=1)\nf(a=2)\n", call("f", a=1), call("f", a=2)),
    lfm("[f(a=1)\n f(a=2)]", call("f", a=1), call("f", a=2)),
    lfm("```\n[f(a=1)]\n```", call("f", a=1)),
    lfm("```f(a=1)```", call("f", a=1)),
    *(
        kind(text, *calls)
        for kind in (lfm, hermes)
        for text, *calls in (
            ('{"name": "f", "arguments": {"a": 1}}}', call("f", a=1)),
            ('{"name": "f", "arguments": {"a": 1}}]', call("f", a=1)),
            ('[[{"name": "f", "arguments": {"a": 1}}]]', call("f", a=1)),
            ('\n```json\n{"name": "f", "arguments": {"a": "```"}}\n```\n', call("f", a="```")),
            ('{"tool_calls": [{"name": "f", "arguments": {}}, {"name": "f"}]}', call("f"), call("f")),
            ('{"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}', call("f")),
            ('[{"name": "f"}]\n[{"name": "f"}]', call("f"), call("f")),
        )
    ),
    broken("[f(a=1)]]]"),
    broken("[[[f(a=1)]]]"),
    broken("[f(a=1)]\nDone."),
    broken("```\n[f(a=1)]"),
    *(
        kind(text)
        for kind in (broken, broken_hermes)
        for text in (
            '{"tool_calls": []}',
            '{"tool_calls": "f"}',
            '{"tool_calls": [{"name": "f"}], "content": "x"}',
            '{"name": "f", "arguments": "hello"}',
            '```json\n{"name": "f"}\n``` and more',
        )
    ),
    broken("[f(a=1)), f(a=2)]"),
]
"""What is wrong with a list as a whole is repaired where only one list can be meant."""

TABLE = (
    REPAIRED + LFM_GOOD + LFM_TEXT + QUOTED + ECHOED + PARTLY_READABLE + EXPRESSIONS + IN_DOUBT + LFM_BROKEN + HERMES
)
