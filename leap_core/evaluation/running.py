"""Asking: each column is a batch of its own with a journal, so that nothing is asked twice."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from ..batch.answering import Runner
from ..batch.checking import CheckedBatch, check_batch
from ..batch.input.line_parts import LineTemplate
from ..batch.journal.line_result import OPENAI
from ..batch.options import LIMITS
from ..batch.run import BatchProgress, merge
from ..batch.settings import BatchSettings, Part
from ..errors import LeapOptionsError, LeapSerializationError
from ..models.resolving import resolve_local
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from ..system.files import replace_text
from ..system.processes import resident_bytes
from ..tasks.decisions.answers import shares
from .cases import Case, CaseFile
from .expectations import KINDS, JudgedAnswer, Verdict, options_of, verdict_on
from .results import CaseResult, ColumnFacts

REPEAT, OPTION = "#", "?"
"""Between the id of a case and the number of its repeat, and before that of an option which is scored."""
SEED = 1
UNSAFE = re.compile(r"[^\w.+=-]+")


@dataclass(frozen=True)
class Column:
    """``name``: the heading. ``options``: a GenerationOptions as JSON. ``loading``: fields of ModelLoadingOptions.
    ``template``: a prompt with ``{name}`` for the variables of cases, and ``{input}`` for their prompt. ``recipes``: of
    tasks, in the place of the user's and leap's own."""

    name: str
    model: str
    options: JsonObject = field(default_factory=dict)
    loading: JsonObject = field(default_factory=dict)
    system: str | None = None
    template: str | None = None
    escalate_to: str | None = None
    when: str = "invalid"
    """When the model ``escalate_to`` answers in the place of the first."""
    recipes: JsonObject = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """The name as part of a file's."""
        return UNSAFE.sub("_", self.name)


def lines_of(file: CaseFile, column: Column, repeats: int) -> Iterator[JsonObject]:
    """What the column is asked, as lines of a batch. A case is asked once for each repeat, with a seed of its own; the
    options of a choice are scored instead, a line each. Raises LeapOptionsError for a case without a prompt."""
    template = None if column.template is None else LineTemplate(column.template, {})
    seed = column.options.get("rng_seed", SEED)
    for case in file.cases:
        request = _request(case, template)
        if any(each.kind != "choice" for each in case.expectations):
            for n in range(repeats):
                seeded = {} if "seed" in request else {"seed": seed + n}
                yield {"custom_id": f"{case.id}{REPEAT}{n}", **request, **seeded}
        for number, each in enumerate(case.expectations):
            if each.kind == "choice":
                for m, option in enumerate(options_of(each)):
                    yield {"custom_id": f"{case.id}{OPTION}{number}.{m}", **request, "leap": {"options": _held(option)}}


def without_prompt(cases: Sequence[Case]) -> list[Case]:
    """Those cases that are variables of a template and nothing else."""
    return [
        case
        for case in cases
        if not any(name in case.request for name in ("prompt", "messages", "task", "image", "audio"))
    ]


def _held(option: str) -> JsonObject:
    """The options of an answer that is this one, with the probability of each token."""
    held: JsonObject = {"choices_constraint": [option], "logprobs": True, "forced_logprobs": True}
    return held | {"temperature": 0.0, "repetition_penalty": 1.0}


def _request(case: Case, template: LineTemplate | None) -> JsonObject:
    if template is None or "messages" in case.request or "task" in case.request:
        if without_prompt([case]):
            raise LeapOptionsError(
                "pattern", f"the case {case.id} has variables and no prompt: give a template for them"
            )
        return case.request
    return {**case.request, "prompt": template.fill({**case.variables, **_input(case)})}


def _input(case: Case) -> JsonObject:
    return {"prompt": case.request["prompt"]} if "prompt" in case.request else {}


JUDGED, EMBEDDED = "judged", "embedded"
"""Names of the batches that ask other models about answers."""
MOST_TOLD = 5
Load = Callable[[CheckedBatch], AbstractContextManager[Runner]]


