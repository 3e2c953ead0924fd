"""Tasks from plain data: the fields of a line of a batch, or what a command took from its options.

{"task": "extract", "schema": {…} or "name, age int"}        {"task": "translate", "to": "ja", "from": "en"}
{"task": "summarize", "kind": "actions"}                      {"task": "redact", "categories": ["human_name"]}
{"task": "classify", "labels": ["a", "b"]}
{"task": "decide", "question": "…", "choices": ["a", "b"]} or "score": "1..5"; yes or no without either
{"task": "decide", "questions": […] or {…}}                    see ``decisions.questions``

{"text": "…", "question": "…", "choices": ["a", "b"], "answer": "a"}         the fields of the task, and the answer
{"text": "…", "questions": [{"name": "late", …}], "answers": {"late": true}}
What is asked in all lines may be beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..conversation.messages import ChatMessage
from ..conversation.runner import ModelRunner
from ..errors import LeapOptionsError, LeapSerializationError
from ..schemas.json_schema import check_schema
from ..schemas.shorthand import schema_from_shorthand
from ..system.dataclass import dataclass
from .choose import FORMATS, TEXT, YES_OR_NO, Choose, Classify, Decide, DecideAll
from .decisions.answer_probabilities import READOUTS
from .decisions.deciding import MOST_ORDERS, Settings, readout_for, way_of_asking
from .decisions.questions import MOST_OPTIONS, PREDICATE, Decision, Question, read_questions
from .extraction import ABSENT, CSV, FAIL, JSONL, MOST_PASSES, Extract, read_examples
from .personal_patterns import PATTERN_CATEGORIES as PATTERNED
from .recipe import Recipe, parse_recipe, read_recipe
from .redaction import CATEGORIES, Redact
from .summarization import Summarize
from .task import RecipeTask, Task, TaskModel
from .translation import Translate

SCORE = re.compile(r"(\d{1,6})\.\.(\d{1,6})", re.ASCII)
CATEGORY = re.compile(r"\w[\w -]*")

Read = Callable[["Parameters", Recipe], Task]


class Parameters:
    """The fields of a task, each taken out once. Errors name the field."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def take(self, name: str, default: Any = None) -> Any:
        """A field's value, or the default."""
        return self._fields.pop(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        """A text. Raises LeapSerializationError for anything else, and where it is missing without a default."""
        value = self._fields.pop(name, default)
        if not isinstance(value, str) or not value.strip():
            raise LeapSerializationError("expected a text that is not empty", path=name)
        return value

    def one_of(self, name: str, values: tuple[str, ...], default: str) -> str:
        """One of some texts. Raises LeapSerializationError."""
        value = self._fields.pop(name, default)
        if value not in values:
            raise LeapSerializationError(f"{value!r} is not one of {', '.join(values)}", path=name)
        return str(value)

    def flag(self, name: str) -> bool:
        """True or false, which it is by default. Raises LeapSerializationError."""
        value = self._fields.pop(name, False)
        if not isinstance(value, bool):
            raise LeapSerializationError(f"{value!r} is neither true nor false", path=name)
        return value

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Two or more texts, or one with commas between them; repeats count once. Raises LeapSerializationError."""
        value = self._fields.pop(name, default)
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)) or not parts or not all(isinstance(part, str) for part in parts):
            raise LeapSerializationError("expected a list of texts", path=name)
        if not all(part.strip() for part in parts):
            raise LeapSerializationError("one of the texts is empty", path=name)
        return tuple(dict.fromkeys(parts))

    @property
    def names(self) -> list[str]:
        """Those that were not taken."""
        return list(self._fields)


def _extract(fields: Parameters, _recipe: Recipe) -> Task:
    schema = fields.take("schema")
    if isinstance(schema, str):
        schema = schema_from_shorthand(schema)
    if schema is None:
        raise LeapSerializationError("missing", path="schema", hint='such as "name, age int"')
    document = check_schema(schema).document
    if document.get("type", "object") != "object" or not document.get("properties"):
        raise LeapSerializationError("it must describe an object with properties", path="schema")
    format, strict = fields.one_of("format", (JSONL, CSV), JSONL), fields.take("strict")
    if strict is not None:
        strict = Parameters({"strict": strict}).one_of("strict", (ABSENT, FAIL), ABSENT)
    passes = fields.take("passes", 1)
    if type(passes) is not int or not 1 <= passes <= MOST_PASSES:
        raise LeapSerializationError(f"{passes!r} is no number from 1 to {MOST_PASSES}", path="passes")
    evidence, keep_text = fields.flag("evidence"), fields.flag("keep_text")
    given, verbatim = fields.take("examples"), fields.take("verbatim")
    if not isinstance(verbatim, (bool, type(None))):
        raise LeapSerializationError(f"{verbatim!r} is not true or false", path="verbatim")
    examples = () if given is None else read_examples(given, document)
    return Extract(document, format, evidence, strict, passes, keep_text, examples, verbatim)


def _translate(fields: Parameters, _recipe: Recipe) -> Task:
    source = fields.take("from")
    return Translate(fields.text("to"), None if source is None else Parameters({"from": source}).text("from"))


def _summarize(fields: Parameters, recipe: Recipe) -> Task:
    return Summarize(fields.text("kind", "executive"), {**read_recipe("summarize").kinds, **recipe.kinds})


def _redact(fields: Parameters, _recipe: Recipe) -> Task:
    chosen = fields.take("categories")
    categories = CATEGORIES if chosen is None else Parameters({"categories": chosen}).texts("categories")
    wrong = next((name for name in categories if CATEGORY.fullmatch(name) is None), None)
    if wrong is not None:
        raise LeapSerializationError(f"{wrong!r} is no name of letters, digits and _", path="categories")
    patterns = fields.take("patterns", True)
    if patterns is True:
        patterns = [name for name in PATTERNED if chosen is None or name in categories]
    if not all(name in PATTERNED for name in patterns or ()):
        raise LeapSerializationError(f"expected true, false or some of {', '.join(PATTERNED)}", path="patterns")
    return Redact(categories, fields.take("lines", False) is True, tuple(patterns or ()))


def _classify(fields: Parameters, _recipe: Recipe) -> Task:
    return Classify(_labels(fields, "labels"), fields.one_of("format", FORMATS, TEXT), *_asking(fields))


def _asking(fields: Parameters) -> tuple[str | None, int]:
    """Readout and number of orders."""
    readout, orders = fields.take("readout"), fields.take("orders", 1)
    if readout is not None and readout not in READOUTS:
        raise LeapSerializationError(f"{readout!r} is not one of {', '.join(READOUTS)}", path="readout")
    if type(orders) is not int or not 1 <= orders <= MOST_ORDERS:
        raise LeapSerializationError(f"{orders!r} is no number from 1 to {MOST_ORDERS}", path="orders")
    return readout, orders


def _decide(fields: Parameters, _recipe: Recipe) -> Task:
    given = fields.take("questions")
    if given is not None:
        return DecideAll(read_questions(given), given, fields.one_of("format", FORMATS, TEXT), *_asking(fields))
    question = fields.text("question")
    score = fields.take("score")
    labels = YES_OR_NO if score is not None else _labels(fields, "choices", YES_OR_NO)
    if score is not None:
        labels = _numbers(score)
        if fields.take("choices") is not None:
            raise LeapSerializationError("it cannot be combined with score", path="choices")
    format = fields.one_of("format", FORMATS, TEXT)
    return Decide(labels, format, *_asking(fields), question=question, is_score=score is not None)


TASKS: dict[str, Read] = {
    "extract": _extract,
    "translate": _translate,
    "summarize": _summarize,
    "redact": _redact,
    "classify": _classify,
    "decide": _decide,
}
CLASSES: tuple[type[Task], ...] = (Extract, Translate, Summarize, Redact, Classify, Decide)


def read_task(fields: Mapping[str, Any], recipes: Mapping[str, str] | None = None) -> tuple[RecipeTask, list[str]]:
    """The task that these fields describe, and the names of the fields that are not any of its own. ``recipes``: the
    texts of the user's own recipes, by name. Raises LeapSerializationError, LeapSchemaError or LeapOptionsError."""
    parameters = Parameters(fields)
    name = parameters.take("task")
    if not isinstance(name, str) or name not in TASKS:
        raise LeapSerializationError(f"{name!r} is not one of {', '.join(TASKS)}", path="task")
    own = (recipes or {}).get(name)
    recipe = read_recipe(name) if own is None else parse_recipe(name, own)
    return RecipeTask(TASKS[name](parameters, recipe), recipe), parameters.names


def check_places(recipe: Recipe) -> None:
    """See to it that a recipe can be used. Raises LeapOptionsError for one of no task, for one that does not show the
    model its input, and for a name in braces that the task does not fill."""
    places = next((each.places for each in CLASSES if each.name == recipe.name), None)
    if places is None:
        raise LeapOptionsError("recipe", f"there is no task {recipe.name}; a recipe is called {', '.join(TASKS)}")
    for number, wording in enumerate(recipe.wordings, 1):
        unknown = sorted(wording.places - places)
        if unknown:
            listed = ", ".join(f"{{{name}}}" for name in sorted(places))
            raise LeapOptionsError("recipe", f"wording {number}: {{{unknown[0]}}} is not one of {listed}")
        if "text" not in wording.places and wording.input != "picture":
            raise LeapOptionsError("recipe", f"wording {number} has no {{text}}, so the model would not see its input")


def _labels(fields: Parameters, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
    labels = fields.texts(name, default)
    if len(labels) < 2:
        raise LeapSerializationError("give two or more that differ", path=name)
    if len(labels) > MOST_OPTIONS:
        raise LeapSerializationError(f"{len(labels)} are more than {MOST_OPTIONS}", path=name)
    return labels


def _numbers(value: object) -> tuple[str, ...]:
    match = SCORE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2]) - int(match[1]) <= 100:
        raise LeapSerializationError(f"{value!r} is no range of up to 100 whole numbers, such as 1..5", path="score")
    return tuple(str(number) for number in range(int(match[1]), int(match[2]) + 1))


