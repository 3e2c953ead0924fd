"""What a JSON schema costs while generating, at a vocabulary of 65,536 tokens: leap with a schema against leap without,
and against llama.cpp's own grammar sampler in the same engine; and how long a large schema takes before one token.

    python benchmarks/constraints.py bench-q4_0.gguf

The three kinds of decoding take turns on one loaded model. The model's weights are random, so its strings are noise and
every position of them needs a full mask: the expensive case. Before its first token leap also checks a schema against
its draft's meta-schema, which llama.cpp does not; that is most of the time of a large schema that is new.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import time
from typing import Any

import numpy as np
from harness import Row, alternate, arguments, options, report, runner, sized, words

from leap_core.conversation.options import GenerationOptions
from leap_core.inference.constraints.compiling import compile_constraint
from leap_core.inference.constraints.token_constraints import TokenConstraint
from leap_core.inference.engine.request import PromptTokens, Request, SequenceEnd, Tokens
from leap_core.inference.engine.sampler import RUNTIME_DEFAULTS, Sampler
from leap_core.inference.llama.model import LlamaModel
from leap_core.inference.runner import InProcessRunner
from leap_core.schemas.grammar_matcher import tokenizer_of

TOKENS = sized(128)
PROMPT_TOKENS = 256
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 40},
        "email": {"type": "string", "minLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 8},
        "kind": {"enum": ["person", "company", "robot"]},
    },
    "required": ["name", "email", "age", "tags", "kind"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": RECORD, "minItems": 50}
FRESH = itertools.count()


def large_schema() -> str:
    """Some 60 kB, another text each time, so that nothing compiled before can be used again."""
    mark = next(FRESH)
    parts = {f"part_{n}": {**RECORD, "title": f"{mark} {n}"} for n in range(150)}
    return json.dumps({"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False})


class LlamaCppGrammar:
    """llama.cpp's grammar sampler, called through ctypes, as a constraint of leap's engine."""

    finished = False

    def __init__(self, model: LlamaModel, gbnf: str) -> None:
        import llama_cpp

        self._lib: Any = llama_cpp
        self._sampler = llama_cpp.llama_sampler_init_grammar(model.llama_vocab, gbnf.encode(), b"root")
        assert self._sampler, "llama.cpp refuses the grammar"
        kind = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)], align=True)
        self._data = np.zeros(model.n_tokens, dtype=kind)
        self._ids = np.arange(model.n_tokens, dtype=np.int32)

    def apply(self, logits: Any) -> None:
        lib, data = self._lib, self._data
        data["id"], data["logit"] = self._ids, logits
        pointer = data.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
        array = lib.llama_token_data_array(data=pointer, size=len(data), selected=-1, sorted=False)
        lib.llama_sampler_apply(self._sampler, ctypes.byref(array))
        logits[data["id"]] = data["logit"]

    next_grammar = None

    def forced_tokens(self) -> list[int]:
        return []

    def accept(self, token: int) -> None:
        self._lib.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        self._lib.llama_sampler_free(self._sampler)


def gbnf_of(schema: str) -> str:
    """llama-cpp-python's translation of a schema."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    return str(json_schema_to_gbnf(schema))


def decode_speed(model: InProcessRunner, constraint: TokenConstraint | None) -> float:
    """Tokens a second of one sequence, after its first token."""
    asked = options(TOKENS).with_defaults(RUNTIME_DEFAULTS)
    ids = model.model.tokenize(words(PROMPT_TOKENS), parse_special=False)
    sequence = Request(
        PromptTokens((Tokens(tuple(ids)),)), Sampler(asked, ids), max_tokens=TOKENS, constraint=constraint
    )
    model.scheduler.submit(sequence)
    while not isinstance(event := sequence.events.get(), SequenceEnd):
        pass
    assert event.error is None and event.stats.completion_tokens == TOKENS, event
    return event.stats.token_per_second


def llguidance_constraint(model: LlamaModel, schema: str) -> TokenConstraint:
    compiled = compile_constraint(GenerationOptions(json_schema_constraint=schema), (), model)
    assert compiled is not None and compiled.constraint is not None and compiled.exact
    return compiled.constraint


def first_mask(model: LlamaModel, schema: str | None = None) -> float:
    """Seconds from a large schema's text (a new one when None) to the logits of the first token, masked."""
    schema = schema or large_schema()
    logits = np.zeros(model.n_tokens, dtype=np.float32)
    started = time.perf_counter()
    llguidance_constraint(model, schema).apply(logits)
    return time.perf_counter() - started


def first_mask_of_llama_cpp(model: LlamaModel) -> float:
    schema, logits = large_schema(), np.zeros(model.n_tokens, dtype=np.float32)
    started = time.perf_counter()
    grammar = LlamaCppGrammar(model, gbnf_of(schema))
    grammar.apply(logits)
    passed = time.perf_counter() - started
    grammar.close()
    return passed


def main() -> None:
    given = arguments(__doc__ or "")
    schema = json.dumps(SCHEMA)
    with runner(given.model, threads=given.threads) as loaded:
        vocabulary = loaded.model
        started = time.perf_counter()
        tokenizer_of(vocabulary)
        print(f"vocabulary of {vocabulary.n_tokens} tokens read once, in {time.perf_counter() - started:.2f} s")

        def theirs() -> float:
            grammar = LlamaCppGrammar(vocabulary, gbnf_of(schema))
            speed = decode_speed(loaded, grammar)
            grammar.close()
            return speed

        with_schema, without, with_llama_cpp = alternate(
            given.repeat,
            lambda: decode_speed(loaded, llguidance_constraint(vocabulary, schema)),
            lambda: decode_speed(loaded, None),
            theirs,
        )
        known = large_schema()
        first_mask(vocabulary, known)
        new, again, by_llama_cpp = alternate(
            given.repeat,
            lambda: first_mask(vocabulary),
            lambda: first_mask(vocabulary, known),
            lambda: first_mask_of_llama_cpp(vocabulary),
        )
    size = len(large_schema()) // 1000
    report(
        f"Constraints, {given.model.name}, {given.threads} threads, {TOKENS} tokens",
        [
            Row("decode, tokens/s", "with a schema", with_schema, "without", without, ">= 0.95"),
            Row("decode, tokens/s", "with a schema", with_schema, "llama.cpp's grammar", with_llama_cpp, "> 1"),
            Row(
                f"first mask, new schema of {size} kB, s", "leap", new, "llama.cpp's grammar", by_llama_cpp, "reported"
            ),
            Row("first mask, the same schema again, s", "leap", again, "llama.cpp's grammar", by_llama_cpp, "< 1"),
        ],
    )


if __name__ == "__main__":
    main()
