"""A conversation with known right answers, and how the model's chat template writes it down."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

SCHEMA_INSTRUCTION = "Respond only with JSON that matches this JSON schema:\n"
CALL_START, CALL_END = "<|tool_call_start|>", "<|tool_call_end|>"
THINK_START, THINK_END = "<think>", "</think>"


@dataclass
class Turn:
    """One message. `learn` says whether an assistant's message is to be imitated or is only context."""

    role: str
    content: str
    learn: bool = True


@dataclass
class Dialogue:
    """Turns that end with the assistant's right answer; `system` and `tools` make the system block."""

    skill: str
    turns: list[Turn]
    system: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)

    @property
    def answer(self) -> str:
        return self.turns[-1].content


def ask(skill: str, question: str, answer: str, **more: Any) -> Dialogue:
    """The common case: one question, one answer."""
    return Dialogue(skill, [Turn("user", question), Turn("assistant", answer)], **more)


def with_schema(system: str, schema: dict[str, Any]) -> str:
    """The system text as the library writes it when a schema constrains the answer."""
    return (system + "\n" if system else "") + SCHEMA_INSTRUCTION + json.dumps(schema)


def as_json(value: Any) -> str:
    """JSON as jinja's `tojson` and the answers write it: one line, no escaping of other alphabets."""
    return json.dumps(value, ensure_ascii=False)


def system_block(dialogue: Dialogue) -> str:
    text = dialogue.system
    if dialogue.tools:
        text += ("\n" if text else "") + "List of tools: [" + ", ".join(map(as_json, dialogue.tools)) + "]"
    return f"<|im_start|>system\n{text}<|im_end|>\n" if text else ""


def without_thinking(content: str) -> str:
    return content.split(THINK_END)[-1].strip()


def render(dialogue: Dialogue, past_thinking: bool) -> list[tuple[str, bool]]:
    """The prompt and its answers as (text, to be learned) pieces.

    As in the template, thinking is kept only in the answer and in the assistant's message before it; with
    `past_thinking` it stays in all of them, which is how an earlier one can be learned. An answer cut down to its end
    is context, not a lesson.
    """
    pieces = [("<|startoftext|>" + system_block(dialogue), False)]
    thinking = [index for index, turn in enumerate(dialogue.turns) if turn.role == "assistant"][-2:]
    for index, turn in enumerate(dialogue.turns):
        pieces.append((f"<|im_start|>{turn.role}\n", False))
        content, learn = turn.content, turn.role == "assistant" and turn.learn
        if THINK_END in content and index not in thinking and not past_thinking:
            content, learn = without_thinking(content), False
        pieces.append((content, False) if not learn else (content + "<|im_end|>", True))
        pieces.append(("\n" if learn else "<|im_end|>\n", False))
    return pieces
