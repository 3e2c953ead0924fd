"""Tools that a turn does not need: listed in a line each, found by the model, and declared at the end of the context.

The prefix of a prompt stays what it was: what is shown from the start depends on the list of tools and on the first
question alone, and a tool that is wanted later is declared where it is first called. ``DECLARED`` is the form in which
histories hold such a declaration: the result of a call, with the tools' names alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import Any

from ..conversation.calls.declaration import FIND, LeapFunction, references, referred
from ..conversation.generator import Functions, Generation, MaybeOptions, Messages, PassingGeneration, RenderedPrompt
from ..conversation.messages import ChatMessage, ChatMessageRole, LeapFunctionCall
from ..conversation.options import GenerationOptions
from ..conversation.responses import Complete, FunctionCalls, FunctionResult, GenerationFinishReason
from ..conversation.runner import ModelRunner, PassingRunner
from ..conversation.streams import last_of
from ..errors import GenerationStats
from ..inference.constraints.compiling import lark_matcher
from ..schemas.expressions import CheckTakesTooLong, follows
from ..schemas.grammar_matcher import byte_tokenizer
from ..system.dataclass import dataclass
from ..system.full_text_search import fts_query

MOST_TOKENS = 2000
"""Of declarations in a prompt, where folding was asked for without a number."""
CHARACTERS_A_TOKEN = 4
MOST_FOUND = 5
MOST_SEARCHES = 4
"""In one answer; then the model has to do with what it has."""
LINE_CHARACTERS, DESCRIPTION_CHARACTERS, PARAMETER_CHARACTERS = 90, 300, 120
LINES_SHARE = 0.5
"""Of the bound: what the lines of folded tools may take, or they are listed by name, or not at all."""
WEIGHTS = "8.0, 2.0, 1.0"
"""Of a tool's name, description and parameters in a search."""
WORDS_OF = {
    "agent": "delegate subagent worker helper spawn parallel",
    "bash command exec shell": "run execute install test build compile git npm pip python pytest terminal script start "
    "commit status branch version disk process folder make",
    "edit update": "change replace fix rename modify correct insert remove line refactor",
    "fetch web url": "website page internet http https download online link site documentation",
    "glob list directory": "files folder directories named matching extension pattern tree",
    "grep": "search occurrences mention contain find where text pattern regex",
    "image": "picture png jpg screenshot photo look",
    "read": "show open look contents print view see display cat readme lines file",
    "search": "find google news latest",
    "stdin": "type answer input process running keys",
    "todo task goal plan": "steps progress plan list remember checklist track",
    "write": "create new save make generate file",
    "user input ask question": "clarify prefer choose decide",
    "cron schedule wakeup": "every daily later remind morning hourly timer",
    "worktree": "isolated branch checkout",
    "notebook": "jupyter ipynb cell",
    "message": "tell reply contact",
}
"""Words of requests, by words in the names of tools that grant them."""
FILE_NAME = re.compile(r"\w\.[a-z]{1,5}\b|\b(README|LICENSE|Makefile|Dockerfile)\b")
MOST_SEARCHED = 100_000
"""Characters of a request's text in which tools are looked for."""


def size_of(functions: Iterable[LeapFunction]) -> int:
    """About how many tokens declarations take: their JSON at four characters a token."""
    return sum(len(json.dumps(function.to_json_object(False))) for function in functions) // CHARACTERS_A_TOKEN


def search(functions: Sequence[LeapFunction], wish: str, most: int = MOST_FOUND) -> list[LeapFunction]:
    """The functions that match a request in plain words best, those that it names first."""
    wish = wish[:MOST_SEARCHED]
    named = [each for each in functions if re.search(rf"(?<!\w){re.escape(each.name)}(?!\w)", wish)]
    return list({each.name: each for each in [*named, *_ranked(functions, wish)]}.values())[:most]


