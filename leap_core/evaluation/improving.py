"""From cases to the cheapest way of asking that passes them: a ladder of rungs, each an evaluation.

Cases are split into three parts by seed: ``train`` gives examples, failures to reflect on and training data; ``choose``
selects the ways that a paired test finds better; ``held`` is looked at once, at the end: what was selected is kept only
where one test finds it better there too. Every answer is in the journal of a batch, and every reflection in a file: the
same call goes on where it was ended, and the same cases, seed and models climb the same ladder.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from ..errors import LeapError, LeapUnavailableError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from ..system.files import replace_text
from ..tasks.recipe import Recipe, literal, parse_recipe
from .cases import Case, CaseFile
from .lora import LEAST_EXAMPLES, TrainingWish, train
from .results import CaseResult, compare, summary_of
from .running import Column
from .splitting import doubts_about, questions_of, split

SELECTION_ALPHA, ALPHA = 0.1, 0.05
"""Of the test on ``choose`` that selects a way, and the one test on ``held`` that keeps what was selected. The second
bounds the chance to keep something that is no better, however many ways are tried."""
EXAMPLES = (4, 8)
MOST_LABELS = 20
TOLD = 6
"""Cases that fail still, which a report shows."""
CALLS_A_CASE = 10
"""Of the search for prompts, for each case of ``train``."""
CHOOSING = ("classify", "decide")
"""Tasks that read probabilities, and draw nothing."""
WHENS = ("invalid", "uncertain<0.7", "uncertain<0.9")

Ask = Callable[[Column, Sequence[Case], str], list[CaseResult]]
"""Puts cases of a part to a column. Raises Ended."""


class Ended(LeapError):
    """It was stopped, or the budget is spent."""


@dataclass(frozen=True)
class ImprovementWish:
    """``start``: how cases are asked now. ``goal``: the rate that is enough. ``reflect`` gives what a model says to a
    prompt, None where prompts are not rewritten. ``escalate_to``: a larger model. ``checkpoint``: that of the model, to
    train over. ``thinks``: the model can reason. ``recipe``: of the task that the cases are of, and ``model_id``, the
    name that the model has for recipes; None for prompts."""

    file: CaseFile
    start: Column
    directory: Path
    goal: float = 0.95
    seed: int = 1
    reflect: Callable[[str], str] | None = None
    escalate_to: str | None = None
    checkpoint: Path | None = None
    thinks: bool = False
    recipe: Recipe | None = None
    model_id: str = ""

    def opening_of(self, column: Column) -> str | None:
        """The text that a column says before each question: the system prompt, of a task that of its recipe."""
        if self.recipe is None:
            return column.system
        source = column.recipes.get(self.recipe.name)
        recipe = self.recipe if source is None else parse_recipe(self.recipe.name, source)
        return recipe.wording_for(self.model_id).system or None

    def with_opening(self, column: Column, text: str | None) -> Column:
        """The column with another text before each question."""
        if self.recipe is None:
            return replace(column, system=text)
        recipe = self.recipe.with_system(self.model_id, text or "")
        return replace(column, recipes={**column.recipes, recipe.name: recipe.source})


@dataclass(frozen=True)
class Step:
    """A way that was tried. ``p``: one-sided, against the best before, on ``choose``; None for the first."""

    rung: str
    way: str
    rate: float
    low: float
    high: float
    tokens: float
    seconds: float
    p: float | None
    kept: bool


@dataclass(frozen=True)
class Improved:
    """The result. ``before`` and ``after``: rates on ``held``. ``p``: one-sided, of what was selected there. ``notes``:
    rungs that were not tried. ``failing``: cases of ``held`` that still fail, and why. ``opening``: the text before
    each question, at the start and now. ``rejected``: what was selected and is not kept, and its rate on ``held``.
    ``doubts``: about the cases."""

    column: Column
    steps: list[Step]
    notes: list[str]
    before: float
    after: float
    p: float
    cases: dict[str, int]
    start: Column
    failing: list[tuple[str, str]] = field(default_factory=list)
    opening: tuple[str | None, str | None] = (None, None)
    rejected: tuple[str, float] | None = None
    doubts: list[str] = field(default_factory=list)

    @property
    def is_better(self) -> bool:
        """Whether a rung was kept."""
        return any(step.kept for step in self.steps[1:])

    @property
    def outcome(self) -> str:
        """What is kept and why, in a sentence or two."""
        sure = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        if self.rejected is not None:
            name, rate = self.rejected
            why = "which may be chance" if rate > self.before else "which is no gain"
            found = f"{name} was better on choose. On held-back cases: {self.before:.1%} before, {rate:.1%} with it"
            return f"Kept: nothing. {found} ({sure}), {why}."
        kept = self.column.name if self.is_better else "nothing"
        return f"Kept: {kept}. On held-back cases: {self.before:.1%} before, {self.after:.1%} after ({sure})."


def answer_of(case: Case) -> str | None:
    """The answer that a case expects, where it says one."""
    for each in case.expectations:
        if each.kind == "equals" and not each.negated:
            return str(each.value[0])
        if each.kind == "json" and not each.negated:
            return json.dumps(each.value, ensure_ascii=False)
    return None


def named(column: Column, rung: str, way: str) -> Column:
    """The column under a name of its content, so that the answers to each way are kept apart."""
    content = json.dumps({**asdict(column), "name": ""}, sort_keys=True, default=str)
    return replace(column, name=f"{rung}, {way} {hashlib.sha256(content.encode()).hexdigest()[:8]}")


class Ladder:
    """Climbs from the cheapest rung on, and stops at the goal."""

    def __init__(self, wish: ImprovementWish, ask: Ask, tell: Callable[[str], object], stop: threading.Event) -> None:
        self._wish, self._ask, self._tell, self._stop = wish, ask, tell, stop
        self.parts = split(wish.file.cases, wish.seed)
        self._question = {each.id: same[0].id for same in questions_of(wish.file.cases) for each in same}
        self.doubts = doubts_about(wish.file.cases)
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self._best = named(wish.start, "as it is", "")
        self._results: list[CaseResult] = []

    def climb(self) -> Improved:
        """Try all rungs, until one is good enough. Raises Ended where it was stopped before the first was measured."""
        for doubt in self.doubts:
            self._tell(doubt)
        self._try("as it is", "", self._best)
        rungs: tuple[tuple[str, Callable[[], Iterator[tuple[str, Column]]]], ...] = (
            ("settings", self._settings),
            ("examples", self._examples),
            ("prompt", self._prompts),
            ("escalation", self._escalations),
            ("adapter", self._adapters),
        )
        for n, (name, ways) in enumerate(rungs):
            if self._rate() >= self._wish.goal:
                self.notes.append(f"{', '.join(rung for rung, _ in rungs[n:])}: the goal was reached before")
                break
            try:
                self._climb_rung(name, ways())
            except Ended as error:
                self.notes.append(f"{name}: {error.message}")
                break
            except LeapUnavailableError as error:
                self.notes.append(f"{name}: {error.message}" + (f" ({error.hint})" if error.hint else ""))
        return self._end()

    def _rate(self) -> float:
        return summary_of(self._best.name, self._results).rate

    def _climb_rung(self, rung: str, ways: Iterator[tuple[str, Column]]) -> None:
        """Measure the ways of a rung, and select the best of those that are better than what there was."""
        before, found = self._results, None
        for way, column in ways:
            results = self._measure(rung, way, column)
            comparison = compare(results, before)
            step = self._step(rung, way, results, comparison.p_better)
            self.steps.append(step)
            self._tell(f"{rung}, {way}: {step.rate:.0%}, p = {comparison.p_better:.3f}")
            if comparison.p_better < SELECTION_ALPHA and (found is None or step.rate > found[0].rate):
                found = step, column, results
                if step.rate >= self._wish.goal:
                    break
        if found is not None:
            step, self._best, self._results = found[0], found[1], found[2]
            self.steps[self.steps.index(step)] = replace(step, kept=True)

    def _try(self, rung: str, way: str, column: Column) -> None:
        self._results = self._measure(rung, way, column)
        self.steps.append(replace(self._step(rung, way, self._results, None), kept=True))
        self._tell(f"{rung}: {self.steps[-1].rate:.0%}")

    def _measure(self, rung: str, way: str, column: Column) -> list[CaseResult]:
        self._began = time.monotonic()
        return self._asked(column, "choose")

    def _asked(self, column: Column, part: str) -> list[CaseResult]:
        """The results of a part. Cases of one question have one name, so that they count as repeats of it."""
        results = self._ask(column, self.parts[part], part)
        return [replace(each, case=self._question[each.case]) for each in results]

    def _step(self, rung: str, way: str, results: Sequence[CaseResult], p: float | None) -> Step:
        summary = summary_of("", results)
        seconds = (time.monotonic() - self._began) / max(1, len(results))
        tokens = summary.tokens / max(1, len(results))
        return Step(rung, way, summary.rate, summary.low, summary.high, tokens, seconds, p, False)

    def _settings(self) -> Iterator[tuple[str, Column]]:
        """Options of sampling and shape, one at a time."""
        best, changes = self._best, dict[str, JsonObject]()
        labels = [] if self._wish.recipe is not None else self._labels()
        if labels and "choices_constraint" not in best.options:
            changes["one of the labels"] = {"choices_constraint": labels}
        chooses = self._wish.recipe is not None and self._wish.recipe.name in CHOOSING
        if best.options.get("temperature") != 0.0 and not chooses:
            changes["temperature 0"] = {"temperature": 0.0}
        if best.options.get("repetition_penalty") != 1.0 and not chooses:
            changes["no repetition penalty"] = {"repetition_penalty": 1.0}
        if any("schema" in case.request for case in self.parts["choose"]):
            changes["schema out of the prompt"] = {"inject_schema_into_prompt": False}
        if self._wish.thinks and self._wish.recipe is None:
            changes["thinking"] = {"enable_thinking": not best.options.get("enable_thinking", False)}
        for way, options in changes.items():
            yield way, named(replace(best, options={**best.options, **options}), "settings", way)

    def _labels(self) -> list[str]:
        """The answers of all cases, where they are a few texts that come again."""
        answers = [answer_of(case) for case in self.parts["train"]]
        found = sorted({answer for answer in answers if answer is not None})
        return found if None not in answers and 2 <= len(found) <= min(MOST_LABELS, len(answers) // 2) else []

    def _examples(self) -> Iterator[tuple[str, Column]]:
        """Cases of ``train`` with answers, before the question: those that are expected, else those that passed."""
        train = [case for case in self.parts["train"] if case.prompt]
        pairs = [(case.prompt, answer) for case in train if (answer := answer_of(case)) is not None]
        if not pairs:
            passed = {each.case: each.answer for each in self._asked_train(self._best) if each.passed}
            pairs = [(case.prompt, passed[case.id]) for case in train if case.id in passed]
        pairs = _varied(pairs)
        for count in sorted({min(count, len(pairs)) for count in EXAMPLES} - {0}):
            shown = "\n\n".join(f"Question: {asked}\nAnswer: {answer}" for asked, answer in pairs[:count])
            opening = self._wish.opening_of(self._best)
            shown = shown if self._wish.recipe is None else literal(shown)
            text = f"{opening or ''}\n\nAnswer as in these examples.\n\n{shown}".lstrip()
            yield f"{count} examples", named(self._wish.with_opening(self._best, text), "examples", str(count))

    def _asked_train(self, column: Column, cases: Sequence[Case] | None = None) -> list[CaseResult]:
        return self._ask(column, self.parts["train"] if cases is None else cases, "train")

    def _prompts(self) -> Iterator[tuple[str, Column]]:
        """The system prompt rewritten by reflection over failures of ``train``."""
        if self._wish.reflect is None:
            return
        before = self._wish.opening_of(self._best)
        text = rewritten(before, self.parts["train"], self._asked_with, self._reflection, self._wish.seed, self._stop)
        if text is not None and text != (before or ""):
            yield "rewritten", named(self._wish.with_opening(self._best, text), "prompt", "rewritten")

    def _asked_with(self, text: str, cases: Sequence[Case]) -> list[CaseResult]:
        """The answers where this text comes before each question."""
        return self._asked_train(named(self._wish.with_opening(self._best, text or None), "prompt", "candidate"), cases)

    def _reflection(self, prompt: str) -> str:
        """What the reflecting model says; asked once, however often it is wanted."""
        assert self._wish.reflect is not None
        place = self._wish.directory / "reflections.json"
        kept: dict[str, str] = {}
        with suppress(OSError, ValueError):
            kept = json.loads(place.read_text("utf-8"))
        key = hashlib.sha256(prompt.encode()).hexdigest()
        if key not in kept:
            if self._stop.is_set():
                raise Ended("stopped")
            kept[key] = self._wish.reflect(prompt)
            replace_text(place, json.dumps(kept, ensure_ascii=False))
        return kept[key]

    def _escalations(self) -> Iterator[tuple[str, Column]]:
        """A larger model for what the first one answers badly, the rarest call first."""
        if self._wish.escalate_to is None:
            return
        for when in WHENS:
            column = replace(self._best, escalate_to=self._wish.escalate_to, when=when)
            yield f"to {self._wish.escalate_to} when {when}", named(column, "escalation", when)

    def _adapters(self) -> Iterator[tuple[str, Column]]:
        """A LoRA adapter that is trained on ``train``."""
        if self._wish.checkpoint is None:
            return
        if self._wish.recipe is not None:
            self.notes.append("adapter: cases of a task are no lines to train on")
            return
        lines = []
        for case in self.parts["train"]:
            if (answer := answer_of(case)) is not None:
                opening = [{"role": "system", "content": self._wish.start.system}] if self._wish.start.system else []
                said = [*opening, {"role": "user", "content": case.prompt}, {"role": "assistant", "content": answer}]
                lines.append(json.dumps({"messages": said}, ensure_ascii=False) + "\n")
        if len(lines) < LEAST_EXAMPLES:
            self.notes.append("adapter: the cases say no answers to train on")
            return
        data, target = self._wish.directory / "training.jsonl", self._wish.directory / "adapter.gguf"
        replace_text(data, "".join(lines))
        wish = TrainingWish(data, self._wish.checkpoint, target, 16, 32, 20, 3e-3, seed=self._wish.seed)
        if train(wish, self._told_of_training, self._stop) is None:
            raise Ended("stopped")
        adapters = [{"path": str(target), "scale": 1.0}]
        loading = {**self._wish.start.loading, "adapters": adapters}
        column = replace(self._best, system=self._wish.start.system, loading=loading)
        yield "trained", named(column, "adapter", "trained")

    def _told_of_training(self, step: int, steps: int, words: str) -> None:
        if words:
            self._tell(f"step {step} of {steps}: {words}" if steps else words)

    def _end(self) -> Improved:
        """Look at ``held``, once, and keep what was selected only where it is better there."""
        start = named(self._wish.start, "as it is", "")
        before = after = self._asked(start, "held")
        p, rejected = 1.0, None
        if self._best != start:
            after = self._asked(self._best, "held")
            p = compare(after, before).p_better
        if self._best != start and p >= ALPHA:
            rejected = self._best.name, summary_of("", after).rate
            self._best, after = start, before
            self.steps = [self.steps[0], *(replace(step, kept=False) for step in self.steps[1:])]
        return Improved(
            self._best,
            self.steps,
            self.notes,
            summary_of("", before).rate,
            summary_of("", after).rate,
            p,
            {name: len(part) for name, part in self.parts.items()},
            start,
            [(each.case, "; ".join(each.problems)) for each in after if not each.passed][:TOLD],
            (self._wish.opening_of(start), self._wish.opening_of(self._best)),
            rejected,
            self.doubts,
        )


def _varied(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs with answers taken by turns, so that the first few show each."""
    by_answer: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        by_answer.setdefault(pair[1], []).append(pair)
    rounds = max(map(len, by_answer.values()), default=0)
    return [queue[n] for n in range(rounds) for queue in by_answer.values() if n < len(queue)]


