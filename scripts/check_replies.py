#!/usr/bin/env python3
"""Read llama.cpp's own cases of whole replies as leap reads them, and count.

    python scripts/check_replies.py LLAMA_CPP_DIRECTORY [--least N] [--learned] [--show]

LLAMA_CPP_DIRECTORY is a checkout with tests/test-chat.cpp and models/templates, as in the source distribution of
llama-cpp-python (vendor/llama.cpp). Each case is a reply, the functions that were declared, and what is expected of it.
The reply is read whole, by characters and in random pieces, with markers that are tokens. The exit code is 1 where
fewer than N cases are read as expected, or pieces give something else than the whole. ``--learned`` reads with the
format that is learned of a template wherever one is, also where the table has a dialect.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.calls.parsers import DialectParser
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Complete, GenerationFinishReason
from leap_core.errors import GenerationStats, LeapError
from leap_core.inference.template.chat_template import ChatTemplate
from leap_core.inference.template.learning import Probe, format_of_template
from leap_core.inference.template.reply import ReplyBuilder
from leap_core.schemas.grammar_matcher import REASONING_TAGS

TOKEN = re.compile(
    r'R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\])*)"|//[^\n]*|/\*.*?\*/'
    r"|(?P<name>[A-Za-z_][\w:]*)|(?P<number>\d[\d.]*)|\s+|(?P<sign>.)",
    re.DOTALL,
)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
OTHER_TESTS = ("is_partial", "continue_final", "json_schema", "add_generation")
"""Settings of cases that are about something else than a whole reply."""
SPECIAL = re.compile(
    r"<\|[^|>\s]+\|>|<｜[^｜>\n]+｜>|<\|[\w\"]+>|<[\w\"]+\|>|<\|\"\|>|\[/?[A-Z_]{4,}\]|</?(?:think|tool_calls?|arg_key|arg_value)>"
    r"|</?seed:[a-z_]+>|</?minimax:tool_call>|</?TOOLCALL>|</?start_function_call>|<end_function_call>|<escape>"
)
"""What is a token of its own in the vocabularies of the models with these templates."""
PLAIN = re.compile(r"</?think>|</?tool_calls?>|</?arg_|</?TOOLCALL>")
"""Of these the tokens that are no control tokens."""
LOOPS = {
    "template_path": ("LFM2-8B-A1B", "LFM2.5-Instruct"),
    "path": ("MiMo-VL", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen-Qwen2.5-7B-Instruct"),
}
"""The templates of cases that are in a loop, by its variable."""
STATS = GenerationStats(1, 1, 2, 0.0)


@dataclass
class Token:
    kind: str
    text: str
    line: int


@dataclass
class Case:
    """``settings``: by name what is set for the case, other than the input, the functions and the expectation."""

    line: int
    template: str
    reply: str = ""
    functions: list[Any] = field(default_factory=list)
    settings: dict[str, list[Any]] = field(default_factory=dict)
    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class Message:
    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)


def unescaped(text: str) -> str:
    """A C++ string's text; bytes that are written as such are UTF-8."""
    parts, end = list[bytes](), 0
    for match in ESCAPE.finditer(text):
        byte, long, char = match.groups()
        parts.append(text[end : match.start()].encode())
        code = bytes([int(byte, 16)]) if byte else chr(int(long, 16)).encode() if long else b""
        parts.append(code or CHARACTERS.get(char, char).encode())
        end = match.end()
    return b"".join([*parts, text[end:].encode()]).decode("utf-8", "replace")


def tokens_of(source: str) -> list[Token]:
    found, line = list[Token](), 1
    for match in TOKEN.finditer(source):
        kind = next((name for name in ("raw", "text", "name", "number", "sign") if match[name] is not None), "")
        if kind:
            text = unescaped(match[kind]) if kind == "text" else match[kind]
            found.append(Token("text" if kind == "raw" else kind, text, line))
        line += match[0].count("\n")
    return found


def message(content: str = "", reasoning: str = "", name: str = "", given: str = "", *_rest: Any) -> Message:
    return Message(content, reasoning, [(name, given)] if name else [])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "std::string": lambda text: text,
    "simple_assist_msg": message,
    "message_with_tool_calls": lambda name, given: message("", "", name, given),
    "message_with_tool_calls_and_reasoning": lambda name, given, thought: message("", thought, name, given),
    "message_with_reasoning_content_and_multiple_tool_calls": lambda thought, content, calls: Message(
        content, thought, [tuple(call[:2]) for call in calls]
    ),
    "message_with_content_and_tool_call": lambda content, name, given: message(content, "", name, given),
    "message_with_reasoning_and_tool_call": lambda thought, name, given: message("", thought, name, given),
}
TYPES = ("common_chat_msg", "std::string")
WORDS = {"true": True, "false": False, "nullptr": None}


