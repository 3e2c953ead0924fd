"""The forms in which cases come: leap's own, and the shapes that other programs give their records.

Such a record does not say how its answer is compared. leap takes what both compare by most: an ideal answer begins the
answer (evals' Match), and a target is in it, in any case (inspect_ai's includes).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from ..batch.input.small_files import Row
from ..errors import LeapError, LeapSerializationError
from ..schemas.json_values import JsonObject
from . import promptfoo
from .promptfoo import ConvertedCases
from .table_rows import of_table

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


def is_bfcl_question(row: Any) -> bool:
    """Whether a row is a question of the leaderboard."""
    return isinstance(row, dict) and "expect" not in row and isinstance(row.get("question"), list)


def answers_beside(path: Path) -> dict[str, Any]:
    """The expected calls by the question's id; empty where there is no such file. Raises LeapSerializationError."""
    file = path.parent / ANSWERS / path.name
    if not file.is_file():
        return {}
    try:
        lines = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line.strip()]
        return {line["id"]: line["ground_truth"] for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LeapSerializationError(f"cannot read {file}: {error}") from None


def bfcl_case_of(row: JsonObject, answers: dict[str, Any]) -> JsonObject:
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


IGNORED = ("setup", "files", "sandbox")
"""Fields of inspect_ai that ask for more than an answer."""


def is_evals_record(row: JsonObject) -> bool:
    """Whether a row is a record of one of both."""
    return "expect" not in row and ("item" in row or ("input" in row and ("ideal" in row or "target" in row)))


def evals_case_of(row: JsonObject) -> tuple[list[JsonObject], list[str]]:
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


def as_cases(document: JsonObject | None, rows: Sequence[Row], path: Path) -> ConvertedCases:
    """The records of a file as cases of leap. Raises LeapSerializationError."""
    if document is not None:
        if "tests" in document or "prompts" in document:
            return promptfoo.of_document(document, path)
        if isinstance(document.get("cases"), list):
            rows = [(f"case {n}", each) for n, each in enumerate(document["cases"], 1)]
        else:
            rows = [("the document", document)]
    shaped = ConvertedCases()
    answers = answers_beside(path) if rows and is_bfcl_question(rows[0][1]) else {}
    table = path.suffix.lower() in (".csv", ".tsv")
    for place, row in rows:
        try:
            records, unsupported = _shaped(row, answers, table=table)
        except LeapError as error:
            raise LeapSerializationError(f"{path.name}, {place}: {error.message}", hint=error.hint) from None
        shaped.records += [(place, record) for record in records]
        shaped.unsupported += [f"{place}: {each}" for each in unsupported]
    return shaped


def _shaped(row: Any, answers: dict[str, Any], *, table: bool) -> tuple[list[Any], list[str]]:
    if not isinstance(row, dict):
        return [row], []
    if is_bfcl_question(row):
        return [bfcl_case_of(row, answers)], []
    if promptfoo.is_test(row):
        return promptfoo.case_of(row)
    if is_evals_record(row):
        return evals_case_of(row)
    return [of_table(row) if table else row], []
