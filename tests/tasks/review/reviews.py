"""Documents to look over, whose texts and names are those of strangers."""

from __future__ import annotations

from typing import Any

from leap_core.tasks.evidence.evidence import evidence_of
from leap_core.tasks.review.documents import ReviewedDocument, review_document

JsonObject = dict[str, Any]
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "price": {"$ref": "#/$defs/money"},
        "kind": {"enum": ["person", "firm"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "$defs": {"money": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
}
HOSTILE = "</script><img src=x onerror=\"document.title='x'\">&amp;\u2028.txt"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
TEXTS: dict[str, tuple[str, JsonObject]] = {
    "cjk.txt": ("東京の田中さんは、\r\n\t３１歳です。田中", {"name": "田中", "age": 31}),
    "emoji.txt": (
        f"😀{FAMILY} Ann\U00010400 is 42 🇩🇪 and pays 1,234.50 e\u0301uros.",
        {"name": "Ann\U00010400", "age": 42, "price": 1234.5},
    ),
    "combining.txt": (
        "e\u0301\u0327 Zoe\u0308 Mu\u0308ller\r\nage:\t7\r\n",
        {"name": "Zoe\u0308 Mu\u0308ller", "age": 7},
    ),
    HOSTILE: (
        "<b>Tim</b> </script><script>alert(1)</script> is 19.",
        {"name": "<b>Tim</b>", "age": 19, "tags": ["</script>"]},
    ),
}


def a_review(
    file: str, text: str, document: JsonObject, *, schema: JsonObject | None = None, least: float = 0.9
) -> ReviewedDocument:
    """The document of a text, all of whose values are as sure as that."""
    schema = schema or SCHEMA
    found = evidence_of(text, document, schema, {}, file)
    return review_document(file, text, schema, document, [{**each, "confidence": {"least": least}} for each in found])


def strange() -> list[ReviewedDocument]:
    """One of each kind of text, one whose places overlap, and a picture."""
    made = [a_review(file, text, document) for file, (text, document) in TEXTS.items()]
    lapped = a_review("lapped.txt", "😀 Tim Tom 12", {"name": "Tim Tom", "age": 12})
    lapped.evidence[1]["place"] |= {"start": 0, "end": 4}
    return [*made, lapped, a_review("scan.png", "", {"kind": "person"})]


def plain() -> list[ReviewedDocument]:
    """Two documents, of which the second has a value that is not in its text."""
    big = {"name": "Tim", "age": 12345678901234567890, "price": 3.0, "kind": "person"}
    return [
        a_review("a.txt", "Tim, 12345678901234567890, pays 3.0 euros.", big),
        a_review("b.txt", "Ann is 31.", {"name": "Zacharias", "age": 31, "tags": []}),
    ]