def rewritten(
    opening: str | None,
    cases: Sequence[Case],
    ask: Callable[[str, Sequence[Case]], list[CaseResult]],
    reflect: Callable[[str], str],
    seed: int,
    stop: threading.Event,
) -> str | None:
    """The best text before each question that GEPA finds over these cases, ``opening`` being that of now. ``ask``: the
    answers with a text. Raises LeapUnavailableError without the library, and Ended."""
    try:
        import gepa
        from gepa.core.adapter import EvaluationBatch
    except ImportError:
        raise LeapUnavailableError(
            "rewriting prompts needs a library", hint="pip install 'leap-edge[improve]'"
        ) from None

    class Adapter:
        """Asks cases with a candidate's text as the system prompt."""

        propose_new_texts = None

        def evaluate(self, batch: list[Case], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            once = {case.id: case for case in batch}  # GEPA fills its last batch with cases that it already has
            found = {each.case: each for each in ask(candidate["system"], list(once.values()))}
            results = [found[case.id] for case in batch]
            return EvaluationBatch([each.answer for each in results], [each.score for each in results], results)

        def make_reflective_dataset(self, candidate: dict[str, str], evaluated: Any, components: list[str]) -> Any:
            told = [
                {
                    "Inputs": each.prompt,
                    "Generated Outputs": each.answer,
                    "Feedback": "; ".join(each.problems) or "This answer is as expected.",
                }
                for each in evaluated.trajectories
            ]
            return {name: told for name in components}

    class Quiet:
        def log(self, message: str) -> None: ...

    try:
        result = gepa.optimize(
            seed_candidate={"system": opening or "You are a helpful assistant."},
            trainset=list(cases),
            valset=list(cases),
            adapter=Adapter(),
            reflection_lm=reflect,
            max_metric_calls=CALLS_A_CASE * len(cases),
            stop_callbacks=[lambda _state: stop.is_set()],
            logger=Quiet(),
            seed=seed,
            raise_on_exception=True,
        )
    except (Ended, LeapError):
        raise
    except Exception as error:  # what a model writes may be anything
        raise LeapUnavailableError(f"the search for prompts ended: {type(error).__name__}: {error}") from None
    if stop.is_set():
        raise Ended("stopped")
    return str(result.best_candidate["system"])


def report(improved: Improved) -> str:
    """What was tried and what it gave, in Markdown."""
    parts = ", ".join(f"{count} {name}" for name, count in improved.cases.items())
    lines = [f"# {'Better' if improved.is_better else 'No better'} than it was", "", f"Cases: {parts}.", ""]
    lines += [
        "| rung | way | pass on choose | 95 % | p | tokens | seconds | kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for step in improved.steps:
        p = "" if step.p is None else f"{step.p:.3f}"
        kept = "yes" if step.kept else ""
        measured = f"{step.rate:.1%} | {step.low:.1%} to {step.high:.1%} | {p} | {step.tokens:.0f} | {step.seconds:.2f}"
        lines.append(f"| {step.rung} | {step.way} | {measured} | {kept} |")
    lines += ["", *(f"- Not tried: {note}" for note in improved.notes), ""]
    lines += [improved.outcome, ""]
    if improved.doubts:
        lines += ["## The cases", "", *(f"- {doubt}" for doubt in improved.doubts), ""]
    before, after = improved.opening
    if after != before:
        lines += ["## The system prompt", "", "Before:", "", "```", before or "(none)", "```", ""]
        lines += ["After:", "", "```", after or "(none)", "```", ""]
    if improved.failing:
        lines += ["## What fails still", "", *(f"- {case}: {why}" for case, why in improved.failing), ""]
    return "\n".join(lines)
