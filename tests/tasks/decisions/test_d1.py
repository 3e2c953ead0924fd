"""A d1 model: asked by its own template, read as llama.cpp reads it. The oracle makes llama.cpp's own calls."""

from __future__ import annotations

import json
import math

import pytest
from jinja2 import Environment

from leap_core import Leap
from leap_core.errors import LeapModelLoadingError, LeapOptionsError
from leap_core.models.catalogue import Catalogue
from leap_core.tasks.decisions.deciding import Settings, decide, prompts_of
from leap_core.tasks.decisions.questions import Decision, Option, Question
from tests.support.lengths import usually
from tests.support.random_models import DECISION_TEMPLATE

from ...bare_llama import BareLlama
from .conftest import TEMPERATURES, write_d1

STATE = "The parcel is late. The customer writes for the third time, and is <|im_end|> angry.\n" * 3


class Oracle(BareLlama):
    """Probabilities after a whole prompt, from llama.cpp's C calls, jinja2 and nothing of leap's."""

    def shares(self, variables: dict, groups: list[list[str]], temperature: float) -> list[float]:
        """``groups``: the forms of each option's label."""
        environment = Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        text = environment.from_string(DECISION_TEMPLATE, {}).render(images=[], **variables)
        logits = self._computed(self.tokens(text, special=True), 0, outputs=False)[-1].astype(float)
        scores = []
        for forms in groups:
            tokens = [self.tokens(form, special=False) for form in forms]
            single = [ids[0] for ids in tokens if len(ids) == 1]
            scores.append(max(logits[token] for token in single) / temperature)
        weights = [math.exp(score - max(scores)) for score in scores]
        return [weight / sum(weights) for weight in weights]


@pytest.fixture(scope="module")
def oracle(d1_path):
    oracle = Oracle(str(d1_path), 8192)
    yield oracle
    oracle.close()


def codes_by_hand(oracle: Oracle, count: int) -> list[str]:
    """The codes of a choice, as llama.cpp's comments have them: letters to 26; else two digits, and the pool."""
    if count <= 26:
        return [chr(65 + n) for n in range(count)]
    capitals = [chr(65 + n) for n in range(26)]
    pool = [*capitals, *(f"{n:02}" for n in range(100)), *map(str.lower, capitals)]
    pool += [*(f"#{n}" for n in range(200)), *(a + b for a in capitals for b in capitals)]
    single = {code for code in pool if len(oracle.tokens(code, special=False)) == 1}
    taken: list[str] = []
    for n in range(count):
        taken.append(next(code for code in [f"{n:02}", *pool] if code in single and code not in taken))
    return taken


STATES = ["The parcel is late.\nThe customer is angry.", {"parcel": "late", "früh": [1, 2]}, None]


@pytest.mark.slow
@pytest.mark.parametrize("count", usually([2, 26, 27, 100], [2, 10, 26, 27, 100, 255]))
def test_choices_are_those_computed_by_hand(d1, oracle, count):
    options = [Option(f"topic_{n}", f"about {n}" if n % 2 else None) for n in range(count)]
    question = Question.choice("What is it about?", options, name="topic")
    temperature = {2: 1.0}.get(count, TEMPERATURES["choice"])
    codes = codes_by_hand(oracle, count)
    for state in STATES if count < 100 else STATES[:1]:
        decided = decide(d1, Decision(state, (question,)))
        listed = [
            {"key": option.value, "description": option.description, "label": code}
            for option, code in zip(options, codes, strict=True)
        ]
        variables = {"id": "topic", "type": "choice", "instructions": question.instructions, "state": state}
        by_hand = oracle.shares({**variables, "options": listed}, [[c, f" {c}"] for c in codes], temperature)
        assert decided.answers[0].probabilities == pytest.approx(by_hand, abs=1e-4)
        assert decided.answers[0].readout == "labels"


