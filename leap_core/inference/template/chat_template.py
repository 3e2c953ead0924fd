"""Messages and functions to the text of a prompt, by the model's own chat template.

The template is a program from a file of others: ``sandbox`` runs it within a budget. What people typed stays
text: where a message spells out a special token, a *seam* is put inside it, and the rendered text is cut at the seams
before it is tokenized, so that no half can be read as the token.

A spelling takes messages as a template gets them, and gives None where it would change nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ...conversation.messages import ChatMessage, ChatMessageContent, ChatMessageRole, LeapFunctionCall, Text
from ...errors import LeapGenerationError
from ...schemas.grammar_matcher import REASONING_TAGS
from ...schemas.json_values import JsonObject
from .sandbox import MOST_CHARACTERS, Budget, TemplateTooCostly, compile_template, render_template, variables_of

if TYPE_CHECKING:
    from ...conversation.calls import LeapFunction
    from ...conversation.options import FunctionCallParser

Messages = list[JsonObject]


def _as_they_are(messages: Messages) -> Messages | None:
    return messages


def _arguments_as_text(messages: Messages) -> Messages | None:
    """As OpenAI's API has them, and DeepSeek's templates."""
    if not any("tool_calls" in message for message in messages):
        return None

    def spelled(call: JsonObject) -> JsonObject:
        function = call["function"]
        return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}

    return [
        {**message, "tool_calls": [spelled(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _short_ids(messages: Messages) -> Messages | None:
    """Nine letters and digits, as Mistral's templates demand."""
    if not any("tool_calls" in message for message in messages):
        return None
    return [_with_short_ids(message) for message in messages]


def _with_short_ids(message: JsonObject) -> JsonObject:
    changed = dict(message)
    if "tool_calls" in message:
        changed["tool_calls"] = [{**call, "id": _short(call["id"])} for call in message["tool_calls"]]
    if "tool_call_id" in message:
        changed["tool_call_id"] = _short(message["tool_call_id"])
    return changed


def _short(id: str) -> str:
    return id if re.fullmatch("[A-Za-z0-9]{9}", id) else blake2b(id.encode(), digest_size=5).hexdigest()[:9]


def _system_in_the_first_question(messages: Messages) -> Messages | None:
    """For models that know no system prompt, such as Gemma."""
    if [message["role"] for message in messages[:2]] != ["system", "user"]:
        return None
    joined = _joined_contents(messages[0]["content"], messages[1]["content"])
    asked = [{**messages[1], "content": joined}, *messages[2:]]
    return _questions_joined(asked) or asked


def _one_system_message(messages: Messages) -> Messages:
    """The texts of all system messages in one, at the beginning."""
    systems = [message for message in messages if message["role"] == "system"]
    content = systems[0]["content"]
    for message in systems[1:]:
        content = _joined_contents(content, message["content"])
    return [{**systems[0], "content": content}, *(message for message in messages if message["role"] != "system")]


def _content_in_the_reasoning(messages: Messages) -> Messages | None:
    """For templates that refuse text beside reasoning where there are calls, as that of gpt-oss."""
    if not any(message.get("tool_calls") and message.get("thinking") and message["content"] for message in messages):
        return None
    return [_thinking_aloud(message) for message in messages]


def _thinking_aloud(message: JsonObject) -> JsonObject:
    content = message.get("content")
    if not (message.get("tool_calls") and message.get("thinking") and isinstance(content, str) and content):
        return message
    thinking = f"{message['thinking']}\n\n{content}"
    return {**message, "thinking": thinking, "reasoning_content": thinking, "content": ""}


def _questions_joined(messages: Messages) -> Messages | None:
    """For templates that want questions and answers to take turns."""
    joined: Messages = []
    for message in messages:
        last = joined[-1] if joined else {}
        if message["role"] == "user" == last.get("role"):
            joined[-1] = {**last, "content": _joined_contents(last["content"], message["content"])}
        else:
            joined.append(message)
    return joined if len(joined) < len(messages) else None


def _joined_contents(one: Any, other: Any) -> Any:
    return [*one, *other] if isinstance(one, list) else f"{one}\n\n{other}"