OWN = ("text", "prompt", "answer", "answers", "id", "custom_id")


@dataclass(frozen=True)
class LabelledCase:
    """A text, what is asked about it, and the numbers of the right options."""

    task: RecipeTask
    message: ChatMessage
    right: tuple[int, ...]

    def put_to(self, runner: ModelRunner) -> tuple[Decision, Settings]:
        """The decision, and how the task asks it of this model."""
        model = self.task.model(runner, self.message, _never)
        return asked_by(self.task, model, self.message)

    def way_of(self, runner: ModelRunner) -> str:
        """How it is asked, which is what temperatures are fitted for."""
        settings = self.put_to(runner)[1]
        return way_of_asking(settings, readout_for(runner, settings))


def asked_by(task: RecipeTask, model: TaskModel, message: ChatMessage) -> tuple[Decision, Settings]:
    """The decision that a task makes of a text, and how it asks."""
    chooses = task.task
    assert isinstance(chooses, (Choose, DecideAll))
    return chooses.decision(message), chooses.settings(model, message)


def read_case(common: Mapping[str, Any], line: object) -> LabelledCase:
    """A case; ``common``: what is asked in all lines. Raises LeapSerializationError."""
    if not isinstance(line, Mapping):
        raise LeapSerializationError("expected an object")
    text = line.get("text", line.get("prompt"))
    if not isinstance(text, str) or not text.strip():
        raise LeapSerializationError("expected a text that is not empty", path="text")
    fields = {**common, **{name: value for name, value in line.items() if name not in OWN}, "task": "decide"}
    task, unknown = read_task(fields)
    if unknown:
        raise LeapSerializationError("there is no such field", path=unknown[0])
    chooses = task.task
    assert isinstance(chooses, (Choose, DecideAll))
    message = ChatMessage("user", text)
    questions = chooses.decision(message).questions
    return LabelledCase(task, message, _right(questions, line))


