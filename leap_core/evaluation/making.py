"""Cases of answers that were good: each expects what was answered."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

from ..messages import ChatMessage, ChatMessageRole
from ..prompt_log.entry import Entry
from ..tasks.review.corrections import corrected_document
from ..tasks.review.review_lines import ReviewedDocument



def cases_of_conversation(name: str, history: Sequence[ChatMessage]) -> Iterator[JsonObject]:
    """A case for each reply of a conversation, which is asked with all that came before it."""
    for n, message in enumerate(history):
        if message.role is ChatMessageRole.ASSISTANT and n > 0:
            calls = [{"name": call.name, "arguments": call.arguments} for call in message.function_calls or ()]
            expect = expected(message.text, calls)
            if expect is not None:
                messages = [each.to_json() for each in history[:n]]
                yield {"id": f"{name}-{n}", "messages": messages, "expect": expect}


def case_of_entry(entry: Entry) -> JsonObject | None:
    """A case of a logged prompt; None for one that failed, that belongs to a longer conversation, or that had pictures
    or sound, which the log does not keep."""
    calls = []
    for each in entry.calls:
        arguments = each.get("arguments")
        calls.append({**each, "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments})
    expect = expected(entry.answer, calls)
    if entry.error is not None or entry.turns or expect is None or calls:
        return None  # the declarations of the functions are not in the log
    case: JsonObject = {"id": f"log-{entry.id}", "prompt": entry.prompt, "expect": expect}
    if entry.system:
        case["system"] = entry.system
    if entry.schema is not None:
        case["schema"] = json.loads(entry.schema)
    return case


def cases_of_batch(lines: Mapping[str, JsonObject], results: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """A case for each line of a batch that was answered; ``lines`` by their ids."""
    for result in results:
        name = str(result.get("custom_id"))
        if name not in lines or result.get("error"):
            continue
        answer = _answer(result)
        expect = expected(*answer)
        if expect is None:
            continue
        line = lines[name]
        asked = line["body"] if isinstance(line.get("body"), dict) else line
        request = {key: value for key, value in asked.items() if key not in ("id", "custom_id", "model")}
        yield {"id": name, **request, "expect": expect}


def cases_of_reviews(reviews: Sequence[ReviewedDocument], *, undecided: bool) -> Iterator[JsonObject]:
    """A case for each text of which everything was decided; ``undecided``: also for the others. Pictures, whose files
    reviews do not have, are left out. Raises LeapSerializationError where a correction breaks the schema."""
    names: set[str] = set()
    for review in reviews:
        if (review.undecided and not undecided) or not review.text.strip():
            continue
        again = (f"{review.file}#{n}" for n in count(2))
        name = next(each for each in chain([review.file], again) if each not in names)
        names.add(name)
        request = {"task": "extract", "schema": review.schema, "text": review.text}
        yield {"id": name, **request, "expect": {"json": corrected_document(review)}}


def expected(text: str, calls: Sequence[JsonObject]) -> JsonObject | None:
    """What is expected where this was a good answer: the same calls, an equal document, or the same text."""
    if calls:
        return {"calls": [{"name": each["name"], "arguments": each["arguments"]} for each in calls]}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, (dict, list)):
        return {"json": value}
    return {"equals": text.strip()} if text.strip() else None


def _answer(result: JsonObject) -> tuple[str, list[JsonObject]]:
    if result.get("response"):
        message = result["response"]["body"]["choices"][0]["message"]
        text, calls = message.get("content") or "", message.get("tool_calls") or []
    else:
        text, calls = str(result.get("answer", result.get("text", ""))), result.get("tool_calls") or []
    functions = [each["function"] for each in calls]
    return text, [{"name": each["name"], "arguments": json.loads(each["arguments"])} for each in functions]
