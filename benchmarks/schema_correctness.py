"""Right or wrong, schema by schema: does the whole pipeline accept the valid documents and refuse the invalid ones?

    python benchmarks/schema_correctness.py FOLDER [--model MODEL.gguf] [--json REPORT] [--all]

FOLDER holds files in MaskBench's layout: {"schema": …, "tests": [{"valid": true, "data": …}, …]}. Each document is
written as json.dumps writes it and goes token by token through the constraint that a generation would have, then
through the check of the finished text. Objects have no order but a generated text has one: where the order in which a
document happens to be written is refused, the order that the constraint itself would have is tried. A valid document
with keys that the schema does not name, which generating leaves out, is judged with objects left open.

A schema counts as: right (every document judged rightly), refused (the schema is not accepted), let through (an invalid
document passes constraint and check), refused wrongly (a valid document is refused), crashed. Without --model the
vocabulary is the 256 bytes, which judges the same texts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.errors import LeapSchemaError
from leap_core.inference.constraints.grammars import EnforcedSchema, Freedom, enforce
from leap_core.schemas.grammar_matcher import ConstraintTokenizer, byte_tokenizer, tokenizer_of
from leap_core.schemas.json_schema import JsonSchema, check_schema
from leap_core.schemas.transforms import walk

if TYPE_CHECKING:
    from llguidance import LLMatcher

OUTCOMES = ("right", "refused", "let through", "refused wrongly", "crashed")
TARGET = 0.95
MOST_STEPS = 5000
"""Keys tried in search of an order."""


@dataclass
class Verdict:
    """What became of one file. ``constraint_let_through``: invalid documents that only the check refused."""

    file: str
    outcome: str
    detail: str = ""
    strict: bool = False
    documents: int = 0
    constraint_let_through: int = 0
    reordered: int = 0
    with_more_keys: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)


class Judge:
    """Runs documents through one schema's constraint and check."""

    def __init__(self, schema: JsonSchema, enforced: EnforcedSchema, tokenizer: ConstraintTokenizer) -> None:
        self._schema = schema
        self._grammar = enforced.grammar
        self._tokenizer = tokenizer
        self._orders = [list(part["properties"]) for _, part in walk(schema.document) if part.get("properties")]
        self._steps = 0
        self.reordered = 0

    def constraint_accepts(self, document: Any) -> bool:
        if self._follows(document):
            return True
        ordered = self._in_own_order(document)
        if ordered is None or not self._follows(ordered):
            return False
        self.reordered += 1
        return True

    def check_accepts(self, document: Any) -> bool:
        return not self._schema.problems(json.dumps(document, ensure_ascii=False))

    def _follows(self, document: Any) -> bool:
        matcher = self._tokenizer.matcher(self._grammar)
        tokens = self._tokenizer.tokenizer.tokenize_str(json.dumps(document, ensure_ascii=False))
        if matcher.try_consume_tokens(tokens) == len(tokens):
            return bool(matcher.is_accepting())
        self._tokenizer.forget()  # without masks llguidance gives up on some large lexers, and so do copies
        matcher = self._tokenizer.matcher(self._grammar)
        for token in tokens:
            matcher.compute_bitmask()
            if not matcher.consume_token(token):
                return False
        return bool(matcher.is_accepting())

    def _in_own_order(self, document: Any) -> Any:
        """The same document with the keys of its objects in an order that the constraint takes; None for none."""
        self._steps = MOST_STEPS
        found = self._extended(document, "", self._tokenizer.matcher(self._grammar))
        return None if found is None else json.loads(found[0])

    def _extended(self, value: Any, text: str, matcher: LLMatcher) -> tuple[str, LLMatcher] | None:
        """``text`` followed by the value in an order that is taken, and the matcher after it."""
        if isinstance(value, dict):
            return self._extended_object(value, text, matcher)
        if not isinstance(value, list):
            return self._after(json.dumps(value, ensure_ascii=False), text, matcher)
        found = self._after("[", text, matcher)
        for index, item in enumerate(value):
            if found is not None and index:
                found = self._after(", ", *found)
            found = None if found is None else self._extended(item, *found)
        return None if found is None else self._after("]", *found)

    def _extended_object(self, value: dict[str, Any], text: str, matcher: LLMatcher) -> tuple[str, LLMatcher] | None:
        opened = self._after("{", text, matcher)
        order = max(self._orders, key=lambda order: len(value.keys() & set(order)), default=[])
        keys = sorted(value, key=lambda key: order.index(key) if key in order else len(order))
        return None if opened is None else self._with_keys(value, keys, *opened)

    def _with_keys(
        self, value: dict[str, Any], left: list[str], text: str, matcher: LLMatcher
    ) -> tuple[str, LLMatcher] | None:
        """Try the keys that are left in turn, in the schema's order first, and go back from where none is taken."""
        if not left:
            return self._after("}", text, matcher)
        comma = ", " if len(left) < len(value) else ""
        for key in left:
            self._steps -= 1
            if self._steps < 0:
                return None
            named = self._after(f"{comma}{json.dumps(key, ensure_ascii=False)}: ", text, matcher)
            filled = None if named is None else self._extended(value[key], *named)
            if filled is not None:
                found = self._with_keys(value, [other for other in left if other != key], *filled)
                if found is not None:
                    return found
        return None

    def _after(self, piece: str, text: str, matcher: LLMatcher) -> tuple[str, LLMatcher] | None:
        following = matcher.deep_copy()
        tokens = self._tokenizer.tokenizer.tokenize_str(piece)
        return (text + piece, following) if following.try_consume_tokens(tokens) == len(tokens) else None