def _ranked(functions: Sequence[LeapFunction], wish: str) -> list[LeapFunction]:
    asked = wish + (" file" if FILE_NAME.search(wish) else "")
    query = fts_query(asked)
    if query is None or not functions:
        return []
    import sqlite3

    with closing(sqlite3.connect(":memory:")) as table:
        table.execute("CREATE VIRTUAL TABLE tools USING fts5 (name, description, rest, tokenize = 'porter unicode61')")
        table.executemany("INSERT INTO tools VALUES (?, ?, ?)", map(_searched, functions))
        rows = table.execute(
            f"SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, {WEIGHTS}), rowid", [query]
        )
        return [functions[row[0] - 1] for row in rows]


def _searched(function: LeapFunction) -> tuple[str, str, str]:
    name = re.sub(r"[_.-]|(?<=[a-z])(?=[A-Z])", " ", function.name).lower()
    more = [
        words
        for names, words in WORDS_OF.items()
        if any(each in name.split() or each == name for each in names.split())
    ]
    parameters = " ".join(f"{each.name} {each.description}" for each in function.parameters)
    return (
        f"{name} {' '.join(more)}",
        function.description[:DESCRIPTION_CHARACTERS],
        parameters[:DESCRIPTION_CHARACTERS],
    )


def fold(functions: Sequence[LeapFunction], messages: Messages, most_tokens: int) -> list[LeapFunction]:
    """The functions with those ``deferred`` that are not declared from the start, and the others with shorter
    descriptions, so that all take about ``most_tokens`` at most. All as they are where they fit.

    What stays: what the user asks for before the first answer, then what the system prompt names, until the space is
    used.
    """
    if size_of(functions) <= most_tokens:
        return list(functions)
    opening = takewhile(lambda each: each.role is not ChatMessageRole.ASSISTANT, messages)
    asked = "\n".join(each.text for each in opening if each.role is ChatMessageRole.USER)
    told = next((each.text for each in messages if each.role is ChatMessageRole.SYSTEM), "")[:MOST_SEARCHED]
    named = [each for each in functions if re.search(rf"(?<!\w){re.escape(each.name)}(?!\w)", told)]
    short = {each.name: _shortened(each) for each in functions}
    room = most_tokens - size_of([_find("")]) - min(_size_of_lines(functions), int(most_tokens * LINES_SHARE))
    kept: set[str] = set()
    for each in search(functions, asked, len(functions)) + named + list(functions):
        size = size_of([short[each.name]])
        if each.name not in kept and size <= room:
            kept.add(each.name)
            room -= size
    return [short[each.name] if each.name in kept else replace(each, deferred=True) for each in functions]


def _size_of_lines(functions: Sequence[LeapFunction]) -> int:
    return size_of([_find("\n".join(map(_line, functions)))])


def _line(function: LeapFunction) -> str:
    return f"{function.name}: {_sentence(function.description, LINE_CHARACTERS)}"


def _lines(functions: Sequence[LeapFunction], most_tokens: int) -> str:
    """A line each with name and first sentence; names alone where that is too much, and at last nothing."""
    for text in ("\n".join(map(_line, functions)), ", ".join(each.name for each in functions)):
        if len(text) <= most_tokens * CHARACTERS_A_TOKEN:
            return text
    return ""


def _find(lines: str) -> LeapFunction:
    listed = f" There are:\n{lines}" if lines else ""
    schema = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "A tool's name, or what it is to do"}},
        "required": ["query"],
    }
    return LeapFunction.from_openai(
        {"name": FIND, "description": f"Find further tools before they are called.{listed}", "parameters": schema}
    )


def _sentence(text: str, most: int) -> str:
    """The first sentence of a text, cut at a word."""
    first = re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]
    return first if len(first) <= most else first[:most].rsplit(" ", 1)[0] + " …"


