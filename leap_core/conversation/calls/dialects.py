"""How families of models write calls beside LFM2 and Hermes: one table, chosen by the chat template.

The names are those of vLLM's tool parsers. The forms come from the models' published chat templates and examples.
Arguments are JSON between fixed texts (``Dialect``), XML elements whose values have no quotes (Qwen3-Coder, GLM), or
FunctionGemma's object with bare keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...system.dataclass import dataclass
from ..messages import LeapFunctionCall
from .call_list import read_calls, unfenced
from .pythonic import PythonicSyntaxError, UntypedText, call_of_object

NAME = r"(?P<name>[\w.:/-]+)"
SPACE = re.compile(r"\s*")
SPACE_OR_SEMICOLON = re.compile(r"[\s;]*")


@dataclass(frozen=True)
class Dialect:
    """``signs``: what the chat template holds, all of them. ``start``, ``end``: the markers around calls; without an
    end the calls take the rest of the reply. A call is ``head`` with its ``{name}``, its arguments as JSON, ``tail``.
    ``opening``, ``separator``, ``closing``: what is around and between the calls of one block; without a separator
    each call has a block of its own. ``read``: the calls of a block. ``is_json``: whether the model's own form is JSON;
    the others are read as JSON too."""

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

    def calls_of(self, body: str) -> list[LeapFunctionCall]:
        """The calls of the text between the markers. Raises ValueError."""
        return self.read(body, self) if self.read else read_calls(unfenced(body), repair=False)

    def write(self, calls: Sequence[LeapFunctionCall]) -> str:
        """The text of calls, markers included."""
        texts = [
            self.head.format(name=call.name, index=n) + json.dumps(dict(call.arguments), ensure_ascii=False) + self.tail
            for n, call in enumerate(calls)
        ]
        if self.separator is None:
            return "".join(f"{self.start}{text}{self.end}" for text in texts)
        return f"{self.start}{self.opening}{self.separator.join(texts)}{self.closing}{self.end}" if texts else ""


def _framed(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """Calls of the form head, JSON, tail, with any white space between."""
    head = re.compile(_pattern(dialect.head))
    tail = re.compile(_pattern(dialect.tail))
    calls, place = [], _after(SPACE, body, 0)
    while place < len(body):
        match = head.match(body, place)
        if match is None:
            raise PythonicSyntaxError(place, f"expected {dialect.head.format(name='NAME', index=0)!r}")
        arguments, place = _json_at(body, match.end())
        calls.append(LeapFunctionCall(match["name"], arguments))
        if (end := tail.match(body, place)) is not None:
            place = end.end()
        place = _after(SPACE, body, place)
    return calls


def _after(pattern: re.Pattern[str], text: str, place: int) -> int:
    """The place after what the pattern, which may be empty, finds at ``place``."""
    match = pattern.match(text, place)
    return match.end() if match else place


def _pattern(text: str) -> str:
    parts = re.split(r"(\{name\}|\{index\}|\s+)", text)
    known = {"{name}": NAME, "{index}": r"\d*"}
    return r"\s*" + "".join(known.get(part) or (r"\s*" if part.isspace() else re.escape(part)) for part in parts)


def _json_at(text: str, place: int) -> tuple[dict[str, object], int]:
    place = _after(SPACE, text, place)
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, place)
    except (ValueError, RecursionError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else place
        in_string = isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string")
        raise PythonicSyntaxError(at, "the arguments are no JSON object", in_string=in_string) from None
    if not isinstance(value, dict):
        raise PythonicSyntaxError(place, "the arguments are no JSON object")
    return value, end


MISTRAL_CALL = re.compile(
    rf"\s{{0,20}}{NAME}\s{{0,20}}(?:\[CALL_ID\]\s{{0,20}}[\w-]{{0,99}}\s{{0,20}})?(?:\[ARGS\])?(?=\s{{0,20}}\{{)"
)


def _mistral(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``[{"name": …, "arguments": …}]``, or since version 11 ``NAME[ARGS]{…}`` after each start marker."""
    calls: list[LeapFunctionCall] = []
    for block in filter(str.strip, body.split(dialect.start)):
        match = MISTRAL_CALL.match(block)
        if match is None:
            calls += read_calls(block, repair=False)
            continue
        arguments, end = _json_at(block, match.end())
        if block[end:].strip():
            raise PythonicSyntaxError(end, "expected the end of the call")
        calls.append(LeapFunctionCall(match["name"], arguments))
    return calls


PYTHON_CALL = re.compile(r"\s*[\w.]+\.call\(")


