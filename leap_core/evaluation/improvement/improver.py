"""From cases to the cheapest way of asking that passes them: steps from the cheapest on, each with variants to try.

Cases are split into three parts by seed: ``train`` gives examples, failures to reflect on and training data; ``choose``
selects the variants that a paired test finds better; ``held`` is looked at once, at the end: what was selected is kept
only where one test finds it better there too. Every answer is in the journal of a batch, and every reflection in a
file: the same call resumes where it was ended, and the same cases, seed and models give the same result.
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

from ...errors import LeapUnavailableError
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from ...system.files import replace_text
from ...tasks.recipe import Recipe, literal, parse_recipe
from ..cases import Case, CaseFile
from ..results import CaseResult, compare, summary_of
from ..running import Column
from ..splitting import doubts_about, questions_of, split
from .lora import LEAST_EXAMPLES, TrainingSettings, train
from .prompt_search import Ended, better_prompt

SELECTION_ALPHA, ALPHA = 0.1, 0.05
"""Of the test on ``choose`` that selects a variant, and the one test on ``held`` that keeps what was selected. The
second bounds the chance to keep something that is no better, however many variants are tried."""
EXAMPLES = (4, 8)
MOST_LABELS = 20
MOST_FAILING = 6
"""Cases that fail still, which a report shows."""
CHOOSING = ("classify", "decide")
"""Tasks that read probabilities, and draw nothing."""
WHENS = ("invalid", "uncertain<0.7", "uncertain<0.9")

Ask = Callable[[Column, Sequence[Case], str], list[CaseResult]]
"""Puts cases of a part to a column. Raises Ended."""


@dataclass(frozen=True)
class ImprovementSettings:
    """``start``: how cases are asked now. ``goal``: the rate that is enough. ``reflect`` gives what a model says to a
    prompt, None where prompts are not rewritten. ``escalate_to``: a larger model. ``checkpoint``: that of the model, to
    train over. ``thinks``: the model can reason. ``recipe``: of the task that the cases are of, and ``model_id`` and
    ``header_names``, the names that the model has for recipes; None for prompts."""

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
    header_names: Sequence[str] = ()

    def opening_of(self, column: Column) -> str | None:
        """The text that a column says before each question: the system prompt, of a task that of its recipe."""
        if self.recipe is None:
            return column.system
        source = column.recipes.get(self.recipe.name)
        recipe = self.recipe if source is None else parse_recipe(self.recipe.name, source)
        return recipe.wording_for(self.model_id, header_names=self.header_names).system or None

    def with_opening(self, column: Column, text: str | None) -> Column:
        """The column with another text before each question."""
        if self.recipe is None:
            return replace(column, system=text)
        recipe = self.recipe.with_system(self.model_id, text or "", self.header_names)
        return replace(column, recipes={**column.recipes, recipe.name: recipe.source})


@dataclass(frozen=True)
class Trial:
    """A variant that was tried. ``p``: one-sided, against the best before, on ``choose``; None for the first."""

    step: str
    variant: str
    rate: float
    low: float
    high: float
    tokens: float
    seconds: float
    p: float | None
    kept: bool

    def to_json(self) -> JsonObject:
        """The entry of an improvement's report."""
        return dict(vars(self))


@dataclass(frozen=True)
class Improved:
    """The result. ``before`` and ``after``: rates on ``held``. ``p``: one-sided, of what was selected there. ``notes``:
    steps that were not tried. ``failing``: cases of ``held`` that still fail, and why. ``opening``: the text before
    each question, at the start and now. ``rejected``: what was selected and is not kept, and its rate on ``held``.
    ``doubts``: about the cases."""

    column: Column
    trials: list[Trial]
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
        """Whether a step was kept."""
        return any(trial.kept for trial in self.trials[1:])

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