def _cut(text: str, most: int) -> str:
    """A text of at most so many characters: cut after a sentence where one ends there."""
    if len(text) <= most:
        return text
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s)|\n", text[:most])]
    return text[: ends[-1]].rstrip() if ends else text[:most].rsplit(" ", 1)[0] + " …"


def _shortened(function: LeapFunction) -> LeapFunction:
    """The function with its descriptions cut; what calls are held to stays."""
    schema = _with_short_descriptions(function.arguments_schema)
    declared = {**function.to_json_object(False), "description": _cut(function.description, DESCRIPTION_CHARACTERS)}
    short = LeapFunction.from_openai({**declared, "parameters": schema})
    return replace(short, call=function.call, grammar=function.grammar)


def _with_short_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_short_descriptions(each) for each in value]
    if not isinstance(value, dict):
        return value
    described = value.get("description")
    return {
        key: _cut(item, PARAMETER_CHARACTERS)
        if item is described and isinstance(item, str)
        else _with_short_descriptions(item)
        for key, item in value.items()
        if key != "$schema"
    }


@dataclass(frozen=True)
class FoldedPrompt:
    """What a model gets: ``messages`` with what was found where it was found, and ``functions``; the ``deferred`` ones
    by name, and which of them are ``found``."""

    messages: list[ChatMessage]
    functions: list[LeapFunction]
    deferred: dict[str, LeapFunction]
    found: set[str]

    @staticmethod
    def of(
        messages: Messages, functions: Functions, most_tokens: int | None, *, hides_deferred: bool = True
    ) -> FoldedPrompt:
        """``most_tokens``: fold what takes more; None folds only what the client itself put off. ``hides_deferred``:
        see ``Generator``."""
        if any(function.name == FIND for function in functions):  # by another runner, which answers the searches
            return FoldedPrompt(list(messages), list(functions), {}, set())
        own = any(function.deferred for function in functions)
        folds = most_tokens is not None and not own
        listed = fold(functions, messages, most_tokens) if folds and most_tokens is not None else list(functions)
        deferred = {each.name: each for each in listed if each.deferred}
        if not deferred:
            return FoldedPrompt(list(messages), listed, {}, set())
        written, found = _with_declarations(messages, deferred)
        lines = _lines(list(deferred.values()), int((most_tokens or MOST_TOKENS) * LINES_SHARE))
        shown = [each for each in listed if not each.deferred]
        callable_ = [each for each in listed if each.deferred and ((folds and hides_deferred) or each.name in found)]
        return FoldedPrompt(written, [*shown, _find(lines), *callable_], deferred, found)


def _with_declarations(messages: Messages, deferred: dict[str, LeapFunction]) -> tuple[list[ChatMessage], set[str]]:
    """The messages with each declaration in full, and one before the first call of a tool that has none; the names."""
    written: list[ChatMessage] = []
    found: set[str] = set()
    for message in messages:
        if message.role is ChatMessageRole.TOOL and (names := referred(message.text)) is not None:
            found.update(names)
            functions = [deferred[each] for each in names if each in deferred]
            asked = written[-1].function_calls if written else None
            if asked and asked[0].name == FIND:  # of leap's own, whose ids clients do not keep
                before = written.pop()
                written += _found(str(asked[0].arguments.get("query", "")), functions, len(written), before.text)
                continue
            message = _with_content(message, _declared(functions))
        called = [
            call.name for call in message.function_calls or () if call.name in deferred and call.name not in found
        ]
        for name in dict.fromkeys(called):
            found.add(name)
            written += _found(name, [deferred[name]], len(written))
        written.append(message)
    return written, found


def _with_content(message: ChatMessage, text: str) -> ChatMessage:
    return ChatMessage(message.role, text, message.reasoning_content, message.function_calls, message.tool_call_id)


def _declared(functions: Sequence[LeapFunction]) -> str:
    listed = [_shortened(function).to_json_object(False) for function in functions]
    return json.dumps(listed, ensure_ascii=False) if listed else "no tool fits; go on without one"