def _calls_with_empty_text(messages: Messages) -> Messages | None:
    """For templates that add to the content of every message, such as Ministral's."""
    if not any(message.get("content", "") is None for message in messages):
        return None
    return [{**message, "content": ""} if message.get("content", "") is None else message for message in messages]


SPELLINGS = (
    *(_as_they_are, _arguments_as_text, _short_ids, _calls_with_empty_text, _system_in_the_first_question),
    *(_content_in_the_reasoning, _questions_joined),
)


def spellings_of(messages: Messages) -> Iterator[Messages]:
    """The messages, then what their other spellings change, then those with empty texts for none."""
    spelled = [each for spell in SPELLINGS if (each := spell(messages)) is not None]
    yield from spelled
    for each in spelled[1:]:
        filled = _calls_with_empty_text(each)
        if filled is not None:
            yield filled


def _tools_as_they_are(values: JsonObject) -> JsonObject | None:
    return values


def _no_tools_as_an_empty_list(values: JsonObject) -> JsonObject | None:
    """For templates that iterate ``tools`` without asking whether there are any: Hermes 2 and 3, Command-R+."""
    return {**values, "tools": []} if values.get("tools", ()) is None else None


TOOL_SPELLINGS = (_tools_as_they_are, _no_tools_as_an_empty_list)
"""As the spellings of messages, for the other values of a template."""
"""In the order of trying."""


SEAMS = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4\ufdd5\ufdd6\ufdd7"
"""Unicode's noncharacters, which no text interchanges; three that the messages do not contain are used."""
THINK_START, THINK_END = REASONING_TAGS[0]
INLINE_REASONING = re.compile(rf"""['"]{THINK_END}['"]\s*(?:in\b|not\s+in\b|\))""")
"""In templates that take past reasoning out of the content: ``'</think>' in content``, ``split('</think>')``."""
NOTHING: Mapping[str, Any] = {}
PROBE = "Where is it?"
"""Asked of a template to see in which shape it shows a message."""
PROBE_CHARACTERS, PROBE_SECONDS = 1_000_000, 1.0