def _right(questions: Sequence[Question], line: Mapping[str, Any]) -> tuple[int, ...]:
    if "answers" not in line:
        if len(questions) != 1 or "answer" not in line:
            raise LeapSerializationError("missing", path="answer" if len(questions) == 1 else "answers")
        return (_number(questions[0], line["answer"], "answer"),)
    answers = line["answers"]
    if not isinstance(answers, Mapping):
        raise LeapSerializationError("expected an object of answers by the questions' names", path="answers")
    found = []
    for n, question in enumerate(questions, 1):
        name = question.name or str(n)
        if name not in answers:
            raise LeapSerializationError("missing", path=f"answers.{name}")
        found.append(_number(question, answers[name], f"answers.{name}"))
    return tuple(found)


def _number(question: Question, answer: object, path: str) -> int:
    """The number of the option that an answer means: its value, its text, or of a score the level's number."""
    for n, (option, text) in enumerate(zip(question.options, question.texts, strict=True)):
        if type(option.value) is type(answer) and option.value == answer:
            return n
        if isinstance(answer, str) and answer == text:
            return n
        if question.kind != PREDICATE and type(answer) is int and str(answer) == text:
            return n
    raise LeapSerializationError(f"{answer!r} is not one of {', '.join(question.texts)}", path=path)


def _never(*_: object) -> Any:
    raise AssertionError("nothing is asked while a case is read")
