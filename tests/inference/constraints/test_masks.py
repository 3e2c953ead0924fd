"""Masks of several constraints that are filled side by side are those that each fills alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from leap_core.conversation.calls import parser_named
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapGenerationError
from leap_core.inference.constraints.compiling import compile_constraint
from leap_core.inference.constraints.masks import MaskFiller
from leap_core.inference.constraints.token_constraints import ForbiddenTokens
from leap_core.inference.llama.model import LlamaModel

from .test_generation import LIGHT, NOW, SCHEMA


def constraints(vocabulary: LlamaModel) -> list[Any]:
    """One of each kind, and what has none."""
    options = (
        GenerationOptions(json_schema_constraint=json.dumps(SCHEMA)),
        GenerationOptions(choices_constraint=["yes", "no", "one and only"]),
        GenerationOptions(regex_constraint="[a-f]{3}[0-9]{12,40}"),
        GenerationOptions(json_schema_constraint='{"type": "array", "items": {"type": "integer"}, "minItems": 9}'),
    )
    found: list[Any] = [None, ForbiddenTokens([3])]
    for each in options:
        for opened in (False, True):
            compiled = compile_constraint(each, [], vocabulary, reasoning_open=opened, room=30)
            found.append(compiled.constraint)
    for choice in ("required", "auto"):
        asked = GenerationOptions(tool_choice=choice)
        found.append(compile_constraint(asked, [LIGHT, NOW], vocabulary, parser=parser_named("lfm")).constraint)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_texts_of_many_constraints_equal_those_of_each_alone(seed: int, vocabulary: LlamaModel) -> None:
    side_by_side, alone = constraints(vocabulary), constraints(vocabulary)
    filler, draw = MaskFiller(2, vocabulary.n_tokens), np.random.default_rng(seed)
    ended: set[int] = set()
    filled = 0
    for _ in range(25):
        going = [n for n, each in enumerate(alone) if each is not None and n not in ended]
        filler.fill(side_by_side[n].next_grammar for n in going)
        for n in going:
            grammar = side_by_side[n].next_grammar
            filled += grammar is not None and grammar._is_filled
            logits = draw.normal(0, 3, vocabulary.n_tokens).astype(np.float32)
            other = logits.copy()
            side_by_side[n].apply(logits)
            alone[n].apply(other)
            assert np.array_equal(logits, other)
            token = int(logits.argmax())
            if token in vocabulary.eog_tokens:
                ended.add(n)
                continue
            for each in (side_by_side[n], alone[n]):
                each.accept(token)
            if alone[n].finished:
                ended.add(n)
    assert filled > 20


def test_a_constraint_without_allowed_tokens_fails_alone(vocabulary: LlamaModel) -> None:
    broken, *others = (
        compile_constraint(GenerationOptions(regex_constraint="[a-f]{9}"), [], vocabulary).constraint for _ in range(4)
    )
    with pytest.raises(LeapGenerationError):
        broken.accept(vocabulary.tokenize("z", parse_special=False)[0])
    MaskFiller(2, vocabulary.n_tokens).fill([each.next_grammar for each in (broken, *others)])
    for each in others:
        logits = np.zeros(vocabulary.n_tokens, np.float32)
        each.apply(logits)
        assert 0 < (logits == 0).sum() < 100
    with pytest.raises(LeapGenerationError):
        broken.apply(np.zeros(vocabulary.n_tokens, np.float32))