class ChatTemplate:
    """A compiled chat template. ``special_texts`` are the spellings of the model's special tokens."""

    def __init__(self, source: str, *, bos_text: str, eos_text: str, special_texts: Iterable[str]) -> None:
        self._template = compile_template(source)
        self._bos_text, self._eos_text = bos_text, eos_text
        specials = sorted((text for text in special_texts if text), key=len, reverse=True)
        self._special = re.compile(f"(?=({'|'.join(map(re.escape, specials))}))") if specials else None
        self.renders_calls = "tool_calls" in source
        self.renders_reasoning = "reasoning_content" in source or ".thinking" in source or "['thinking']" in source
        self._splits_reasoning = INLINE_REASONING.search(source) is not None
        self._words = frozenset(re.findall(r"\w+", source))
        read = variables_of(source) if "functions" in source else {"tools"} if "tools" in source else set()
        self._shapes: dict[tuple[bool, bool], bool] = {}
        self._names_functions = "functions" in read and "tools" not in read
        self.renders_functions = not read.isdisjoint({"tools", "functions"})
        self._calls_without_content = re.search(r"content['\"]?\]? is none", source, re.IGNORECASE) is not None
        self._content_in_parts = False
        self._content_in_parts = self._wants_parts()

    def render(
        self,
        messages: Sequence[ChatMessage],
        functions: Sequence[LeapFunction] = (),
        *,
        parser: FunctionCallParser | None = None,
        enable_thinking: bool = False,
        ended: bool = False,
        kwargs: Mapping[str, Any] = NOTHING,
    ) -> list[str | ChatMessageContent]:
        """The prompt, opening of the reply included, in pieces: tokenize each text with its special tokens and join;
        images and audio are between the texts, where their messages have them. An assistant's text at the end of
        the messages opens the reply, which continues from it. With ``ended`` the messages are whole and none is opened.
        ``kwargs``: further values by name, of which the template gets those that it reads.

        Raises LeapGenerationError when the template refuses the messages or its output grows beyond bounds.
        """
        seam, media_mark, cut = _unused_marks(messages, functions)
        protect = self._protector(seam)
        media: list[ChatMessageContent] = []

        def place(part: ChatMessageContent) -> str:
            media.append(part)
            return f"{media_mark}{len(media) - 1}{media_mark}"

        template_messages = self._messages(messages, parser, protect, place)
        continues = bool(messages) and messages[-1].opens_reply and not ended
        if continues:  # what the template writes after it, such as the end of the turn, is cut off
            _append_text(template_messages[-1], cut)
        values = self._values(functions, protect, enable_thinking, kwargs)
        values["add_generation_prompt"] = not (continues or ended)
        text, _ = self._text(template_messages, values, _most_characters(messages))
        if continues:
            if text.count(cut) != 1:
                raise LeapGenerationError("the chat template cannot render an unfinished answer")
            text = text.partition(cut)[0]
        return [part for piece in text.split(seam) for part in _with_media(piece, media_mark, media, text) if part]

    def variables(
        self, messages: Sequence[ChatMessage], functions: Sequence[LeapFunction], parser: FunctionCallParser | None
    ) -> JsonObject:
        """``messages`` and ``tools`` as the template takes them, in the first spelling that it does not refuse, for
        other programs that render it. Raises what ``render`` raises; images and audio have no such form."""

        def no_place(part: ChatMessageContent) -> str:
            raise LeapGenerationError("images and audio cannot be passed to a chat template as text")

        shaped = self._messages(messages, parser, str, no_place)
        values = self._values(functions, str, False, NOTHING) | {"add_generation_prompt": False}
        _, accepted = self._text(shaped, values, _most_characters(messages))
        return {"messages": accepted["messages"], "tools": accepted["tools"]}

    def render_values(
        self, values: JsonObject, pictures: Sequence[ChatMessageContent]
    ) -> list[str | ChatMessageContent]:
        """What a template that is not one of messages makes of its variables, in pieces like those of ``render``. The
        variable ``images`` has a mark for each picture. Raises what ``render`` raises."""
        everything = json.dumps(values, ensure_ascii=False)
        seam, mark, _ = _unused_in(everything)
        protected = deeply(values, self._protector(seam))
        protected["images"] = [f"{mark}{n}{mark}" for n in range(len(pictures))]
        text = render_template(self._template, protected, Budget(MOST_CHARACTERS + 4 * len(everything)))
        return [part for piece in text.split(seam) for part in _with_media(piece, mark, pictures, text) if part]

    def _values(
        self,
        functions: Sequence[LeapFunction],
        protect: Callable[[str], str],
        thinking: bool,
        kwargs: Mapping[str, Any],
    ) -> JsonObject:
        """The template's variables beside the messages."""
        values: JsonObject = {
            "tools": [deeply(function.to_json_object(), protect) for function in functions] or None,
            "bos_token": self._bos_text,
            "eos_token": self._eos_text,
        }
        switches = {"enable_thinking": thinking, "thinking": thinking}
        values |= {name: value for name, value in switches.items() if name in self._words}
        own = {
            name: value for name, value in kwargs.items() if name in self._words and name not in (*values, "messages")
        }
        values |= deeply(own, protect)
        if self._names_functions:  # as firefunction's template wants them
            values["functions"] = json.dumps(values["tools"], ensure_ascii=False, indent=4) if functions else None
            values["datetime"] = datetime.now().strftime("%Y-%m-%d %H:%M")
        return values

    def _text(self, messages: list[JsonObject], values: JsonObject, most: int) -> tuple[str, JsonObject]:
        """The template's output for the messages, or where it refuses them, for the first of their other spellings
        that it takes, and the variables so spelled. All of them together have one budget."""
        budget, refusal = Budget(most), None
        for spell_tools in TOOL_SPELLINGS:
            spelled = spell_tools(values)
            if spelled is None:
                continue
            for each in spellings_of(messages):
                try:
                    accepted = {**spelled, "messages": each}
                    return render_template(self._template, accepted, budget), accepted
                except TemplateTooCostly:
                    raise
                except LeapGenerationError as error:
                    refusal = refusal or error
        assert refusal is not None, "the first spelling is always tried"
        raise refusal

    def _messages(
        self,
        messages: Sequence[ChatMessage],
        parser: FunctionCallParser | None,
        protect: Callable[[str], str],
        place: Callable[[ChatMessageContent], str],
    ) -> Messages:
        """The messages as the template takes them, so that it leaves out no system message and knows the names of
        results."""
        shaped = [self._message(message, parser, protect, place) for message in messages]
        names: dict[str, str] = {}
        for message, value in zip(messages, shaped, strict=True):
            names.update((call.id or f"call_{n}", call.name) for n, call in enumerate(message.function_calls or ()))
            if message.role is ChatMessageRole.TOOL and names:
                value["name"] = protect(names.get(message.tool_call_id or "") or list(names.values())[-1])
        systems = [n for n, message in enumerate(messages) if message.role is ChatMessageRole.SYSTEM]
        shape = (systems[:2] == [0, 1], systems != list(range(len(systems))))
        return _one_system_message(shaped) if any(shape) and not self._takes(shape) else shaped

    def _takes(self, shape: tuple[bool, bool]) -> bool:
        """Whether the template shows two system messages at the beginning, and one that comes later."""
        if shape not in self._shapes:
            roles = ("system", *["system"] * shape[0], "user", "assistant", *["system"] * shape[1], "user")
            texts = [f"{PROBE}{n}" for n in range(len(roles))]
            text = self.probed([{"role": role, "content": each} for role, each in zip(roles, texts, strict=True)])
            self._shapes[shape] = all(each in text for each in texts)
        return self._shapes[shape]

    def probed(self, messages: Messages, **values: Any) -> str:
        """What the template makes of a few messages; nothing where it refuses them."""
        usual = {"add_generation_prompt": True, "bos_token": self._bos_text, "eos_token": self._eos_text}
        values = usual | values
        if self._content_in_parts:
            messages = [{**each, "content": [{"type": "text", "text": each["content"] or ""}]} for each in messages]
        try:
            budget = Budget(PROBE_CHARACTERS, PROBE_SECONDS)
            return render_template(self._template, {**values, "messages": messages}, budget)
        except LeapGenerationError:
            return ""

    def _wants_parts(self) -> bool:
        """Whether the template shows a message only when its content is a list of typed parts, as those of models that
        see often do."""
        contents: list[Any] = [PROBE, [{"type": "text", "text": PROBE}]]
        return [PROBE in self.probed([{"role": "user", "content": each}]) for each in contents] == [False, True]

    def _protector(self, seam: str) -> Callable[[str], str]:
        special = self._special

        def protect(text: str) -> str:
            if special is None:
                return text
            cuts = [match.start() + 1 for match in special.finditer(text)]
            if not cuts:
                return text
            edges = [0, *cuts, len(text)]
            return seam.join(text[a:b] for a, b in zip(edges, edges[1:], strict=False))

        return protect

    def _message(
        self,
        message: ChatMessage,
        parser: FunctionCallParser | None,
        protect: Callable[[str], str],
        place: Callable[[ChatMessageContent], str],
    ) -> JsonObject:
        content = _content_of(message, protect, place)
        value: JsonObject = {"role": message.role.value}
        if message.role is ChatMessageRole.ASSISTANT:
            content = self._add_calls(value, content, message.function_calls or (), parser, protect)
            content = self._add_reasoning(value, content, message.reasoning_content, protect)
        if message.tool_call_id is not None:
            value["tool_call_id"] = protect(message.tool_call_id)
        if self._content_in_parts:
            value["content"] = [{"type": "text", "text": content}] if content else []
        else:
            is_call = "tool_calls" in value and not content
            value["content"] = None if is_call and self._calls_without_content else content
        return value

    def _add_calls(
        self,
        value: JsonObject,
        content: str,
        calls: Sequence[LeapFunctionCall],
        parser: FunctionCallParser | None,
        protect: Callable[[str], str],
    ) -> str:
        """Calls go into the field that the template renders, or, where it renders none, into the content as the model
        itself would have written them."""
        if not calls:
            return content
        safe = [LeapFunctionCall(protect(call.name), deeply(dict(call.arguments), protect), call.id) for call in calls]
        if self.renders_calls:
            value["tool_calls"] = [
                {
                    "id": protect(call.id or f"call_{n}"),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for n, call in enumerate(safe)
            ]
            return content
        if parser is None:
            raise LeapGenerationError("the history holds function calls, but no function call parser is chosen")
        return content + parser.dump(safe)

    def _add_reasoning(
        self, value: JsonObject, content: str, reasoning: str | None, protect: Callable[[str], str]
    ) -> str:
        if not reasoning:
            return content
        if self.renders_reasoning:
            value["reasoning_content"] = value["thinking"] = protect(reasoning)
            return content
        if self._splits_reasoning:
            return f"{THINK_START}{protect(reasoning)}{THINK_END}{content}"
        return content  # a template without a place for it was not made for a model that is shown past reasoning


def _most_characters(messages: Sequence[ChatMessage]) -> int:
    """How long the rendered text may become."""
    texts = (part.text for message in messages for part in message.content if isinstance(part, Text))
    return MOST_CHARACTERS + 2 * sum(map(len, texts))


def _content_of(message: ChatMessage, protect: Callable[[str], str], place: Callable[[ChatMessageContent], str]) -> str:
    """The texts of a message, joined, with marks where its images and audio are. The marks go through every
    template as text does, whether or not it knows such parts; models' own templates print a word for them there."""
    content, text = "", ""
    for part in message.content:
        if isinstance(part, Text):
            text += part.text  # joined first: a special token may be spelled across two parts
        else:
            content += protect(text) + place(part)
            text = ""
    return content + protect(text)


def _with_media(
    piece: str, mark: str, media: Sequence[ChatMessageContent], whole: str
) -> list[str | ChatMessageContent]:
    """A piece of rendered text, cut at the marks of media. Each must be there once, in all of the rendered text."""
    if not media:
        return [piece]
    for n in range(len(media)):
        if whole.count(f"{mark}{n}{mark}") != 1:
            raise LeapGenerationError("the chat template leaves out a picture or a sound of these messages")
    parts = piece.split(mark)
    return [media[int(part)] if n % 2 else part for n, part in enumerate(parts)]


def deeply(value: Any, change: Callable[[str], str]) -> Any:
    """Apply ``change`` to every string of a JSON value, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): deeply(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [deeply(item, change) for item in value]
    return value


def _append_text(message: JsonObject, text: str) -> None:
    """Add text to the end of a template's message."""
    content = message["content"]
    message["content"] = [*content, {"type": "text", "text": text}] if isinstance(content, list) else content + text


def _unused_marks(messages: Sequence[ChatMessage], functions: Sequence[LeapFunction]) -> tuple[str, str, str]:
    """Three noncharacters that the messages do not contain."""
    everything = "".join(
        [
            message.text
            + (message.reasoning_content or "")
            + str(message.function_calls or "")
            + (message.tool_call_id or "")
            for message in messages
        ]
        + [json.dumps(function.to_json_object(), ensure_ascii=False, default=str) for function in functions]
    )
    return _unused_in(everything)


def _unused_in(everything: str) -> tuple[str, str, str]:
    unused = [seam for seam in SEAMS if seam not in everything]
    if len(unused) < 3:
        raise LeapGenerationError("the messages contain nearly all of Unicode's noncharacters U+FDD0 to U+FDD7")
    return unused[0], unused[1], unused[2]


_SYSTEM_FIRST = (
    "{%- set ns = namespace(system='') -%}"
    "{%- for message in messages if message.role == 'system' -%}{%- set ns.system = message.content -%}{%- endfor -%}"
)
NAMED_TEMPLATES = {
    "chatml": (
        "{{- bos_token -}}{%- for message in messages -%}"
        "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
    ),
    "llama3": (
        "{{- bos_token -}}{%- for message in messages -%}{{- '<|start_header_id|>' + message.role +"
        " '<|end_header_id|>\\n\\n' + (message.content | trim) + '<|eot_id|>' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}"
    ),
    "gemma": (
        _SYSTEM_FIRST + "{{- bos_token -}}{%- for message in messages if message.role != 'system' -%}"
        "{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' +"
        " ((ns.system + '\\n\\n') if loop.first and ns.system else '') + (message.content | trim) +"
        " '<end_of_turn>\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}"
    ),
    "alpaca": (
        "{{- bos_token -}}{%- for message in messages -%}"
        "{{- {'system': '', 'user': '### Instruction:\\n', 'assistant': '### Response:\\n', 'tool': '### Input:\\n'}"
        "[message.role] + message.content + '\\n\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '### Response:\\n' -}}{%- endif -%}"
    ),
}
"""Jinja texts by name. ``system`` comes before the first question where a format has no place for it."""