@dataclass
class Evaluation:
    """Cases put to columns. ``directory`` keeps what was answered: the same evaluation resumes there. ``load``
    opens the model of a batch. ``on``, ``workers``: the cluster that asks the columns. ``part``: of their lines, that
    alone is asked. ``merge``: so many parts that ran on other machines are put together first. ``judge``, ``embedder``:
    the models that ``judge`` and ``similar`` ask."""

    file: CaseFile
    columns: list[Column]
    directory: Path
    load: Load
    variables: Mapping[str, str]
    repeats: int = 1
    concurrency: int = LIMITS["concurrency"].default
    judge: str | None = None
    embedder: str = "builtin-embed"
    recipes: JsonObject = field(default_factory=dict)
    cwd: Path = Path()
    overwrite: bool = False
    on: str | None = None
    workers: str | None = None
    part: Part | None = None
    merge: int | None = None

    def settings(self, column: Column) -> BatchSettings:
        """The batch that asks a column; its lines are written."""
        return self._settings(
            column.file_name,
            lines_of(self.file, column, self.repeats),
            model=column.model,
            options=column.options,
            loading=column.loading,
            system=column.system,
            escalate_to=column.escalate_to,
            when=column.when,
            recipes={**self.recipes, **column.recipes},
            on=self.on,
            workers=self.workers,
        )

    def check(self) -> None:
        """Raises LeapModelNotFoundError or LeapSerializationError for a model that is not there, before any work."""
        kinds = {(each.kind, each.settings.get("model")) for case in self.file.cases for each in case.expectations}
        names = {column.model for column in self.columns}
        names |= {model or self._judge() for kind, model in kinds if kind == "judge"}
        names |= {self.embedder for kind, _ in kinds if kind == "similar"}
        for name in sorted(names):
            resolve_local(name, variables=self.variables, cwd=self.cwd)

    def ask(
        self, column: Column, stop: threading.Event, on_result: Callable[[BatchProgress], object]
    ) -> tuple[BatchProgress, ColumnFacts]:
        """Ask what of a column is not answered yet."""
        settings = self.settings(column)
        return self._run(settings if self.part is None else settings.of_part(self.part), column.name, stop, on_result)

    def results(
        self, column: Column, stop: threading.Event, on_result: Callable[[BatchProgress], object]
    ) -> list[CaseResult]:
        """What came of a column that was asked. Other models are asked about its answers where a case wants that."""
        answered = dict(self._answered(column.file_name))
        results = []
        asked = self._asked_of_others(column, answered, stop, on_result)
        for case in self.file.cases:
            shares = {
                n: _shares(case, n, answered) for n, each in enumerate(case.expectations) if each.kind == "choice"
            }
            only_choices = len(shares) == len(case.expectations)
            for repeat in range(1 if only_choices else self.repeats):
                name = f"{case.id}{REPEAT}{repeat}"
                record = next(iter(_options(case, answered)), None) if only_choices else answered.get(name)
                results.append(self._result(column, case, repeat, record, shares, asked.get(name, {})))
        return results

    def _result(
        self,
        column: Column,
        case: Case,
        repeat: int,
        record: JsonObject | None,
        shares: Mapping[int, Mapping[str, float] | None],
        asked: Mapping[int, float],
    ) -> CaseResult:
        body = _body(record)
        result = CaseResult(case.id, column.name, repeat, case.group, case.weight, prompt=case.prompt)
        if body is None or None in shares.values():
            error = (record or {}).get("error") or {}
            return result.failed(str(error.get("message", "no answer")))
        answer = _answer(body, case, self.file.directory)
        told = {n: each for n, each in shares.items() if each is not None}
        answer = JudgedAnswer(**{**vars(answer), "shares": told, "asked": asked})
        verdicts = [verdict_on(each, answer, n, KINDS) for n, each in enumerate(case.expectations)]
        leap = body.get("leap") or {}
        if len(told) == len(case.expectations):
            text = ", ".join(f"{option} {share:.2f}" for each in told.values() for option, share in each.items())
            answer, leap = JudgedAnswer(**{**vars(answer), "text": text, "tokens": 0}), {}
        return result.answered(answer, _named(case, verdicts), leap.get("stats") or {})

    def _asked_of_others(
        self,
        column: Column,
        answered: Mapping[str, JsonObject],
        stop: threading.Event,
        on_result: Callable[[BatchProgress], object],
    ) -> dict[str, dict[int, float]]:
        """The numbers that other models gave to answers, by the name of the answer and the expectation's place."""
        judged: dict[str, list[JsonObject]] = {}
        embedded: list[JsonObject] = []
        for case in self.file.cases:
            for repeat in range(self.repeats):
                name = f"{case.id}{REPEAT}{repeat}"
                body = _body(answered.get(name))
                if body is None:
                    continue
                text = _answer(body, case, self.file.directory).text
                for n, each in enumerate(case.expectations):
                    place = f"{name}{OPTION}{n}"
                    if each.kind == "judge":
                        shown = f"Question:\n{case.prompt}\n\nAnswer:\n{text}"
                        line = {"custom_id": place, "task": "decide", "question": each.value, "text": shown}
                        judged.setdefault(each.settings.get("model") or self._judge(), []).append(line)
                    elif each.kind == "similar":
                        embedded.append({"custom_id": place, "input": [text or " ", each.value]})
        found: dict[str, dict[int, float]] = {}
        for model, lines in judged.items():
            batch = f"{column.file_name}.{JUDGED}-{Column(model, model).file_name}"
            settings = self._settings(batch, lines, model=model)
            self._run(settings, model, stop, on_result)
            for place, record in self._answered(batch):
                body = _body(record)
                if body is not None:
                    _note(found, place, float(body["leap"]["probabilities"]["yes"]))
        if embedded:
            batch = f"{column.file_name}.{EMBEDDED}"
            settings = self._settings(batch, embedded, model=self.embedder)
            self._run(settings, self.embedder, stop, on_result)
            for place, record in self._answered(batch):
                body = _body(record)
                if body is not None:
                    _note(found, place, _cosine(*(each["embedding"] for each in body["data"])))
        return found

    def _judge(self) -> str:
        if self.judge is None:
            raise LeapSerializationError("a case is judged by a model", hint="say which: --judge MODEL")
        return self.judge

    def _settings(self, name: str, lines: Iterable[JsonObject], **fields: Any) -> BatchSettings:
        directory = self.directory / "columns"
        directory.mkdir(parents=True, exist_ok=True)
        source = directory / f"{name}.lines.jsonl"
        replace_text(source, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        return BatchSettings.of(
            str(source),
            str(directory / f"{name}.jsonl"),
            format=OPENAI,
            concurrency=self.concurrency,
            skip_invalid=True,
            overwrite=self.overwrite,
            directory=str(self.file.directory),
            **{"recipes": self.recipes, **fields},
        )

    def _run(
        self, settings: BatchSettings, name: str, stop: threading.Event, on_result: Callable[[BatchProgress], object]
    ) -> tuple[BatchProgress, ColumnFacts]:
        """Run a batch, whose lines are all to be sound."""
        with check_batch(settings, default_model=None, variables=self.variables, cwd=self.cwd) as checked:
            if checked.problem_count:
                raise _unusable(settings, checked)
            model = resolve_local(checked.model, variables=self.variables, cwd=self.cwd)
            facts = ColumnFacts.of(Path(settings.output.path), name, checked, model.path.stat().st_size)
            journal = settings.open_journal()
            try:
                batch = checked.open(journal, str, on_result)
                if self.merge is not None and journal is not None:
                    parts = [settings.of_part(Part(n, self.merge)) for n in range(1, self.merge + 1)]
                    merge(batch, [path for part in parts if (path := part.journal_path) is not None])
                    journal.close()
                    journal = settings.open_journal()
                    batch = checked.open(journal, str, on_result)
                progress = batch.run(lambda: _measured(self.load(checked), facts), stop)
            finally:
                if journal is not None:
                    journal.close()
        facts.keep()
        return progress, facts

    def _answered(self, name: str) -> Iterator[tuple[str, JsonObject]]:
        path = self.directory / "columns" / f"{name}.jsonl"
        if path.is_file():
            with path.open(encoding="utf-8") as file:
                for line in file:
                    record = json.loads(line)
                    yield record["custom_id"], record


@contextmanager
def _measured(loading: AbstractContextManager[Runner], facts: ColumnFacts) -> Iterator[Runner]:
    """The runner, with the memory that it takes noted; that of a warm one is elsewhere."""
    before = resident_bytes()
    with loading as runner:
        yield runner
        after = resident_bytes()
        if before is not None and after is not None:
            facts.memory = max(facts.memory or 0, after - before, facts.size)


def _unusable(settings: BatchSettings, checked: CheckedBatch) -> LeapSerializationError:
    with open(settings.input.source, encoding="utf-8") as file:
        lines = file.read().split("\n")
    names = [
        json.loads(lines[each.number - 1])["custom_id"].rpartition(REPEAT)[0] for each in checked.problems[:MOST_TOLD]
    ]
    told = "; ".join(f"{name}: {each.message}" for name, each in zip(names, checked.problems, strict=False))
    return LeapSerializationError(f"{checked.problem_count} cases cannot be asked: {told}")


def _body(record: JsonObject | None) -> JsonObject | None:
    """The body of an answer; None where there is none."""
    response = (record or {}).get("response")
    return None if response is None else response["body"]


def _answer(body: JsonObject, case: Case, directory: Path) -> JudgedAnswer:
    choice = body["choices"][0]
    message = choice["message"]
    calls = []
    for each in message.get("tool_calls") or ():
        try:
            arguments = json.loads(each["function"]["arguments"])
        except ValueError:
            arguments = {}
        calls.append((each["function"]["name"], arguments if isinstance(arguments, dict) else {}))
    return JudgedAnswer(
        message.get("content") or "",
        calls,
        choice["finish_reason"],
        (body.get("usage") or {}).get("completion_tokens", 0),
        tools=case.request.get("tools") or (),
        prompt=case.prompt,
        variables=case.variables,
        directory=directory,
    )


def _options(case: Case, answered: Mapping[str, JsonObject]) -> Iterator[JsonObject]:
    """The records of a case's options, those first that failed."""
    names = [
        f"{case.id}{OPTION}{n}.{m}"
        for n, each in enumerate(case.expectations)
        if each.kind == "choice"
        for m in range(len(options_of(each)))
    ]
    records = [answered[name] for name in names if name in answered]
    yield from sorted(records, key=lambda record: record.get("error") is None)


def _shares(case: Case, number: int, answered: Mapping[str, JsonObject]) -> dict[str, float] | None:
    """The options' probabilities among each other; None where one could not be scored."""
    options = options_of(case.expectations[number])
    logprobs = []
    for m in range(len(options)):
        body = _body(answered.get(f"{case.id}{OPTION}{number}.{m}"))
        scored = None if body is None else body["choices"][0].get("logprobs")
        if scored is None:
            return None
        logprobs.append(math.fsum(each["logprob"] for each in scored["content"]))
    return dict(zip(options, shares(_without_longer(options, logprobs)), strict=True))


def _without_longer(options: list[str], logprobs: list[float]) -> list[float]:
    """The probability of an option that begins another counts without that one's, as in
    ``decisions.answer_probabilities``."""
    rest = []
    for option, logprob in zip(options, logprobs, strict=True):
        longer = [each for each in options if each != option and each.startswith(option)]
        nearest = [each for each in longer if not any(each != other and each.startswith(other) for other in longer)]
        share = 1.0 - math.fsum(math.exp(logprobs[options.index(each)] - logprob) for each in nearest)
        rest.append(logprob + math.log(share) if share > 0.0 else -math.inf)
    return rest


def _named(case: Case, verdicts: list[Verdict]) -> list[tuple[str, float, Verdict]]:
    return [(each.name, each.weight, verdict) for each, verdict in zip(case.expectations, verdicts, strict=True)]


def _note(found: dict[str, dict[int, float]], place: str, value: float) -> None:
    name, _, number = place.rpartition(OPTION)
    found.setdefault(name, {})[int(number)] = value


def _cosine(one: list[float], other: list[float]) -> float:
    length = math.sqrt(math.fsum(each * each for each in one) * math.fsum(each * each for each in other))
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / length if length else 0.0
