"""A few of the generated documents: ``python -m tests.tasks.documents`` does a thousand."""

from __future__ import annotations

import pytest

from .documents import HOSTILE, SCHEMAS, documents, extract


@pytest.mark.slow
def test_each_document_ends_with_its_json_or_a_named_failure(builtin):
    work = [*documents(6), *((text, "name, age int") for text in HOSTILE[:3])]
    outcomes = [extract(builtin, text, schema) for text, schema in work]
    assert [outcome.problem for outcome in outcomes if outcome.problem] == []
    assert sum(outcome.kind == "JSON" for outcome in outcomes) > len(outcomes) // 2


def test_the_documents_are_of_all_kinds():
    work = list(documents(1000))
    assert len({str(schema) for _, schema in work}) == len(SCHEMAS)
    assert max(len(text) for text, _ in work) > 4000 and any("<|im_end|>" in text for text, _ in work)