class Source:
    """The part of C++ that the cases are written in: literals, lists in braces, names and calls of helpers."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens_of(text)
        self.at = 0
        self.known: dict[str, Any] = {}

    def sees(self, *texts: str) -> bool:
        ahead = self.tokens[self.at : self.at + len(texts)]
        return [token.text for token in ahead] == list(texts) and all(token.kind != "text" for token in ahead)

    def passes(self, text: str) -> bool:
        is_next = self.sees(text)
        self.at += is_next
        return is_next

    def value(self) -> Any:
        value = self._term()
        while self.sees("+") or self.tokens[self.at].kind == "text":
            self.passes("+")
            value += self._term()
        return value

    def values(self, end: str) -> list[Any]:
        found = []
        while not self.passes(end):
            found.append(self.value())
            self.passes(",")
        return found

    def _term(self) -> Any:
        token = self.tokens[self.at]
        self.at += 1
        if token.kind == "text":
            return token.text
        if token.kind == "number":
            return float(token.text)
        if token.text == "{":
            return self.values("}")
        if token.kind != "name":
            raise ValueError(f"line {token.line}: {token.text!r} is no value")
        if self.passes("("):
            given = self.values(")")
            return FUNCTIONS[token.text](*given) if token.text in FUNCTIONS else token.text
        return self.known.get(token.text, WORDS.get(token.text, token.text))

    def cases(self) -> Iterator[Case]:
        template: Any = ""
        while self.at < len(self.tokens) - 4:
            name = self.tokens[self.at + 1].text
            kind = self.tokens[self.at].text
            if self.sees("common_chat_tool", name, "{") or (kind in TYPES and self.sees(kind, name, "=")):
                self.at += 2 + self.tokens[self.at + 2 :][0].text.count("=")
                self._remember(name)
            elif self.tokens[self.at].text in ("tst", "tst2") and self.tokens[self.at + 2].text == "peg_tester":
                self.at += 4
                template = self.value()
            elif self.tokens[self.at].text in ("tst", "tst2") and self.tokens[self.at + 1].text == ".":
                yield from self._case(str(template))
            else:
                self.at += 1

    def _remember(self, name: str) -> None:
        start = self.at
        try:
            self.known[name] = self.value()
        except (ValueError, TypeError, IndexError):
            self.at = start + 1

    def _case(self, template: str) -> Iterator[Case]:
        case, start = Case(self.tokens[self.at].line, template), self.at
        self.at += 1
        try:
            while self.passes("."):
                name = self.tokens[self.at].text
                self.at += 2
                given = self.values(")")
                if name == "expect":
                    case.content, case.reasoning, case.calls = vars(given[0]).values()
                elif name in ("expect_content", "expect_reasoning"):
                    setattr(case, name.removeprefix("expect_"), given[0])
                elif name == "expect_tool_calls":
                    case.calls = [tuple(call[:2]) for call in given[0]]
                elif name == "tools":
                    case.functions = given[0]
                elif name == "test":
                    case.reply = given[0]
                else:
                    case.settings[name] = given
        except (ValueError, TypeError, IndexError, AttributeError):
            self.at = start + 1
            return
        is_other = any(name.startswith(OTHER_TESTS) for name in case.settings)
        is_raw = "COMMON_REASONING_FORMAT_NONE" in case.settings.get("reasoning_format", ())
        has_expectation = bool(case.content or case.reasoning or case.calls)
        if case.reply and has_expectation and not is_other and not is_raw:
            yield case


class Vocabulary:
    """A vocabulary of special tokens, and of whatever pieces a reply is cut into."""

    def __init__(self, special: Sequence[str]) -> None:
        self.pieces = list(special)
        self.special_tokens = {text: number for number, text in enumerate(special)}
        self.control_tokens = frozenset(n for text, n in self.special_tokens.items() if not PLAIN.search(text))

    def piece(self, token: int) -> bytes:
        return self.pieces[token].encode()

    def cut(self, reply: str, longest: int, draw: random.Random) -> Iterator[int]:
        """The tokens of a reply: pieces of up to ``longest`` characters between special ones."""
        known = "|".join(map(re.escape, sorted(self.special_tokens, key=len, reverse=True)))
        for part in re.split(f"({known})", reply) if known else [reply]:
            if part in self.special_tokens:
                yield self.special_tokens[part]
                continue
            while part:
                size = draw.randint(1, longest)
                self.pieces.append(part[:size])
                part = part[size:]
                yield len(self.pieces) - 1


Reading = tuple[str, str, list[tuple[str, Any]], tuple[str, ...]]


def declared(functions: Sequence[Sequence[str]]) -> list[LeapFunction]:
    found = []
    for name, about, parameters, *_rest in functions:
        schema = json.loads(parameters) if parameters else {"type": "object", "properties": {}}
        function = {"name": name, "description": about, "parameters": schema}
        found.append(LeapFunction.from_openai({"type": "function", "function": function}))
    return found


class Reader:
    """Reads the replies of a model with this template and these special tokens."""

    def __init__(self, source: str, special: Sequence[str], *, learned: bool) -> None:
        self.special = special
        self.template = ChatTemplate(source, bos_text="", eos_text="", special_texts=special)
        form = format_of_template(self.template, source, special)
        self.parser, self.is_known = form.parser, form.is_known
        probe = Probe(self.template, special) if learned else None
        if probe is not None and (dialect := probe.learn()) is not None:
            self.parser = DialectParser(dialect)
            self.parser.reasoning, self.parser.dropped = probe.reasoning()

    def opens_reasoning(self, functions: Sequence[LeapFunction], thinking: bool) -> bool:
        """Whether the prompt ends within reasoning."""
        question = [ChatMessage("user", "Hey there!")]
        try:
            pieces = self.template.render(question, functions, parser=self.parser, enable_thinking=thinking)
        except LeapError:
            return False
        starts = (*(start for start, _ in REASONING_TAGS), *self.parser.reasoning[:1])
        return str(pieces[-1]).rstrip().endswith(starts)

    def read(self, case: Case, longest: int, seed: int) -> Reading:
        thinking = case.settings.get("enable_thinking") != [False]
        functions = declared(case.functions)
        vocabulary = Vocabulary(self.special)
        options = GenerationOptions(enable_thinking=thinking)
        inside = self.opens_reasoning(functions, thinking)
        builder = ReplyBuilder(
            cast("Any", vocabulary), options, self.parser, functions=functions, inside_reasoning=inside
        )
        for token in vocabulary.cut(case.reply, longest, random.Random(seed)):
            builder.feed(token)
        end = builder.finish(GenerationFinishReason.STOP, STATS)[-1]
        assert isinstance(end, Complete)
        said = end.full_message
        calls = [(call.name, dict(call.arguments)) for call in said.function_calls or ()]
        return said.text.strip(), (said.reasoning_content or "").strip(), calls, end.warnings


def expected(case: Case) -> tuple[str, str, list[tuple[str, Any]]]:
    calls = [(name, json.loads(given or "{}") if isinstance(given, str) else given) for name, given in case.calls]
    return (case.content or "").strip(), (case.reasoning or "").strip(), calls


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("directory", type=Path)
    arguments.add_argument("--least", type=int, default=0, help="cases that have to be read as expected")
    arguments.add_argument("--learned", action="store_true", help="read with what is learned of each template")
    arguments.add_argument("--show", action="store_true", help="print each case that is read otherwise")
    given = arguments.parse_args()
    templates = given.directory / "models" / "templates"
    readers: dict[tuple[str, tuple[str, ...]], Reader] = {}
    right = wrong = silent = differ = 0
    for case in Source((given.directory / "tests" / "test-chat.cpp").read_text("utf-8")).cases():
        for name in LOOPS.get(case.template, (Path(case.template).stem,)):
            source = (templates / f"{name}.jinja").read_text("utf-8")
            special = tuple(sorted({*SPECIAL.findall(source), *SPECIAL.findall(case.reply)}))
            if (source, special) not in readers:
                readers[source, special] = Reader(source, special, learned=given.learned)
            reader = readers[source, special]
            whole = reader.read(case, 1_000_000, 0)
            differ += sum(reader.read(case, longest, longest) != whole for longest in (1, 3, 9))
            if whole[:3] == expected(case):
                right += 1
                continue
            wrong, silent = wrong + 1, silent + (not whole[3] and reader.is_known)
            print(f"line {case.line}, {name}, read as {reader.parser.name}")
            if given.show:
                print(f"  reply    {case.reply!r}\n  expected {expected(case)!r}\n  read     {whole!r}")
    print(
        f"{right} of {right + wrong} cases right, {silent} wrong without a warning; {differ} readings in pieces differ"
    )
    return int(right < given.least or differ > 0)


if __name__ == "__main__":
    sys.exit(main())