def named(column: Column, step: str, variant: str) -> Column:
    """The column under a name of its content, so that the answers to each variant are kept apart."""
    content = json.dumps({**asdict(column), "name": ""}, sort_keys=True, default=str)
    return replace(column, name=f"{step}, {variant} {hashlib.sha256(content.encode()).hexdigest()[:8]}")


class Improver:
    """Tries the steps from the cheapest on, and stops at the goal."""

    def __init__(
        self, settings: ImprovementSettings, ask: Ask, on_note: Callable[[str], object], stop: threading.Event
    ) -> None:
        self._settings, self._ask, self._on_note, self._stop = settings, ask, on_note, stop
        self.parts = split(settings.file.cases, settings.seed)
        self._question = {each.id: same[0].id for same in questions_of(settings.file.cases) for each in same}
        self.doubts = doubts_about(settings.file.cases)
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._best = named(settings.start, "baseline", "")
        self._results: list[CaseResult] = []

    def run(self) -> Improved:
        """Try all steps, until one is good enough. Raises Ended where it was stopped before the first was measured."""
        for doubt in self.doubts:
            self._on_note(doubt)
        self._try("baseline", "", self._best)
        steps: tuple[tuple[str, Callable[[], Iterator[tuple[str, Column]]]], ...] = (
            ("settings", self._option_variants),
            ("examples", self._example_variants),
            ("prompt", self._prompt_variants),
            ("escalation", self._escalation_variants),
            ("adapter", self._adapter_variants),
        )
        for n, (name, variants) in enumerate(steps):
            if self._rate() >= self._settings.goal:
                self.notes.append(f"{', '.join(step for step, _ in steps[n:])}: the goal was reached before")
                break
            try:
                self._try_step(name, variants())
            except Ended as error:
                self.notes.append(f"{name}: {error.message}")
                break
            except LeapUnavailableError as error:
                self.notes.append(f"{name}: {error.message}" + (f" ({error.hint})" if error.hint else ""))
        return self._end()

    def _rate(self) -> float:
        return summary_of(self._best.name, self._results).rate

    def _try_step(self, step: str, variants: Iterator[tuple[str, Column]]) -> None:
        """Measure the variants of a step, and select the best of those that are better than what there was."""
        before, found = self._results, None
        for variant, column in variants:
            results = self._measure(column)
            comparison = compare(results, before)
            trial = self._trial(step, variant, results, comparison.p_better)
            self.trials.append(trial)
            self._on_note(f"{step}, {variant}: {trial.rate:.0%}, p = {comparison.p_better:.3f}")
            if comparison.p_better < SELECTION_ALPHA and (found is None or trial.rate > found[0].rate):
                found = trial, column, results
                if trial.rate >= self._settings.goal:
                    break
        if found is not None:
            trial, self._best, self._results = found[0], found[1], found[2]
            self.trials[self.trials.index(trial)] = replace(trial, kept=True)

    def _try(self, step: str, variant: str, column: Column) -> None:
        self._results = self._measure(column)
        self.trials.append(replace(self._trial(step, variant, self._results, None), kept=True))
        self._on_note(f"{step}: {self.trials[-1].rate:.0%}")

    def _measure(self, column: Column) -> list[CaseResult]:
        self._began = time.monotonic()
        return self._asked(column, "choose")

    def _asked(self, column: Column, part: str) -> list[CaseResult]:
        """The results of a part. Cases of one question have one name, so that they count as repeats of it."""
        results = self._ask(column, self.parts[part], part)
        return [replace(each, case=self._question[each.case]) for each in results]

    def _trial(self, step: str, variant: str, results: Sequence[CaseResult], p: float | None) -> Trial:
        summary = summary_of("", results)
        seconds = (time.monotonic() - self._began) / max(1, len(results))
        tokens = summary.tokens / max(1, len(results))
        return Trial(step, variant, summary.rate, summary.low, summary.high, tokens, seconds, p, False)

    def _option_variants(self) -> Iterator[tuple[str, Column]]:
        """Options of sampling and shape, one at a time."""
        best, changes = self._best, dict[str, JsonObject]()
        labels = [] if self._settings.recipe is not None else self._labels()
        if labels and "choices_constraint" not in best.options:
            changes["one of the labels"] = {"choices_constraint": labels}
        chooses = self._settings.recipe is not None and self._settings.recipe.name in CHOOSING
        if best.options.get("temperature") != 0.0 and not chooses:
            changes["temperature 0"] = {"temperature": 0.0}
        if best.options.get("repetition_penalty") != 1.0 and not chooses:
            changes["no repetition penalty"] = {"repetition_penalty": 1.0}
        if any("schema" in case.request for case in self.parts["choose"]):
            changes["schema out of the prompt"] = {"inject_schema_into_prompt": False}
        if self._settings.thinks and self._settings.recipe is None:
            changes["thinking"] = {"enable_thinking": not best.options.get("enable_thinking", False)}
        for variant, options in changes.items():
            yield variant, named(replace(best, options={**best.options, **options}), "settings", variant)

    def _labels(self) -> list[str]:
        """The answers of all cases, where they are a few texts that come again."""
        answers = [answer_of(case) for case in self.parts["train"]]
        found = sorted({answer for answer in answers if answer is not None})
        return found if None not in answers and 2 <= len(found) <= min(MOST_LABELS, len(answers) // 2) else []

    def _example_variants(self) -> Iterator[tuple[str, Column]]:
        """Cases of ``train`` with answers, before the question: those that are expected, else those that passed."""
        train = [case for case in self.parts["train"] if case.prompt]
        pairs = [(case.prompt, answer) for case in train if (answer := answer_of(case)) is not None]
        if not pairs:
            passed = {each.case: each.answer for each in self._asked_train(self._best) if each.passed}
            pairs = [(case.prompt, passed[case.id]) for case in train if case.id in passed]
        pairs = _varied(pairs)
        for count in sorted({min(count, len(pairs)) for count in EXAMPLES} - {0}):
            shown = "\n\n".join(f"Question: {asked}\nAnswer: {answer}" for asked, answer in pairs[:count])
            opening = self._settings.opening_of(self._best)
            shown = shown if self._settings.recipe is None else literal(shown)
            text = f"{opening or ''}\n\nAnswer as in these examples.\n\n{shown}".lstrip()
            yield f"{count} examples", named(self._settings.with_opening(self._best, text), "examples", str(count))

    def _asked_train(self, column: Column, cases: Sequence[Case] | None = None) -> list[CaseResult]:
        return self._ask(column, self.parts["train"] if cases is None else cases, "train")

    def _prompt_variants(self) -> Iterator[tuple[str, Column]]:
        """The system prompt rewritten by reflection over failures of ``train``."""
        if self._settings.reflect is None:
            return
        before = self._settings.opening_of(self._best)
        text = better_prompt(
            before, self.parts["train"], self._asked_with, self._reflection, self._settings.seed, self._stop
        )
        if text is not None and text != (before or ""):
            yield "rewritten", named(self._settings.with_opening(self._best, text), "prompt", "rewritten")

    def _asked_with(self, text: str, cases: Sequence[Case]) -> list[CaseResult]:
        """The answers where this text comes before each question."""
        return self._asked_train(
            named(self._settings.with_opening(self._best, text or None), "prompt", "candidate"), cases
        )

    def _reflection(self, prompt: str) -> str:
        """What the reflecting model says; asked once, however often it is wanted."""
        assert self._settings.reflect is not None
        place = self._settings.directory / "reflections.json"
        kept: dict[str, str] = {}
        with suppress(OSError, ValueError):
            kept = json.loads(place.read_text("utf-8"))
        key = hashlib.sha256(prompt.encode()).hexdigest()
        if key not in kept:
            if self._stop.is_set():
                raise Ended("stopped")
            kept[key] = self._settings.reflect(prompt)
            replace_text(place, json.dumps(kept, ensure_ascii=False))
        return kept[key]

    def _escalation_variants(self) -> Iterator[tuple[str, Column]]:
        """A larger model for what the first one answers badly, the rarest call first."""
        if self._settings.escalate_to is None:
            return
        for when in WHENS:
            column = replace(self._best, escalate_to=self._settings.escalate_to, when=when)
            yield f"to {self._settings.escalate_to} when {when}", named(column, "escalation", when)

    def _adapter_variants(self) -> Iterator[tuple[str, Column]]:
        """A LoRA adapter that is trained on ``train``."""
        if self._settings.checkpoint is None:
            return
        if self._settings.recipe is not None:
            self.notes.append("adapter: cases of a task are no lines to train on")
            return
        lines = []
        for case in self.parts["train"]:
            if (answer := answer_of(case)) is not None:
                opening = (
                    [{"role": "system", "content": self._settings.start.system}] if self._settings.start.system else []
                )
                said = [*opening, {"role": "user", "content": case.prompt}, {"role": "assistant", "content": answer}]
                lines.append(json.dumps({"messages": said}, ensure_ascii=False) + "\n")
        if len(lines) < LEAST_EXAMPLES:
            self.notes.append("adapter: the cases say no answers to train on")
            return
        data, target = self._settings.directory / "training.jsonl", self._settings.directory / "adapter.gguf"
        replace_text(data, "".join(lines))
        training = TrainingSettings(data, self._settings.checkpoint, target, 16, 32, 20, 3e-3, seed=self._settings.seed)
        if train(training, self._report_training, self._stop) is None:
            raise Ended("stopped")
        adapters = [{"path": str(target), "scale": 1.0}]
        loading = {**self._settings.start.loading, "adapters": adapters}
        column = replace(self._best, system=self._settings.start.system, loading=loading)
        yield "trained", named(column, "adapter", "trained")

    def _report_training(self, step: int, steps: int, words: str) -> None:
        if words:
            self._on_note(f"step {step} of {steps}: {words}" if steps else words)

    def _end(self) -> Improved:
        """Look at ``held``, once, and keep what was selected only where it is better there."""
        start = named(self._settings.start, "baseline", "")
        before = after = self._asked(start, "held")
        p, rejected = 1.0, None
        if self._best != start:
            after = self._asked(self._best, "held")
            p = compare(after, before).p_better
        if self._best != start and p >= ALPHA:
            rejected = self._best.name, summary_of("", after).rate
            self._best, after = start, before
            self.trials = [self.trials[0], *(replace(trial, kept=False) for trial in self.trials[1:])]
        return Improved(
            self._best,
            self.trials,
            self.notes,
            summary_of("", before).rate,
            summary_of("", after).rate,
            p,
            {name: len(part) for name, part in self.parts.items()},
            start,
            [(each.case, "; ".join(each.problems)) for each in after if not each.passed][:MOST_FAILING],
            (self._settings.opening_of(start), self._settings.opening_of(self._best)),
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


def report(improved: Improved) -> str:
    """What was tried and what it gave, in Markdown."""
    parts = ", ".join(f"{count} {name}" for name, count in improved.cases.items())
    lines = [f"# {'Better' if improved.is_better else 'No better'} than it was", "", f"Cases: {parts}.", ""]
    lines += [
        "| step | variant | pass on choose | 95 % | p | tokens | seconds | kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for trial in improved.trials:
        p = "" if trial.p is None else f"{trial.p:.3f}"
        kept = "yes" if trial.kept else ""
        measured = (
            f"{trial.rate:.1%} | {trial.low:.1%} to {trial.high:.1%} | {p} | {trial.tokens:.0f} | {trial.seconds:.2f}"
        )
        lines.append(f"| {trial.step} | {trial.variant} | {measured} | {kept} |")
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
