"""The recipes of tasks beside the plainest prompts: the same cases, schema, model and engine.

    python benchmarks/task_recipes.py MODEL.gguf... [--task extract] [--limit 100] [--recipe FILE.toml] [--verbose]

A plain prompt is one sentence and the text; schema and labels are enforced on both sides. An extraction is right where
the whole document is (null is as good as absent); an answer to a question where it has the right name or number of
the passage. Differences have a bootstrap interval over cases and McNemar's exact p.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from harness import SHORT, runner
from task_cases import AskCase, ClassifyCase, ExtractCase, classify_cases, documents, extract_cases

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapError
from leap_core.evaluation.results import bootstrap_mean, mcnemar, wilson
from leap_core.schemas.grounding import Source
from leap_core.tasks.evidence.places import leaves
from leap_core.tasks.search.citing import Citations
from leap_core.tasks.search.index_file import IndexFile, IndexSettings
from leap_core.tasks.search.searching import Hit, Searcher, prompt_of, text_of_hit
from leap_core.tasks.search.updating import update_index
from leap_core.tasks.task_fields import read_task

MOST_TOKENS = 160
AT_ONCE = 4
PASSAGES = 3
ARTICLE = re.compile(r"^(?:the|das|le|el|il) ")


def reply(model: ModelRunner, messages: Sequence[ChatMessage], **options: Any) -> str:
    """The model's answer without randomness."""
    asked = GenerationOptions(temperature=0.0, max_tokens=MOST_TOKENS, **options)
    return last_of(model.start(messages, (), asked)).full_message.text


