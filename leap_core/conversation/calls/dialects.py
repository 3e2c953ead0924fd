"""How families of models write calls beside LFM2 and Hermes: one table, chosen by the chat template.

The names are those of vLLM's tool parsers. The forms come from the models' published chat templates and examples.
Arguments are JSON between fixed texts (``Dialect``), XML elements whose values have no quotes (Qwen3-Coder, Seed-OSS,
MiniMax M2, GLM), or the Gemma models' object with bare keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial

from ...system.dataclass import dataclass
from ..messages import LeapFunctionCall
from .call_list import read_calls, unfenced
from .elements import CALL_ID, NAME, Elements
from .pythonic import PythonicSyntaxError, Reader, UntypedText, call_of_object, read_value

SPACE = re.compile(r"\s*")
FENCE = "\n`"


@dataclass(frozen=True)
class Dialect:
    """``signs``: what the chat template holds, all of them. ``start``, ``end``: the markers around calls; without an
    end the calls take the rest of the reply. A call is ``head`` with its ``{name}``, its arguments as JSON, ``tail``;
    both may have its number ``{index}`` or its ``{id}``. ``opening``, ``separator``, ``closing``: what is around and
    between the calls of one block; without a separator each call has a block of its own. ``read``: the calls of a
    block. ``is_json``: whether the model's own form is JSON; the others are read as JSON too. ``also``: what begins
    calls where a model leaves out the start marker; it is a part of the calls. ``elements``: how arguments are
    written that are no JSON. ``reasoning``: what begins and ends it, with other ends. ``dropped``: texts around the
    answer that are no part of it."""

    name: str
    signs: tuple[str, ...]
    start: str
    end: str
    head: str = '{{"name": "{name}", "arguments": '
    tail: str = "}"
    opening: str = ""
    separator: str | None = None
    closing: str = ""
    read: Callable[[str, Dialect], list[LeapFunctionCall]] | None = None
    is_json: bool = True
    also: str = ""
    elements: Elements | None = None
    reasoning: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def calls_of(self, body: str) -> list[LeapFunctionCall]:
        """The calls of the text between the markers. Raises ValueError."""
        return self.read(body, self) if self.read else read_calls(unfenced(body), repair=False)

    def around(self, name: str, number: str) -> tuple[str, str]:
        """What is before the arguments of a call, and after them. ``number``: what its number and its id are."""
        tail = self.tail.replace("{index}", number).replace("{id}", number)
        return self.head.format(name=name, index=number, id=number), tail

    def write(self, calls: Sequence[LeapFunctionCall]) -> str:
        """The text of calls, markers included."""
        if self.elements is not None:
            spelled = [[(key, *_element(value)) for key, value in call.arguments.items()] for call in calls]
            texts = self.elements.write(calls, spelled)
        else:
            around = [self.around(call.name, str(n)) for n, call in enumerate(calls)]
            texts = [
                f"{head}{_json(dict(call.arguments))}{tail}" for call, (head, tail) in zip(calls, around, strict=True)
            ]
        if self.separator is None:
            return "".join(f"{self.start}{text}{self.end}" for text in texts)
        return f"{self.start}{self.opening}{self.separator.join(texts)}{self.closing}{self.end}" if texts else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _element(value: object) -> tuple[str, bool]:
    """The text of a value without quotes, and whether it is a text."""
    return (value, True) if isinstance(value, str) else (_json(value), False)


def _elements(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """Calls of the dialect's elements; JSON calls are read too."""
    assert dialect.elements is not None
    if body.lstrip().startswith(("{", "[{")):
        return read_calls(unfenced(body), repair=False)
    return dialect.elements.read(body)