def _found(query: str, functions: Sequence[LeapFunction], place: int, text: str = "") -> list[ChatMessage]:
    """A search and its result as the model gets them, at this place of the messages; ``text`` was said before it."""
    call = LeapFunctionCall(FIND, {"query": query}, f"find_{place}")
    return [
        ChatMessage(ChatMessageRole.ASSISTANT, text or (), function_calls=(call,)),
        ChatMessage(ChatMessageRole.TOOL, _declared(functions), tool_call_id=call.id),
    ]


class FoldingRunner(PassingRunner):
    """``runner``, with tools folded above ``most_tokens`` of declarations (None: none but those that a client puts
    off), and texts for tools that have a grammar made by it. What was searched comes as FunctionResult."""

    def __init__(self, runner: ModelRunner, most_tokens: int | None = None) -> None:
        super().__init__(runner)
        self._most_tokens = most_tokens

    def _folded(self, messages: Messages, functions: Functions) -> FoldedPrompt:
        hides = self._runner.hides_deferred
        return FoldedPrompt.of(messages, functions, self._most_tokens, hides_deferred=hides)

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        prompt = self._folded(messages, functions)
        grammars = any(function.grammar for function in functions)
        if not (prompt.deferred or grammars) or (options is not None and options.tool_choice == "none"):
            return self._runner.start(prompt.messages, prompt.functions, options)
        return _FoldingGeneration(self._runner, prompt, options or GenerationOptions())

    def render(self, prompt: Messages | str, functions: Functions = (), options: MaybeOptions = None) -> RenderedPrompt:
        if isinstance(prompt, str):
            return self._runner.render(prompt, functions, options)
        folded = self._folded(prompt, functions)
        return self._runner.render(folded.messages, folded.functions, options)

    def get_prompt_tokens_size(
        self, messages: Messages, add_bos_token: bool = True, functions: Functions = (), options: MaybeOptions = None
    ) -> int:
        folded = self._folded(messages, functions)
        return self._runner.get_prompt_tokens_size(folded.messages, add_bos_token, folded.functions, options)


