"""Errors survive the wire."""

from __future__ import annotations

import json

import pytest

from leap_core import GenerationStats, errors
from leap_core.schemas.json_values import error_from_json, error_to_json

SPECIAL = [
    errors.LeapGenerationPromptExceedContextLengthError(9, 8),
    errors.LeapConstraintError("no", text="[]", problems=["a", "b"], stats=GenerationStats(1, 2, 3, 4.5)),
    errors.LeapConstraintError("no", text="", hint="try", cut_by="max_tokens"),
    errors.LeapSchemaError("no", pointer="/a/0"),
    errors.LeapOptionsError("top_k", "too small"),
    errors.LeapSerializationError("no", path="messages[0]"),
    errors.LeapGuardError("message", "is_rude", 0.9, 0.5),
]
KINDS = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LeapError)}
PLAIN = [
    kind("what and where", hint="what to do")
    for kind in sorted(KINDS - {type(error) for error in SPECIAL}, key=lambda kind: kind.__name__)
]


@pytest.mark.parametrize("error", [*SPECIAL, *PLAIN], ids=lambda error: type(error).__name__)
def test_an_error_arrives_with_its_class_and_fields(error):
    back = error_from_json(json.loads(json.dumps(error_to_json(error))))
    assert type(back) is type(error) and str(back) == str(error) and vars(back) == vars(error)


def test_an_unknown_class_arrives_as_its_nearest_known_base():
    class LeapNovelError(errors.LeapModelLoadingError):
        pass

    back = error_from_json(error_to_json(LeapNovelError("new", hint="update")))
    assert type(back) is errors.LeapModelLoadingError and back.hint == "update"


@pytest.mark.parametrize("value", [None, 3, [], {}, {"message": 3}, {"classes": ["ValueError"], "message": "x"}])
def test_unreadable_error_json_is_a_generation_error(value):
    assert type(error_from_json(value)) is errors.LeapGenerationError