def judge(path: Path, tokenizer: ConstraintTokenizer) -> Verdict:
    """One file's verdict."""
    started = time.perf_counter()
    verdict = Verdict(path.name, "right")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        _judge_documents(content, tokenizer, verdict)
    except LeapSchemaError as error:
        verdict.outcome, verdict.detail = "refused", error.message
    except Exception as error:
        verdict.outcome, verdict.detail = "crashed", f"{type(error).__name__}: {error}"
    verdict.seconds = time.perf_counter() - started
    return verdict


def _judge_documents(content: dict[str, Any], tokenizer: ConstraintTokenizer, verdict: Verdict) -> None:
    schema = check_schema(content["schema"])
    enforced = enforce(schema, tokenizer)
    verdict.strict, verdict.warnings = enforced.exact, list(enforced.warnings)
    judging = Judge(schema, enforced, tokenizer)
    opened: Judge | None = None
    for number, test in enumerate(content.get("tests", ())):
        verdict.documents += 1
        follows = judging.constraint_accepts(test["data"])
        if test["valid"] and not follows:
            opened = opened or Judge(schema, enforce(schema, tokenizer, Freedom(additional_properties=True)), tokenizer)
            follows = opened.constraint_accepts(test["data"])
            verdict.with_more_keys += follows
        passes = follows and judging.check_accepts(test["data"])
        if test["valid"] and not (follows and passes):
            side = "constraint" if not follows else "check"
            verdict.outcome, verdict.detail = "refused wrongly", f"document {number}, by the {side}"
        elif not test["valid"]:
            verdict.constraint_let_through += follows and not passes
            if follows and passes:
                verdict.outcome, verdict.detail = "let through", f"document {number}"
                return
    verdict.reordered = judging.reordered


def model_tokenizer(path: Path) -> ConstraintTokenizer:
    from leap_core.inference.llama.model import LlamaModel

    return tokenizer_of(LlamaModel(path))


def files_of(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.json")) if folder.is_dir() else [folder]


def report(verdicts: list[Verdict]) -> str:
    """The totals as a table."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    total = max(1, len(verdicts))
    strict = sum(verdict.strict for verdict in verdicts)
    lines = [f"{name:16} {counts[name]:6} {counts[name] / total:7.1%}" for name in OUTCOMES]
    lines.append(f"{'schemas':16} {len(verdicts):6}  ({strict} of them enforced completely)")
    lines.append(f"{'documents':16} {sum(v.documents for v in verdicts):6}")
    lines.append(f"invalid documents that only the check refused: {sum(v.constraint_let_through for v in verdicts)}")
    lines.append(f"valid documents taken in another order of keys: {sum(v.reordered for v in verdicts)}")
    lines.append(f"valid documents with keys that generating leaves out: {sum(v.with_more_keys for v in verdicts)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--model", type=Path, help="judge with this model's vocabulary")
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    parser.add_argument("--all", action="store_true", help="list the files that are right, too")
    options = parser.parse_args()
    missing = [str(folder) for folder in options.folders if not folder.exists()]
    if missing:
        parser.error(f"there is no {missing[0]}")
    tokenizer = model_tokenizer(options.model) if options.model else byte_tokenizer()
    verdicts = []
    for path in files_of(options.folders):
        verdict = judge(path, tokenizer)
        verdicts.append(verdict)
        if options.all or verdict.outcome != "right":
            print(f"{verdict.outcome:16} {verdict.file}  {verdict.detail}", flush=True)
    if not verdicts:
        print("there are no .json files here", file=sys.stderr)
        return 2
    print(report(verdicts))
    if options.json:
        options.json.write_text(json.dumps([verdict.__dict__ for verdict in verdicts], indent=1), encoding="utf-8")
    counts = Counter(verdict.outcome for verdict in verdicts)
    good = counts["right"] >= TARGET * len(verdicts) and not counts["let through"] and not counts["crashed"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
