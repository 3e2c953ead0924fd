"""The search for a better prompt by GEPA: failures of cases are reflected on by a model, which rewrites the prompt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import LeapError, LeapUnavailableError
from ..cases import Case
from ..results import CaseResult

CALLS_A_CASE = 10
"""How often each case is asked at most."""

AskWith = Callable[[str, Sequence[Case]], list[CaseResult]]
"""The results of cases with this text before each question."""


class Ended(LeapError):
    """It was stopped, or the budget is spent."""


def better_prompt(
    opening: str | None,
    cases: Sequence[Case],
    ask: AskWith,
    reflect: Callable[[str], str],
    seed: int,
    stop: threading.Event,
) -> str | None:
    """The best text before each question that is found over these cases, ``opening`` being that of now. Raises
    LeapUnavailableError without the library, and Ended."""
    try:
        import gepa
    except ImportError:
        raise LeapUnavailableError(
            "rewriting prompts needs a library", hint="pip install 'leap-edge[improve]'"
        ) from None
    try:
        result = gepa.optimize(
            seed_candidate={"system": opening or "You are a helpful assistant."},
            trainset=list(cases),
            valset=list(cases),
            adapter=_CaseAdapter(ask),
            reflection_lm=reflect,
            max_metric_calls=CALLS_A_CASE * len(cases),
            stop_callbacks=[lambda _state: stop.is_set()],
            logger=_NoLog(),
            seed=seed,
            raise_on_exception=True,
        )
    except LeapError:
        raise
    except Exception as error:  # what a model writes may be anything
        raise LeapUnavailableError(f"the search for prompts ended: {type(error).__name__}: {error}") from None
    if stop.is_set():
        raise Ended("stopped")
    return str(result.best_candidate["system"])


class _CaseAdapter:
    """GEPA's adapter: asks cases with a candidate's text."""

    propose_new_texts = None

    def __init__(self, ask: AskWith) -> None:
        self._ask = ask

    def evaluate(self, batch: list[Case], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        once = {case.id: case for case in batch}  # GEPA fills its last batch with cases that it already has
        found = {each.case: each for each in self._ask(candidate["system"], list(once.values()))}
        results = [found[case.id] for case in batch]
        return EvaluationBatch([each.answer for each in results], [each.score for each in results], results)

    def make_reflective_dataset(self, candidate: dict[str, str], evaluated: Any, components: list[str]) -> Any:
        examples = [
            {
                "Inputs": each.prompt,
                "Generated Outputs": each.answer,
                "Feedback": "; ".join(each.problems) or "This answer is as expected.",
            }
            for each in evaluated.trajectories
        ]
        return {name: examples for name in components}


class _NoLog:
    def log(self, message: str) -> None: ...
