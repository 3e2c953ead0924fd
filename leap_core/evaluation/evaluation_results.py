"""What came of each case in each column, and what is known of a column: kept as JSON lines."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..batch.checking import CheckedBatch
from ..errors import LeapSerializationError
from ..storage.atomic_files import replace_text
from .expectations.expectation import Answer, Verdict

RESULTS, FACTS = "results.jsonl", "evaluation.json"


@dataclass(frozen=True)
class CaseResult:
    """One answer to one case. ``score``: 1 or 0, or between where an expectation gives grades. ``expectations``: name,
    passed, score and message of each. ``error``: why there is no answer. Times in seconds."""

    case: str
    column: str
    repeat: int = 0
    group: str | None = None
    weight: float = 1.0
    passed: bool = False
    score: float = 0.0
    answer: str = ""
    tool_calls: Sequence[JsonObject] = ()
    finish_reason: str = ""
    tokens: int = 0
    tokens_per_second: float | None = None
    first_token: float | None = None
    expectations: Sequence[JsonObject] = ()
    error: str | None = None
    prompt: str = ""

    def failed(self, error: str) -> CaseResult:
        """The same without an answer."""
        return replace(self, error=error)

    def answered(
        self, answer: Answer, verdicts: Sequence[tuple[str, float, Verdict]], stats: Mapping[str, Any]
    ) -> CaseResult:
        """The same with an answer and what was found of it; ``verdicts``: name, weight and verdict."""
        passed = all(verdict.passed for _, _, verdict in verdicts)
        score = float(passed)
        if any(verdict.graded for _, _, verdict in verdicts):
            total = sum(weight for _, weight, _ in verdicts)
            score = sum(weight * verdict.score for _, weight, verdict in verdicts) / total if total else 0.0
        return replace(
            self,
            passed=passed,
            score=score,
            answer=answer.text,
            tool_calls=[{"name": name, "arguments": dict(arguments)} for name, arguments in answer.calls],
            finish_reason=answer.finish,
            tokens=answer.tokens,
            tokens_per_second=stats.get("token_per_second") or None,
            first_token=stats.get("time_to_first_token") or None,
            expectations=[_told(name, verdict) for name, _, verdict in verdicts],
        )

    @property
    def problems(self) -> list[str]:
        """What was not as expected."""
        if self.error is not None:
            return [f"no answer: {self.error}"]
        return [f"{each['expect']}: {each['message']}" for each in self.expectations if not each["passed"]]

    def to_json(self) -> JsonObject:
        """A line of the results."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class ColumnFacts:
    """What is known of a column beside its answers. ``fingerprint``: a text that is equal when model, loading and
    template are. ``memory``: bytes that the process grew by with the model, and at least its file's ``size``."""

    name: str
    model: str
    fingerprint: JsonObject = field(default_factory=dict)
    memory: int | None = None
    path: Path | None = None
    size: int = 0

    @staticmethod
    def of(output: Path, name: str, checked: CheckedBatch, size: int) -> ColumnFacts:
        """The facts of a column whose results go to this file; what was measured before is known still."""
        path = output.with_suffix(".facts.json")
        fingerprint = json.loads(checked.fingerprint) if checked.fingerprint.startswith("{") else {}
        facts = ColumnFacts(name, checked.model, fingerprint, None, path, size)
        try:
            kept = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return facts
        if kept.get("fingerprint") == fingerprint:
            facts.memory = kept.get("memory")
        return facts

    def keep(self) -> None:
        """Write them beside the column's results."""
        if self.path is not None:
            replace_text(self.path, json.dumps(self.to_json()))

    def to_json(self) -> JsonObject:
        return {"name": self.name, "model": self.model, "fingerprint": self.fingerprint, "memory": self.memory}


def write_results(directory: Path, results: Iterable[CaseResult], facts: JsonObject) -> None:
    """Keep what came of an evaluation."""
    replace_text(
        directory / RESULTS, "".join(json.dumps(each.to_json(), ensure_ascii=False) + "\n" for each in results)
    )
    replace_text(directory / FACTS, json.dumps(facts, ensure_ascii=False, indent=2) + "\n")


def read_results(place: Path) -> tuple[list[CaseResult], JsonObject]:
    """The results of an evaluation and its facts, from its directory or its file of results. Raises
    LeapSerializationError."""
    path = place / RESULTS if place.is_dir() else place
    names = {each.name for each in fields(CaseResult)}
    try:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        results = [CaseResult(**{name: value for name, value in each.items() if name in names}) for each in records]
    except OSError as error:
        hint = "leap eval CASES -m MODEL makes them"
        raise LeapSerializationError(f"cannot read results from {path}: {error.strerror}", hint=hint) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise LeapSerializationError(f"{path} has no results of an evaluation: {error}") from None
    if not results:
        raise LeapSerializationError(f"{path} has no results")
    try:
        facts = json.loads(path.with_name(FACTS).read_text("utf-8"))
    except (OSError, ValueError):
        facts = {}
    return results, facts


def _told(name: str, verdict: Verdict) -> JsonObject:
    return {"expect": name, "passed": verdict.passed, "score": verdict.score, "message": verdict.message}
