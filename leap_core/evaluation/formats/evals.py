"""Records of OpenAI's older evals (``input`` and ``ideal``) and of inspect_ai (``input`` and ``target``).

Such a record does not say how its answer is compared. leap takes what both compare by most: an ideal answer begins the
answer (evals' Match), and a target is in it, in any case (inspect_ai's includes).
"""

from __future__ import annotations

from ...json_fields import JsonObject
from string import ascii_uppercase
from typing import Any

from ...errors import LeapSerializationError

IGNORED = ("setup", "files", "sandbox")
"""Fields of inspect_ai that ask for more than an answer."""


def is_record(row: JsonObject) -> bool:
    """Whether a row is a record of one of both."""
    return "expect" not in row and ("item" in row or ("input" in row and ("ideal" in row or "target" in row)))


def case_of(row: JsonObject) -> tuple[list[JsonObject], list[str]]:
    """A record as a case, and what of it is not supported. Raises LeapSerializationError."""
    if isinstance(row.get("item"), dict):
        row = row["item"]
    if "input" not in row or not ("ideal" in row or "target" in row):
        raise LeapSerializationError("expected input with ideal (evals) or target (inspect_ai)")
    case: JsonObject = {"id": row["id"]} if row.get("id") is not None else {}
    unsupported = [f"{name} is not supported" for name in IGNORED if row.get(name)]
    question = row["input"]
    options = row.get("choices")
    if options:
        return [{**case, **_multiple_choice(question, options, row.get("target", row.get("ideal")))}], unsupported
    case |= {"messages": _messages(question)} if isinstance(question, list) else {"prompt": question}
    if "ideal" in row:
        case["expect"] = {"starts_with": row["ideal"]}
    else:
        targets = row["target"]
        case["expect"] = {"contains_any" if isinstance(targets, list) else "contains": targets, "ignore_case": True}
    return [case], unsupported


def _messages(question: list[Any]) -> list[JsonObject]:
    known = ("role", "content", "name", "tool_calls", "tool_call_id")
    return [{name: each[name] for name in known if name in each} for each in question if isinstance(each, dict)]


def _multiple_choice(question: Any, options: Any, target: Any) -> JsonObject:
    """A question with lettered options, of which the letters are scored."""
    if not isinstance(question, str) or not isinstance(options, list) or not 2 <= len(options) <= len(ascii_uppercase):
        raise LeapSerializationError("expected a text and 2 to 26 choices", path="choices")
    letters = list(ascii_uppercase[: len(options)])
    answer = target[0] if isinstance(target, list) and len(target) == 1 else target
    if answer not in letters and answer in options:
        answer = letters[options.index(answer)]
    lines = "\n".join(f"{letter}) {option}" for letter, option in zip(letters, options, strict=True))
    prompt = f"{question}\n\n{lines}\n\nAnswer with the letter alone."
    return {"prompt": prompt, "expect": {"choice": answer, "of": letters}}