def _after_bracket(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """A list whose bracket the start marker has."""
    return _sequence(f"[{body}", dialect)


NAMESPACE = "]<]minimax[>["
TAG = re.compile(r"<(/?)([^<>\s]+)>")


def _nested(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """MiniMax M3: elements named as the arguments, with elements in them for objects and ``item`` for lists."""
    if body.lstrip().startswith(("{", "[{")):
        return read_calls(unfenced(body), repair=False)
    calls = list[LeapFunctionCall]()
    for part in body.split(f"{NAMESPACE}</invoke>"):
        head = re.match(rf"\s*{re.escape(NAMESPACE)}<invoke name=\"{NAME}\">", part)
        if head is None and part.strip():
            raise PythonicSyntaxError(0, f"expected {NAMESPACE}<invoke", in_string=True)
        if head is not None:
            value = _nested_value(part[head.end() :].split(NAMESPACE))
            calls.append(LeapFunctionCall(head["name"], value if isinstance(value, dict) else {}))
    return calls


def _nested_value(parts: Sequence[str]) -> object:
    """An object, a list or a text. ``parts``: what is between the namespaces."""
    stack: list[tuple[str, str, list[tuple[str, object]]]] = [("", parts[0], [])]
    for part in parts[1:]:
        tag = TAG.match(part)
        if tag is None or (tag[1] and (len(stack) < 2 or stack[-1][0] != tag[2])):
            raise PythonicSyntaxError(0, "expected an element", in_string=True)
        if not tag[1]:
            stack.append((tag[2], part[tag.end() :], []))
            continue
        name, text, children = stack.pop()
        stack[-1][2].append((name, _of_children(text, children)))
    if len(stack) > 1:
        raise PythonicSyntaxError(0, "an element is not closed", in_string=True)
    return _object(stack[0][2])


def _of_children(text: str, children: Sequence[tuple[str, object]]) -> object:
    if not children:
        return UntypedText(text)
    is_list = all(name == "item" for name, _ in children)
    return [value for _, value in children] if is_list else _object(children)


def _object(children: Sequence[tuple[str, object]]) -> dict[str, object]:
    value = dict(children)
    if len(value) < len(children):
        raise PythonicSyntaxError(0, "an argument is given twice")
    return value


def _framed(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """Calls of the form head, JSON, tail, with any white space between. What of the tail is missing is not needed."""
    head = re.compile(_pattern(dialect.head.replace("{{", "{").replace("}}", "}")))
    tail = re.compile(rf"\s*(?:```)?\s*(?:{_pattern(dialect.tail.strip(FENCE))})?")
    marks = (dialect.opening, dialect.separator or "", dialect.closing, "" if dialect.end else dialect.start)
    known = "|".join(re.escape(mark.strip()) for mark in marks if mark.strip())
    between = re.compile(rf"(?:\s{'|' if known else ''}{known})*")
    calls, place = list[LeapFunctionCall](), _after(between, body, 0)
    while place < len(body):
        match = head.match(body, place)
        if match is None:
            error = PythonicSyntaxError(place, f"expected {dialect.around('NAME', '0')[0]!r}")
            if calls and not dialect.end and dialect.start not in body[place:]:
                error.readable, error.text_after = calls, body[place:]
            raise error
        arguments, place = _json_at(body, match.end())
        calls.append(LeapFunctionCall(match["name"], arguments))
        place = _after(between, body, _after(tail, body, place))
    return calls


def _after(pattern: re.Pattern[str], text: str, place: int) -> int:
    """The place after what the pattern, which may be empty, finds at ``place``."""
    match = pattern.match(text, place)
    return match.end() if match else place


def _pattern(text: str) -> str:
    parts = re.split(r"(\{name\}|\{index\}|\{id\}|functions\.|\s+)", text)
    known = {"{name}": NAME, "{index}": r"\d*", "{id}": CALL_ID, "functions.": r"\s*(?:functions\.)?"}
    return r"\s*" + "".join(known.get(part) or (r"\s*" if part.isspace() else re.escape(part)) for part in parts)


def _json_at(text: str, place: int) -> tuple[dict[str, object], int]:
    reader = Reader(text, place)
    return reader.arguments(), reader.position


NAMED_CALL = re.compile(
    rf"{NAME}\s{{0,20}}(?:\[CALL_ID\]\s{{0,20}}[\w-]{{0,99}}\s{{0,20}})?(?:\[ARGS\])?(?=\s{{0,20}}\{{)"
)


def _sequence(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """JSON calls or lists of them, ``NAME[ARGS]{…}`` as in Mistral's version 11, or ``brave_search.call(query="…")``
    of Llama's built-in tools, one after the other. These dialects have no end marker: text may follow."""
    starts = "|".join(re.escape(mark) for mark in (dialect.start, dialect.also) if mark)
    between = re.compile(rf"(?:[\s;,]|{starts})*")
    calls, end = list[LeapFunctionCall](), 0
    while (place := _after(between, body, end)) < len(body):
        named = NAMED_CALL.match(body, place)
        reader = Reader(body, named.end() if named else place)
        try:
            found = [LeapFunctionCall(named["name"], reader.arguments())] if named else reader.some_calls()
        except PythonicSyntaxError as error:
            if calls and body[place] not in "{[" and dialect.start not in body[end:]:
                error.readable, error.text_after = calls, body[end:]
            raise
        calls += [LeapFunctionCall(call.name.removesuffix(".call"), call.arguments) for call in found]
        end = reader.position
    return calls


def _named_by_key(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``[{"NAME": {…}}, …]``; other JSON calls are read too."""
    value = read_value(unfenced(body))
    items = value if isinstance(value, list) else [value]
    keyed = [each for each in items if isinstance(each, dict) and len(each) == 1]
    if len(keyed) < len(items):
        return read_calls(unfenced(body), repair=False)
    return [call_of_object({"name": name, "arguments": given}) for each in keyed for name, given in each.items()]


def _pythonic(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``f(a="x")``, one or more, or lists of them."""
    return read_calls(body)


def _recipient(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``NAME\\n{…}``; the arguments of ``python`` may be its code alone."""
    name, _, code = body.partition("\n")
    if name == "python" and not code.lstrip().startswith("{"):
        return [LeapFunctionCall(name, {"code": code})]
    return _framed(body, dialect)


XML_CALL = re.compile(rf"\s*<(?:function=|invoke name=)[\"']?{NAME}[\"']?>\s*")
XML_PARAMETER = re.compile(r"<parameter(?:=| name=)[\"']?([^>\n\"']+)[\"']?>\n?")
XML_CLOSING, XML_NEXT = "</parameter>", re.compile(r"<parameter[= ]|</function>|</invoke>")
XML_END = re.compile(r"(?:</function>|</invoke>|(?=\s*\Z))\s*")
GLM_CALL = re.compile(rf"\s*{NAME}\s*(?=<arg_key>|\Z)")
GLM_KEY = re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>")
GLM_CLOSING, GLM_NEXT = "</arg_value>", re.compile(r"<arg_key>")


def _xml(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``<function=NAME><parameter=KEY>\\nVALUE\\n</parameter></function>``, or MiniMax's ``<invoke name="NAME">`` and
    ``<parameter name="KEY">``, one or more; JSON calls are read too."""
    match = XML_CALL.match(body)
    if match is None:
        return read_calls(unfenced(body), repair=False)
    calls, place, last = list[LeapFunctionCall](), 0, body.rfind(XML_CLOSING)
    while match is not None:
        arguments, place = dict[str, object](), match.end()
        while (parameter := XML_PARAMETER.match(body, place)) is not None:
            value, place = _up_to(body, parameter.end(), XML_CLOSING, last, XML_NEXT)
            framed = (
                dialect.name == "qwen3_coder" or body[parameter.end() - 1] == "\n"
            )  # a line feed before the value has its pair after it
            _add(arguments, parameter[1].strip(), value.removesuffix("\n") if framed else value, place)
        end = XML_END.match(body, place)
        if end is None:
            raise PythonicSyntaxError(place, "expected a parameter, or the end of the call")
        calls.append(LeapFunctionCall(match["name"], arguments))
        place = end.end()
        match = XML_CALL.match(body, place)
    if place < len(body):
        error = PythonicSyntaxError(place, "expected the end of the calls")
        if not body.startswith("<", place):
            error.readable, error.text_after = calls, body[place:]
        raise error
    return calls


def _add(arguments: dict[str, object], key: str, value: str, place: int) -> None:
    if key in arguments:
        raise PythonicSyntaxError(place, f"{key!r} is given twice")
    arguments[key] = UntypedText(value)


def _glm(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…``; JSON calls are read too."""
    match = GLM_CALL.match(body)
    if match is None:
        return read_calls(unfenced(body), repair=False)
    arguments, place, last = dict[str, object](), match.end(), body.rfind(GLM_CLOSING)
    while (key := GLM_KEY.match(body, place)) is not None:
        value, place = _up_to(body, key.end(), GLM_CLOSING, last, GLM_NEXT)
        _add(arguments, key[1].strip(), value, place)
    if place < len(body):
        raise PythonicSyntaxError(place, "expected <arg_key>")
    return [LeapFunctionCall(match["name"], arguments)]


def _up_to(text: str, start: int, end: str, last: int, following: re.Pattern[str]) -> tuple[str, int]:
    """The text from ``start`` to ``end``, and the place of what follows. ``last``: where the last ``end`` is; after it
    the text ends before the ``following`` element."""
    if last >= start:
        place = text.index(end, start)
        return text[start:place], _after(SPACE, text, place + len(end))
    match = following.search(text, start)
    if match is None:
        raise PythonicSyntaxError(len(text), f"expected {end}", in_string=True)
    return text[start : match.start()], match.start()


GEMMA_CALL = re.compile(rf"\s*call:\s*{NAME}\s*(?=\{{)")
GEMMA_QUOTES = ("<escape>", '<|"|>')


def _gemma(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``call:NAME{key:<escape>text<escape>,n:5}``: keys are bare, and texts are between two quote tokens."""
    match = GEMMA_CALL.match(body)
    if match is None:
        raise PythonicSyntaxError(0, "expected call:NAME{")
    quote = next((quote for quote in GEMMA_QUOTES if quote in body), GEMMA_QUOTES[0])
    pieces = body[match.end() :].split(quote)
    if len(pieces) % 2 == 0:
        raise PythonicSyntaxError(len(body), f"expected {quote}", in_string=True)
    reader = Reader("".join(json.dumps(piece) if n % 2 else piece for n, piece in enumerate(pieces)))
    values = reader.arguments()
    reader.expect_end()
    texts = {key: UntypedText(each) if type(each) is str else each for key, each in values.items()}
    return [LeapFunctionCall(match["name"], texts)]


CHANNELS = Dialect("gpt_oss", ("<|channel|>", "<|message|>"), "\udc00", "\udc01", is_json=False)
"""gpt-oss: ``inference.template.channels`` puts these marks, which no text holds, around a call."""
RECIPIENTS = Dialect("functionary_v32", (">>>all",), "\udc00", "\udc01", "{name}\n", "", read=_recipient, is_json=False)
"""functionary 3.2: ``>>>all\\nTEXT`` and ``>>>NAME\\n{…}``, with the same marks around a call."""

READINGS = {"objects": _sequence, "framed": _framed, "elements": _elements, "pythonic": _pythonic}
"""How the calls of a format that is learned are read."""

KIMI, DEEPSEEK = "<|tool_call_begin|>", "<｜tool▁call▁begin｜>"
DEEPSEEK_MARKS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_framed_calls = partial(Dialect, read=_framed)
_list_of_calls = partial(Dialect, opening="[", separator=", ", closing="]")
_xml_calls = partial(Dialect, read=_xml, is_json=False)
_element_calls = partial(Dialect, read=_elements, is_json=False)
GIGACHAT = "<|message_sep|>\n\nfunction call<|role_sep|>"

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        CHANNELS,
        RECIPIENTS,
        _framed_calls(
            "kimi_k2",
            ("<|tool_calls_section_begin|>",),
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            KIMI + "functions.{name}:{index}<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
            separator="",
            also=KIMI,
        ),
        _framed_calls(
            "deepseek_v3",
            ("<｜tool▁calls▁begin｜>", "```json"),
            *DEEPSEEK_MARKS,
            DEEPSEEK + "function<｜tool▁sep｜>{name}\n```json\n",
            "\n```<｜tool▁call▁end｜>",
            separator="\n",
            also=DEEPSEEK,
        ),
        _framed_calls(
            "deepseek_v31",
            ("<｜tool▁calls▁begin｜>",),
            *DEEPSEEK_MARKS,
            DEEPSEEK + "{name}<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            separator="",
            also=DEEPSEEK,
        ),
        _list_of_calls("mistral", ("[TOOL_CALLS]",), "[TOOL_CALLS]", "", read=_sequence),
        _list_of_calls("granite", ("<|tool_call|>",), "<|tool_call|>", "", read=_sequence, also="<tool_call>"),
        _list_of_calls("nemotron", ("<TOOLCALL>",), "<TOOLCALL>", "</TOOLCALL>"),
        _list_of_calls(
            *("apertus", ("<|tools_prefix|>",), "<|tools_prefix|>", "<|tools_suffix|>"),
            head='{{"{name}": ',
            read=_named_by_key,
        ),
        _list_of_calls(
            *("command_r7b", ("<|START_ACTION|>",), "<|START_ACTION|>", "<|END_ACTION|>"),
            head='{{"tool_call_id": "{index}", "tool_name": "{name}", "parameters": ',
        ),
        _xml_calls(
            *("minimax_m2", ("<minimax:tool_call>",), "<minimax:tool_call>", "</minimax:tool_call>"),
            also="<invoke name=",
        ),
        _xml_calls(
            *("seed_oss", ("<seed:tool_call>",), "<seed:tool_call>", "</seed:tool_call>"),
            also="<function=",
        ),
        _xml_calls("qwen3_coder", ("<tool_call>", "<parameter="), "<tool_call>", "</tool_call>", also="<function="),
        Dialect("glm45", ("<tool_call>", "<arg_key>"), "<tool_call>", "</tool_call>", read=_glm, is_json=False),
        Dialect(
            *("functiongemma", ("<start_function_call>",), "<start_function_call>", "<end_function_call>"),
            *("call:{name}", ""),
            read=_gemma,
            is_json=False,
        ),
        Dialect(
            *("gemma4", ("<|tool_call>",), "<|tool_call>", "<tool_call|>", "call:{name}", ""),
            read=_gemma,
            is_json=False,
            reasoning=("<|channel>thought", "<channel|>"),
            dropped=("<|channel>",),
        ),
        *(
            _element_calls(
                *(name, ("｜DSML｜", sign), f"<｜DSML｜{section}>", f"</｜DSML｜{section}>"),
                opening="\n",
                closing="\n",
                separator="\n",
                also="<｜DSML｜invoke name=",
                elements=Elements(
                    '<｜DSML｜invoke name="{name}">\n',
                    '<｜DSML｜parameter name="{key}" string="{type}">',
                    "</｜DSML｜parameter>\n",
                    "</｜DSML｜invoke>",
                    ("true",),
                ),
            )
            for name, sign, section in (
                ("deepseek_v32", "function_calls", "function_calls"),
                ("deepseek_v4", "tool_calls", "tool_calls"),
            )
        ),
        _element_calls(
            *("minicpm5", ("<function name=", "<param name="), "<function name=", "</function>"),
            elements=Elements('"{name}">', '<param name="{key}">', "</param>"),
        ),
        _element_calls(
            *("kimi_k3", ("open_tag(", "<|sep|>"), "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
            separator="",
            also="<|open|>call tool=",
            elements=Elements(
                '<|open|>call tool="{name}" index="{index}"<|sep|>',
                '<|open|>argument key="{key}" type="{type}"<|sep|>',
                "<|close|>argument<|sep|>",
                "<|close|>call<|sep|>",
                ("string",),
            ),
            reasoning=("<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>"),
            dropped=(
                *("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
                "<|close|>think<|sep|>",
            ),
        ),
        Dialect(
            *("minimax_m3", (NAMESPACE,), f"{NAMESPACE}<tool_call>", f"{NAMESPACE}</tool_call>"),
            read=_nested,
            is_json=False,
            reasoning=("<mm:think>", "</mm:think>"),
            dropped=("</mm:think>",),
        ),
        _list_of_calls(
            *("apriel", ("<tool_calls>[",), "<tool_calls>", "</tool_calls>"),
            reasoning=("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
            dropped=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"),
        ),
        Dialect("gigachat31", ("<|function_call|>",), "<|function_call|>", "", read=_sequence),
        Dialect("gigachat3", ("function call", "add_tokens.message_sep"), GIGACHAT, "", read=_sequence),
        _list_of_calls(
            *("command_r", ("Action:", "```json"), "Action:\n```json", "```"),
            head='{{"tool_name": "{name}", "parameters": ',
        ),
        Dialect("functools", ("functools[",), "functools[", "", separator=", ", closing="]", read=_after_bracket),
        _framed_calls("functionary", ("<function=",), "<function=", "</function>", "{name}>", ""),
        Dialect(
            *("llama3_json", ("<|python_tag|>",), "<|python_tag|>", ""),
            head='{{"name": "{name}", "parameters": ',
            separator="; ",
            read=_sequence,
        ),
    )
}
"""In the order in which a template is looked at."""


def dialect_of_template(template: str) -> str | None:
    """The name of the dialect in which a chat template has calls written; None for one that the table does not hold."""
    return next((name for name, each in DIALECTS.items() if all(sign in template for sign in each.signs)), None)
