"""How well doubt finds what a model extracted wrongly: reviews of texts whose values are known, made without a person.

    python benchmarks/doubt.py MODEL reviewed.jsonl --texts 160 && leap extract --calibrate reviewed.jsonl

Each value that the model wrote is accepted where it is the known one, and rejected else. Every schema asks for two more
fields, of which the texts say nothing. Texts that fail, such as one whose answer repeats itself, are counted.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from harness import user

from leap_core import Leap
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.responses import Complete
from leap_core.errors import LeapError
from leap_core.tasks.evidence.values import moment_of
from leap_core.tasks.review.documents import ABSENT, ReviewedDocument, read_review, review_document, write_reviews
from leap_core.tasks.task_fields import read_task
from tests.tasks.evidence.texts import KINDS, Text, texts

ABSENT_FIELDS = ("clerk", "account")
"""Fields whose values the generator invented: the texts do not have them."""
CUT = GenerationOptions(max_tokens=120, complete_json=True)


def schema_of(value: Any) -> dict[str, Any]:
    """The schema of a document's shape."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: schema_of(part) for name, part in value.items()}}
    if isinstance(value, list):
        return {"type": "array", "items": schema_of(value[0])}
    return {"type": "string" if isinstance(value, str) else "integer" if isinstance(value, int) else "number"}


def known(text: Text, pointer: str) -> Any:
    """The value that the text says, or None."""
    value: Any = {name: part for name, part in text.document.items() if text.places.get(f"/{name}", ()) is not None}
    for part in pointer.split("/")[1:]:
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def decided(text: Text, review: ReviewedDocument) -> ReviewedDocument:
    """The review with a decision of each value that the model wrote."""
    line = review.to_json()
    for entry in line["evidence"]:
        if entry["how"] != ABSENT:
            right, value = known(text, entry["pointer"]), entry["value"]
            entry["decision"] = "accept" if right is not None and _same(value, right) else "reject"
    return read_review(line)


def _same(value: Any, right: Any) -> bool:
    """Whether a person would let a value stand: equal but for cases, and dates however they are written."""
    if not isinstance(value, str):
        return bool(value == right)
    day = moment_of(value)
    return value.casefold() == str(right).casefold() or (day is not None and day == moment_of(str(right)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("reviewed", type=Path)
    parser.add_argument("--texts", type=int, default=160)
    parser.add_argument("--kinds", default="plain,forms,emoji,noise", help="of tests/tasks/evidence/texts.py")
    given = parser.parse_args()
    reviews, failed = [], 0
    kinds = given.kinds.split(",")
    wanted = [text for text in texts(given.texts * len(KINDS)) if text.kind in kinds][: given.texts]
    started = time.monotonic()
    with Leap.load(given.model, host="never") as runner:

        def ask(messages: Any, options: Any, on_text: Any = None) -> Complete:
            *_, end = runner.start(messages, (), options)
            assert isinstance(end, Complete)
            return end

        for number, text in enumerate(wanted):
            asked = {name: part for name, part in text.document.items() if name not in ("stranger", "due")}
            assert set(ABSENT_FIELDS) <= set(asked)
            task, _ = read_task({"task": "extract", "schema": schema_of(asked), "evidence": True})
            try:
                reply = task.complete(runner, user(text.text), ask, name=f"{number}.txt", overrides=CUT)
            except LeapError:
                failed += 1
                continue
            document = json.loads(reply.full_message.text)
            found = (reply.details or {})["evidence"]
            review = review_document(f"{text.kind}-{number}.txt", text.text, schema_of(asked), document, found)
            reviews.append(decided(text, review))
    write_reviews(given.reviewed, reviews)
    decisions = [each["decision"] for review in reviews for each in review.evidence if "decision" in each]
    took = time.monotonic() - started
    print(f"{len(reviews)} texts ({failed} others failed) in {took:.0f} s")
    print(f"{len(decisions)} values, {decisions.count('reject')} of them wrong")


if __name__ == "__main__":
    main()
