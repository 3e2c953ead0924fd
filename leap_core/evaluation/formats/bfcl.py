"""The Berkeley Function-Calling Leaderboard's questions, as the wheel ``bfcl-eval`` has them: a file of questions, and
the answers in a file of the same name in ``possible_answer`` beside it. One turn alone is read."""

from __future__ import annotations

from ...json_fields import JsonObject
import json
from pathlib import Path
from typing import Any

from ...errors import LeapSerializationError

ANSWERS = "possible_answer"
TYPES = {
    **dict.fromkeys(("dict", "HashMap"), "object"),
    **dict.fromkeys(("tuple", "ArrayList", "Array"), "array"),
    **dict.fromkeys(("float", "double", "Double"), "number"),
    **dict.fromkeys(("long", "byte", "short", "Integer"), "integer"),
    **dict.fromkeys(("String", "char"), "string"),
    "Boolean": "boolean",
}
"""The leaderboard's types as JSON Schema's; ``any`` is none."""
KEYWORDS = ("description", "enum", "default", "required")


def is_question(row: Any) -> bool:
    """Whether a row is a question of the leaderboard."""
    return isinstance(row, dict) and "expect" not in row and isinstance(row.get("question"), list)


def answers_beside(path: Path) -> dict[str, Any]:
    """The expected calls by the question's id; empty where there is no such file. Raises LeapSerializationError."""
    file = path.parent / ANSWERS / path.name
    if not file.is_file():
        return {}
    try:
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
        return {line["id"]: line["ground_truth"] for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LeapSerializationError(f"cannot read {file}: {error}") from None


def case_of(row: JsonObject, answers: dict[str, Any]) -> JsonObject:
    """A question as a case. Raises LeapSerializationError for one of several turns, or without an answer."""
    turns, identifier = row["question"], str(row.get("id", ""))
    if len(turns) != 1 or "function" not in row:
        raise LeapSerializationError("only questions of one turn with their functions are supported", path="question")
    functions = row["function"] if isinstance(row["function"], list) else [row["function"]]
    tools = [{"type": "function", "function": _declared(function)} for function in functions]
    if identifier in answers:
        expected: JsonObject = {"calls": answers[identifier]}
    elif "irrelevance" in identifier:
        expected = {"no_calls": True}
    elif "relevance" in identifier:
        expected = {"calls": "any"}
    else:
        raise LeapSerializationError(
            f"there is no expected answer for {identifier}", hint=f"put the file of answers into {ANSWERS}/ beside it"
        )
    group = identifier.rpartition("_")[0] or None
    return {"id": identifier, "group": group, "messages": turns[0], "tools": tools, "expect": expected}


def _declared(function: JsonObject) -> JsonObject:
    name = str(function["name"]).replace(".", "_")
    return {
        **function,
        "name": name,
        "parameters": _schema(function.get("parameters", {"type": "dict", "properties": {}})),
    }


def _schema(value: JsonObject) -> JsonObject:
    """A description of a value as JSON Schema."""
    kind = value.get("type")
    schema: JsonObject = {name: value[name] for name in KEYWORDS if name in value}
    if isinstance(kind, str) and kind != "any":
        schema["type"] = TYPES.get(kind, kind)
    if isinstance(value.get("properties"), dict):
        schema["properties"] = {name: _schema(each) for name, each in value["properties"].items()}
    if isinstance(value.get("items"), dict):
        schema["items"] = _schema(value["items"])
    return schema