def _llama(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """JSON calls, several with semicolons between, or ``brave_search.call(query="…")`` of the built-in tools."""
    if PYTHON_CALL.match(body):
        return [LeapFunctionCall(call.name.removesuffix(".call"), call.arguments) for call in read_calls(body)]
    calls, place = [], _after(SPACE_OR_SEMICOLON, body, 0)
    while place < len(body):
        value, place = _json_at(body, place)
        calls.append(call_of_object(value, place))
        place = _after(SPACE_OR_SEMICOLON, body, place)
    return calls


QWEN_CALL = re.compile(rf"\s*<function={NAME}>\s*")
QWEN_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?")
QWEN_CLOSING, QWEN_NEXT = "</parameter>", re.compile(r"<parameter=|</function>")
QWEN_END = re.compile(r"(?:</function>)?\s*\Z")
GLM_CALL = re.compile(rf"\s*{NAME}\s*(?=<arg_key>|\Z)")
GLM_KEY = re.compile(r"<arg_key>([^<]*)</arg_key>\s*<arg_value>")
GLM_CLOSING, GLM_NEXT = "</arg_value>", re.compile(r"<arg_key>")


def _qwen(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``<function=NAME><parameter=KEY>\\nVALUE\\n</parameter></function>``; JSON calls are read too."""
    match = QWEN_CALL.match(body)
    if match is None:
        return read_calls(unfenced(body), repair=False)
    arguments, place, last = {}, match.end(), body.rfind(QWEN_CLOSING)
    while (parameter := QWEN_PARAMETER.match(body, place)) is not None:
        value, place = _up_to(body, parameter.end(), QWEN_CLOSING, last, QWEN_NEXT)
        arguments[parameter[1].strip()] = UntypedText(value.removesuffix("\n"))
    if not QWEN_END.match(body, place):
        raise PythonicSyntaxError(place, "expected <parameter=NAME>")
    return [LeapFunctionCall(match["name"], arguments)]


def _glm(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…``; JSON calls are read too."""
    match = GLM_CALL.match(body)
    if match is None:
        return read_calls(unfenced(body), repair=False)
    arguments, place, last = {}, match.end(), body.rfind(GLM_CLOSING)
    while (key := GLM_KEY.match(body, place)) is not None:
        value, place = _up_to(body, key.end(), GLM_CLOSING, last, GLM_NEXT)
        arguments[key[1].strip()] = UntypedText(value)
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
BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w.-]*)(\s*:)")


def _gemma(body: str, dialect: Dialect) -> list[LeapFunctionCall]:
    """``call:NAME{key:<escape>text<escape>,n:5}``: keys are bare, and texts are between two quote tokens."""
    match = GEMMA_CALL.match(body)
    if match is None:
        raise PythonicSyntaxError(0, "expected call:NAME{")
    quote = next((quote for quote in GEMMA_QUOTES if quote in body), GEMMA_QUOTES[0])
    with suppress(PythonicSyntaxError):  # as a grammar has it written
        arguments, end = _json_at(body, match.end())
        if not body[end:].strip():
            return [LeapFunctionCall(match["name"], arguments)]
    pieces = body[match.end() :].split(quote)
    if len(pieces) % 2 == 0:
        raise PythonicSyntaxError(len(body), f"expected {quote}", in_string=True)
    text = "".join(json.dumps(piece) if n % 2 else BARE_KEY.sub(r'\1"\2"\3', piece) for n, piece in enumerate(pieces))
    arguments, end = _json_at(text, 0)
    if text[end:].strip():
        raise PythonicSyntaxError(len(body), "expected the end of the call")
    return [LeapFunctionCall(match["name"], arguments)]


CHANNELS = Dialect("gpt_oss", ("<|channel|>", "<|constrain|>"), "\udc00", "\udc01", is_json=False)
"""gpt-oss: ``inference.template.channels`` puts these marks, which no text holds, around a call."""

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        CHANNELS,
        Dialect(
            "kimi_k2",
            ("<|tool_calls_section_begin|>",),
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            head="<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
            tail="<|tool_call_end|>",
            separator="",
            read=_framed,
        ),
        Dialect(
            "deepseek_v3",
            ("<｜tool▁calls▁begin｜>", "```json"),
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            head="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
            tail="\n```<｜tool▁call▁end｜>",
            separator="\n",
            read=_framed,
        ),
        Dialect(
            "deepseek_v31",
            ("<｜tool▁calls▁begin｜>",),
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            head="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
            tail="<｜tool▁call▁end｜>",
            separator="",
            read=_framed,
        ),
        Dialect(
            "mistral",
            ("[TOOL_CALLS]",),
            "[TOOL_CALLS]",
            "",
            opening="[",
            separator=", ",
            closing="]",
            read=_mistral,
        ),
        Dialect("granite", ("<|tool_call|>",), "<|tool_call|>", "", opening="[", separator=", ", closing="]"),
        Dialect(
            "qwen3_coder", ("<tool_call>", "<parameter="), "<tool_call>", "</tool_call>", read=_qwen, is_json=False
        ),
        Dialect("glm45", ("<tool_call>", "<arg_key>"), "<tool_call>", "</tool_call>", read=_glm, is_json=False),
        Dialect(
            "functiongemma",
            ("<start_function_call>",),
            "<start_function_call>",
            "<end_function_call>",
            head="call:{name}",
            tail="",
            read=_gemma,
            is_json=False,
        ),
        Dialect(
            "gemma4",
            ("<|tool_call>",),
            "<|tool_call>",
            "<tool_call|>",
            head="call:{name}",
            tail="",
            read=_gemma,
            is_json=False,
        ),
        Dialect("functionary", ("<function=",), "<function=", "</function>", head="{name}>", tail="", read=_framed),
        Dialect(
            "llama3_json",
            ("<|python_tag|>",),
            "<|python_tag|>",
            "",
            head='{{"name": "{name}", "parameters": ',
            separator="; ",
            read=_llama,
        ),
    )
}
"""In the order in which a template is looked at."""


def dialect_of_template(template: str) -> str | None:
    """The name of the dialect in which a chat template has calls written; None for one that the table does not hold."""
    return next((name for name, each in DIALECTS.items() if all(sign in template for sign in each.signs)), None)