class _FoldingGeneration(PassingGeneration):
    """Answers the searches of a model, and passes everything else on. Calls wait for the end of the answer."""

    def __init__(self, runner: ModelRunner, prompt: FoldedPrompt, options: GenerationOptions) -> None:
        super().__init__(runner.start(prompt.messages, prompt.functions, options))
        self._runner, self._prompt, self._options = runner, prompt, options
        self._messages = list(prompt.messages)
        self._found = set(prompt.found)
        self._texts: list[str] = []
        self._searches: list[FunctionResult] = []
        self._spent: list[GenerationStats] = []
        self._warnings: list[str] = []

    def _receive(self) -> None:
        response = self._read()
        if isinstance(response, Complete):
            self._end_of_round(response)
        elif not isinstance(response, FunctionCalls):
            self._ready.append(response)

    def _end_of_round(self, complete: Complete) -> None:
        calls = complete.full_message.function_calls or ()
        wanted = next((call for call in calls if self._is_search(call)), None)
        if wanted is not None and not self._stopped and len(self._searches) < MOST_SEARCHES:
            self._search(wanted, complete)
            return
        self._ended = True
        calls = tuple(self._with_text(call) for call in calls if not self._is_search(call))
        if calls:
            self._ready.append(FunctionCalls(calls))
        reply = replace(complete.full_message, function_calls=calls or None)
        if any(self._texts):
            reply = _with_content(reply, "".join([*self._texts, reply.text]))
        is_lost = wanted is not None and len(self._searches) == MOST_SEARCHES
        given_up = (f"the model looked for tools more than {MOST_SEARCHES} times",) if is_lost else ()
        self._ready.append(
            replace(
                complete,
                full_message=reply,
                stats=_together([*self._spent, complete.stats]),
                warnings=(*complete.warnings, *self._warnings, *given_up),
                searches=tuple(self._searches),
            )
        )

    def _is_search(self, call: LeapFunctionCall) -> bool:
        return bool(self._prompt.deferred) and (
            call.name == FIND or (call.name in self._prompt.deferred and call.name not in self._found)
        )

    def _search(self, call: LeapFunctionCall, complete: Complete) -> None:
        """Declare what a call looks for at the end of the context, and ask again."""
        query = str(call.arguments.get("query", "")) if call.name == FIND else call.name
        named = self._prompt.deferred.get(query)
        found = search(list(self._prompt.deferred.values()), query) if named is None else [named]
        self._found.update(each.name for each in found)
        text = complete.full_message.text
        self._messages += _found(query, found, len(self._messages), text)
        self._texts.append(text)
        if complete.stats is not None:
            self._spent.append(complete.stats)
        result = FunctionResult(LeapFunctionCall(FIND, {"query": query}), references(each.name for each in found))
        self._searches.append(result)
        self._ready.append(result)
        functions = [each for each in self._prompt.functions if not (each.deferred and each.name in self._found)]
        functions += [each for name, each in self._prompt.deferred.items() if name in self._found]
        if self._begin(lambda: self._runner.start(self._messages, functions, self._options)):
            return
        self._ended = True
        reply = _with_content(replace(complete.full_message, function_calls=None), "".join(self._texts))
        self._ready.append(
            replace(
                complete,
                full_message=reply,
                finish_reason=GenerationFinishReason.INTERRUPTED,
                stats=_together(self._spent),
                searches=tuple(self._searches),
            )
        )

    def _with_text(self, call: LeapFunctionCall) -> LeapFunctionCall:
        """The call with a text that its tool's grammar allows: as it is, or written once more under the grammar."""
        known = {each.name: each for each in (*self._prompt.functions, *self._prompt.deferred.values())}
        function = known.get(call.name)
        if function is None or function.grammar is None or self._stopped:
            return call
        text = str(call.arguments.get("input", ""))
        try:
            matcher = lark_matcher(function.grammar, byte_tokenizer())[1]
            if follows(matcher, list(text.encode())):
                return call
        except CheckTakesTooLong as error:
            self._warnings.append(f"the input of {call.name} was not checked against its grammar: {error}")
            return call
        asked = [
            *self._messages,
            ChatMessage(ChatMessageRole.ASSISTANT, (), function_calls=(call,)),
            ChatMessage(ChatMessageRole.TOOL, WRONG.format(function.name), tool_call_id=call.id),
        ]
        own = self._options
        options = GenerationOptions(
            temperature=0.0,
            grammar_constraint=function.grammar,
            max_tokens=own.max_tokens,
            rng_seed=own.rng_seed,
            adapters=own.adapters,
        )
        if not self._begin(lambda: self._runner.start(asked, (), options)) or self._current is None:
            return call
        complete = last_of(self._current)
        if complete.stats is not None:
            self._spent.append(complete.stats)
        if self._stopped:
            return call
        return replace(call, arguments={"input": complete.full_message.text})


WRONG = "The input of {} does not follow its grammar. Write the whole input once more, and nothing else."


def _together(parts: Sequence[GenerationStats | None]) -> GenerationStats | None:
    """The counts of an answer that took several generations. What a later one found in the cache counts once."""
    known = [each for each in parts if each is not None]
    if len(known) < 2:
        return known[0] if known else None
    first, last = known[0], known[-1]
    cached, made = first.cached_prompt_tokens, sum(each.completion_tokens for each in known)
    prompt = cached + sum(each.prompt_tokens - each.cached_prompt_tokens for each in known)
    return replace(
        last,
        prompt_tokens=prompt,
        completion_tokens=made,
        total_tokens=prompt + made,
        cached_prompt_tokens=cached,
        time_to_first_token=first.time_to_first_token,
        reasoning_tokens=sum(each.reasoning_tokens or 0 for each in known) or None,
    )