def present(value: Any) -> Any:
    """A document without nulls, articles and capitals, with each number as one kind."""
    if isinstance(value, dict):
        return {name: present(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [present(each) for each in value]
    if isinstance(value, str):
        return ARTICLE.sub("", value.lower())
    return value


class Extracting:
    """Documents by a schema. ``warned``: texts of which an answer's values were named as not in the text."""

    def __init__(self, model: ModelRunner) -> None:
        self._model = model
        self.warned: set[str] = set()

    def plain(self, case: ExtractCase) -> tuple[bool, str]:
        prompt = [ChatMessage("user", f"Extract the data from this text as JSON.\n\n{case.text}")]
        options = {"json_schema_constraint": json.dumps(case.schema), "inject_schema_into_prompt": False}
        return self._judged(case, reply(self._model, prompt, **options))

    def recipe(self, case: ExtractCase, recipes: Mapping[str, str] | None = None) -> tuple[bool, str]:
        task, _ = read_task({"task": "extract", "schema": case.schema}, recipes)
        overrides = GenerationOptions(max_tokens=MOST_TOKENS)
        answered = task.complete(self._model, case.text, overrides=overrides)
        if any("is not in the text" in each for each in answered.warnings):
            self.warned.add(case.text)
        return self._judged(case, answered.full_message.text)

    def invents(self, case: ExtractCase, answer: str) -> bool:
        """Whether an answer has a number or date that its text lacks."""
        try:
            values = [leaf.value for leaf in leaves(json.loads(answer), case.schema) if leaf.has_place]
        except ValueError:
            return False
        source = Source(case.text)
        return any(source.lacks(each) for each in values)

    def _judged(self, case: ExtractCase, answer: str) -> tuple[bool, str]:
        try:
            return present(json.loads(answer)) == present(case.document), answer
        except ValueError:
            return False, answer


class Classifying:
    """One of some labels."""

    def __init__(self, model: ModelRunner) -> None:
        self._model = model

    def plain(self, case: ClassifyCase) -> tuple[bool, str]:
        prompt = [ChatMessage("user", f"Classify this text as one of {', '.join(case.labels)}.\n\n{case.text}")]
        answer = reply(self._model, prompt, choices_constraint=list(case.labels))
        return answer == case.right, answer

    def recipe(self, case: ClassifyCase, recipes: Mapping[str, str] | None = None, **more: Any) -> tuple[bool, str]:
        task, _ = read_task({"task": "classify", "labels": list(case.labels), **more}, recipes)
        answer = task.complete(self._model, case.text).full_message.text
        return answer == case.right, answer


class Answering:
    """Questions about passages that were found by words; both sides get the same."""

    def __init__(self, model: ModelRunner, passages: Mapping[str, list[Hit]]) -> None:
        self._model, self._passages = model, passages

    def plain(self, case: AskCase) -> tuple[bool, str]:
        texts = "\n\n".join(f"{hit.passage.heading}\n{hit.passage.text}" for hit in self._passages[case.question])
        answer = reply(self._model, [ChatMessage("user", f"{texts}\n\n{case.question}")])
        return case.answer in answer, answer

    def recipe(self, case: AskCase, _recipes: Mapping[str, str] | None = None) -> tuple[bool, str]:
        hits = self._passages[case.question]
        messages, sources = prompt_of(case.question, hits, lambda _: True, model_names=(self._model.model_id,))
        answer = reply(self._model, messages)
        citations = Citations(case.question, {each.number: text_of_hit(each.hit) for each in sources})
        return case.answer in answer, citations.cited(answer)

    def cited(self, case: AskCase, answer: str) -> tuple[bool, bool]:
        """Whether the passage that answers is cited, and whether another is that does not hold the answer."""
        numbers = set(map(int, re.findall(r"\[(\d+)\]", answer)))
        hits = self._passages[case.question]
        right = {n for n, hit in enumerate(hits, 1) if case.heading in hit.passage.heading}
        return bool(numbers & right), bool(numbers - right)


def found_by_words(texts: Mapping[str, str], cases: Iterable[AskCase]) -> dict[str, list[Hit]]:
    """The passages for each question."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in texts.items():
            (Path(directory) / name).write_text(text, "utf-8")
        index = Path(directory) / "index"
        update_index(index, IndexSettings((directory,), ("*.md",), tokens=48, overlap=0), None)
        with IndexFile(index) as opened:
            return {each.question: Searcher(opened).search(each.question, most=PASSAGES) for each in cases}


def measured(title: str, cases: Sequence[Any], side: Callable[[Any], tuple[bool, str]]) -> list[tuple[bool, str]]:
    """Whether each case is right, with its answer. Prints the share."""

    def attempt(case: Any) -> tuple[bool, str]:
        try:
            return side(case)
        except LeapError as error:
            return False, f"error: {error}"

    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(attempt, cases))
    seconds = time.perf_counter() - started
    right = sum(each for each, _ in found)
    low, high = wilson(right, len(found))
    print(f"  {title}: {right} of {len(found)} right ({low:.0%} to {high:.0%}) in {seconds:.0f} s", flush=True)
    return found


def compared(first: Sequence[tuple[bool, str]], second: Sequence[tuple[bool, str]]) -> None:
    """Print how much better the first is."""
    differences = [float(one) - float(other) for (one, _), (other, _) in zip(first, second, strict=True)]
    low, high = bootstrap_mean(differences)
    p = mcnemar(differences.count(1.0), differences.count(-1.0))
    mean = sum(differences) / len(differences)
    print(f"    difference {mean:+.1%} ({low:+.1%} to {high:+.1%}), p {p:.3f}")


def grounding_cost(model: ModelRunner, cases: Sequence[ExtractCase]) -> None:
    """Print what limiting values to the text costs: each text with and without, in turns, one at a time. Processor time
    of all threads; the second of a pair has the prompt computed, so the share is rather too high."""
    seconds, tokens = {True: 0.0, False: 0.0}, {True: 0, False: 0}
    for number, case in enumerate(cases):
        task, _ = read_task({"task": "extract", "schema": case.schema})
        for grounding in (True, False) if number % 2 else (False, True):
            overrides = GenerationOptions(max_tokens=MOST_TOKENS, grounding=grounding)
            started = time.process_time()
            answered = task.complete(model, case.text, overrides=overrides)
            seconds[grounding] += time.process_time() - started
            tokens[grounding] += answered.stats.completion_tokens if answered.stats else 0
    each = {key: seconds[key] / max(1, tokens[key]) for key in seconds}
    print(
        f"  grounded {seconds[True]:.1f} s for {tokens[True]} tokens, free {seconds[False]:.1f} s for {tokens[False]}"
    )
    print(f"    ratio {seconds[True] / seconds[False]:.3f}, by token {each[True] / each[False]:.3f}", flush=True)


TASKS = ("extract", "classify", "ask")


def measure(task: str, model: ModelRunner, given: argparse.Namespace) -> None:
    """Print the figures of one task."""
    cases: Sequence[Any]
    way: Any
    sides: dict[str, Callable[[Any], tuple[bool, str]]] = {}
    if task == "extract":
        if given.cost:
            return grounding_cost(model, extract_cases(given.seed, given.limit))
        cases, way = extract_cases(given.seed, given.limit), Extracting(model)
    elif task == "classify":
        cases, way = classify_cases(given.seed, given.limit), Classifying(model)
        if given.labels:
            sides["readout labels"] = partial(way.recipe, readout="labels")
    else:
        texts, questions = documents(given.seed)
        cases = questions = questions[: given.limit]
        way = Answering(model, found_by_words(texts, cases))
    for each in given.recipe:
        sides[each.name] = partial(way.recipe, recipes={task: each.read_text("utf-8")})
    ours = measured("leap", cases, way.recipe)
    if isinstance(way, Answering):
        cited = [way.cited(case, answer) for case, (is_right, answer) in zip(questions, ours, strict=True) if is_right]
        ours_cited, others_cited = (sum(each) for each in zip(*cited, strict=True)) if cited else (0, 0)
        print(f"    of the right ones {ours_cited} cite the passage that answers, {others_cited} another one")
    if isinstance(way, Extracting):
        invented = [case for case, (_, answer) in zip(cases, ours, strict=True) if way.invents(case, answer)]
        unmarked = sum(case.text not in way.warned for case in invented)
        print(f"    {len(invented)} with a number or date that the text lacks, {unmarked} of them without a warning")
    if not given.alone:
        sides = {"plain prompt": way.plain, **sides}
    for title, side in sides.items():
        other = measured(title, cases, side)
        compared(ours, other)
        if isinstance(way, Extracting):
            count = sum(map(way.invents, cases, (answer for _, answer in other)))
            print(f"    {count} with a number or date that the text lacks")
    for case, (is_right, answer) in zip(cases, ours, strict=True):
        if given.verbose and not is_right:
            print(f"    {case}\n      -> {answer}")


def main() -> None:
    """Measure each task with each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--task", choices=TASKS, action="append", help="by default all")
    parser.add_argument("--limit", type=int, default=8 if SHORT else 100, help="cases of a task (default 100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipe", type=Path, action="append", default=[], metavar="FILE.toml", help="also this one")
    parser.add_argument("--labels", action="store_true", help="classify also by labels of one token")
    parser.add_argument("--alone", action="store_true", help="without the plain prompt")
    parser.add_argument("--cost", action="store_true", help="extract: only what limiting values to the text costs")
    parser.add_argument("--verbose", action="store_true", help="print what the recipe of this revision has wrong")
    given = parser.parse_args()
    for path in given.models:
        with runner(path, threads=2, slots=AT_ONCE, context=2048) as model:
            for task in given.task or TASKS:
                print(f"{path.stem}, {task}", flush=True)
                measure(task, model, given)


if __name__ == "__main__":
    main()