def test_temperatures_of_the_file_count_by_the_number_of_options(d1, oracle):
    question = Question.choice("Which?", ["a", "b", "c"])  # keys of one letter are their own codes
    listed = [{"key": key, "description": None, "label": key} for key in "abc"]
    variables = {"id": "", "type": "choice", "instructions": "Which?", "state": "x", "options": listed}
    by_hand = oracle.shares(variables, [[key, f" {key}"] for key in "abc"], 1.5)
    (answer,) = decide(d1, Decision("x", (question,))).answers
    assert answer.probabilities == pytest.approx(by_hand, abs=1e-4)
    assert (answer.temperature, answer.fitted) == (1.5, True)


def test_predicates_and_scores_are_those_computed_by_hand(d1, oracle):
    predicate = Question.predicate("Is it late?", true="it is late", name="late")
    score = Question.score("How angry?", [Option("calm"), Option("cross", "raises the voice"), Option("furious")])
    decided = decide(d1, Decision("s", (predicate, score)))
    listed = [
        {"key": "true", "description": "it is late", "label": "true"},
        {"key": "false", "description": None, "label": "false"},
    ]
    variables = {"id": "late", "type": "noul", "instructions": "Is it late?", "state": "s", "options": listed}
    by_hand = oracle.shares(variables, [["yes", "Yes", "YES"], ["no", "No", "NO"]], TEMPERATURES["noul.2"])
    assert decided.answers[0].probabilities == pytest.approx(by_hand, abs=1e-4)
    levels = ["calm", "cross: raises the voice", "furious"]
    listed = [{"key": str(n), "description": level, "label": str(n)} for n, level in enumerate(levels)]
    variables = {"id": "", "type": "score", "instructions": "How angry?", "state": "s", "options": listed}
    by_hand = oracle.shares(variables, [["0"], ["1"], ["2"]], 1.0)
    assert decided.answers[1].probabilities == pytest.approx(by_hand, abs=1e-4)
    assert decided.answers[1].score == pytest.approx(by_hand[1] + 2 * by_hand[2], abs=1e-4)


def test_special_tokens_in_a_state_stay_text(d1):
    ((messages, options),) = prompts_of(d1, Decision(STATE, (Question.predicate("Late?"),)), Settings())
    assert STATE in d1.render(messages, (), options).text
    decided = decide(d1, Decision("<|im_end|>" * 20, (Question.predicate("Late?"),)))
    assert decided.prompt_tokens > 20 * len("<|im_end|>") // 2  # one token each would be fewer


def test_the_text_of_an_answer_cannot_be_read(d1):
    with pytest.raises(LeapOptionsError, match="labels of one token"):
        decide(d1, Decision("s", (Question.predicate("Late?"),)), Settings("text"))


def test_first_files_are_recognised_by_their_kind(tmp_path):
    path = write_d1(tmp_path / "early.gguf", kind="d1")
    with Leap.load(str(path), host="never") as runner:
        assert decide(runner, Decision("s", (Question.predicate("Late?"),))).answers[0].readout == "labels"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ({"kind": "lfm2-d1-omni"}, "lfm2-d1-omni", "b11524"),
        ({"template": None}, "no template systemone", "download"),
        ({"temperatures": {"choice": 0.0}}, "the temperature 0.000000 of choice", ""),
    ],
)
def test_files_that_llama_cpp_would_refuse_are_refused(tmp_path, fields, message, hint):
    path = write_d1(tmp_path / "model.gguf", **fields)
    with pytest.raises(LeapModelLoadingError, match=message) as refused, Leap.load(str(path), host="never"):
        pass
    assert hint in (refused.value.hint or "")


def test_an_unknown_kind_is_refused(tmp_path):
    path = write_d1(tmp_path / "lev.gguf", kind="lev")
    with Leap.load(str(path), host="never") as runner, pytest.raises(LeapOptionsError, match="'lev'"):
        decide(runner, Decision("s", (Question.predicate("Late?"),)))


@pytest.mark.parametrize(("name", "needs"), [("d1-omni-600M", "b11524"), ("d1-2B", "b11960")])
def test_unsupported_models_are_refused_before_the_download(name, needs):
    with pytest.raises(LeapModelLoadingError, match=needs):
        Catalogue.load().find(name).check_runs()
    Catalogue.load().find("d1-3B").check_runs()
