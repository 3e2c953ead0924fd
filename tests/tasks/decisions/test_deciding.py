"""Decisions of a model that chats: one state for many questions, orders, temperatures, and the two readouts."""

from __future__ import annotations

import math

import pytest

from leap_core.errors import LeapError, LeapOptionsError
from leap_core.system.directories import Directories
from leap_core.tasks.decisions.answers import Answer, choice_confidence, score_confidence, shares
from leap_core.tasks.decisions.calibration import LabeledCase, ece, fit, keep, kept_temperatures
from leap_core.tasks.decisions.deciding import Settings, decide, orders_of, prompts_of, readout_for
from leap_core.tasks.decisions.questions import Decision, Option, Question
from leap_core.tasks.task_fields import read_task
from leap_core.testing import ScriptedModelRunner

from ..conftest import ask_of, do

pytestmark = pytest.mark.slow

STATE = "The parcel came late and the box was wet. " * 100
QUESTIONS = 100
TOPICS = ["delivery", "payment", "praise"]


@pytest.fixture(scope="module")
def asked_at_once(d1):
    state = d1.detokenize(d1.tokenize(STATE)[:1000])
    questions = [Question.choice(f"Part {n}: which topic?", TOPICS, name=f"q{n}") for n in range(QUESTIONS)]
    return state, questions, decide(d1, Decision(state, tuple(questions)))


def test_a_state_of_a_thousand_tokens_is_computed_once_for_many_questions(d1, asked_at_once):
    state, questions, decided = asked_at_once
    prompts = prompts_of(d1, Decision(state, tuple(questions)), Settings())
    state_tokens = len(d1.tokenize(state))
    lengths = [d1.get_prompt_tokens_size(messages, options=options) for messages, options in (prompts[0], prompts[-1])]
    needed = state_tokens + QUESTIONS * (max(lengths) - state_tokens)
    assert decided.prompt_tokens == pytest.approx(QUESTIONS * max(lengths), rel=0.02)
    assert decided.computed_tokens <= 1.2 * needed
    assert decided.computed_tokens < 0.1 * decided.prompt_tokens  # what asking each alone would compute


def test_shared_or_alone_the_answers_are_the_same(d1, asked_at_once):
    state, questions, decided = asked_at_once
    for n in (0, 27, QUESTIONS - 1):
        (alone,) = decide(d1, Decision(state, (questions[n],))).answers
        assert alone.probabilities == pytest.approx(decided.answers[n].probabilities, abs=2e-3)


def test_both_readouts_are_named_in_the_result(builtin):
    question = Question.choice("Which city is named?", ["Paris", Option("Rome", "the capital of Italy")])
    for readout in ("text", "labels"):
        (answer,) = decide(builtin, Decision("I was in Paris.", (question,)), Settings(readout)).answers
        assert answer.readout == readout and math.fsum(answer.probabilities) == pytest.approx(1)
        assert 0 < answer.label_mass <= 1 and not answer.fitted
    assert readout_for(builtin, Settings()) == "text"


def test_orders_are_averaged_and_their_agreement_is_counted(builtin):
    question = Question.choice("Which topic?", TOPICS)
    decision = Decision("The parcel is late.", (question,))
    (answer,) = decide(builtin, decision, Settings("labels", orders=4)).answers
    turned = [Question.choice("Which topic?", [TOPICS[n] for n in order]) for order in orders_of(question, 4)]
    alone = decide(builtin, Decision(decision.state, tuple(turned)), Settings("labels")).answers
    by_topic = [dict(zip(each.question.texts, each.probabilities, strict=True)) for each in alone]
    by_hand = [sum(each[topic] for each in by_topic) / 4 for topic in TOPICS]
    assert answer.probabilities == pytest.approx(by_hand, abs=2e-3)
    assert (answer.orders, answer.agreeing) == (4, sum(each.text == answer.text for each in alone))


def test_label_probabilities_are_corrected_for_the_models_prior(builtin):
    question = Question.choice("Which topic?", TOPICS)
    nothing, text = Decision("N/A", (question,)), Decision("The parcel is late.", (question,))
    (free,) = decide(builtin, nothing, Settings("labels")).answers
    assert free.probabilities == pytest.approx([1 / 3] * 3, abs=2e-3)
    (answer,) = decide(builtin, text, Settings("labels", turned=True)).answers
    assert answer.orders == len(TOPICS) and sum(answer.probabilities) == pytest.approx(1)


def test_classify_gives_each_label_of_a_readout_to_each_answer(builtin):
    reply = do(builtin, "The parcel is late.", task="classify", labels=["mail", "sport"], readout="labels")
    shares = reply.details["probabilities"]
    turned = do(builtin, "The parcel is late.", task="classify", labels=["sport", "mail"], readout="labels")
    assert turned.details["probabilities"] == pytest.approx(shares, abs=2e-3)


def test_calibration_subtracts_the_preference_without_a_text(builtin):
    wording = '[[wording]]\nmodels = ["*"]\nuser = "{text} Answer with one of {labels}."\n'
    labels = ["mail", "sport", "not sure at all"]

    def found(text: str, recipe: str) -> list[float]:
        task, _ = read_task({"task": "classify", "labels": labels}, {"classify": recipe})
        return list(task.complete(builtin, text).details["probabilities"].values())

    plain, free = found("The parcel is late.", wording), found("?", wording.replace("{text}", ""))
    ratios = [a / b for a, b in zip(plain, free, strict=True)]
    calibrated = wording + "calibrated = true\n"
    assert found("The parcel is late.", calibrated) == pytest.approx([r / sum(ratios) for r in ratios], abs=2e-3)
    again, _ = read_task({"task": "classify", "labels": labels}, {"classify": calibrated})
    asked: list[str] = []

    def ask(messages, options, on_text=None):
        asked.append(messages[0].text)
        return ask_of(builtin)(messages, options, on_text)

    again.complete(builtin, "The train is late.", ask)
    assert len(asked) == len(labels) and all("train" in text for text in asked), "it is asked once for all texts"


def test_orders_differ_and_only_choices_have_several():
    question = Question.choice("q", ["a", "b", "c"])
    assert orders_of(question, 2) == [(0, 1, 2), (2, 1, 0)]
    assert len(set(orders_of(question, 6))) == 6 and orders_of(question, 24) == orders_of(question, 24)
    assert len(orders_of(Question.choice("q", ["a", "b"]), 9)) == 2
    assert len(orders_of(Question.predicate("q"), 9)) == 1


def test_a_model_that_reasons_first_has_no_label(builtin):
    runner = ScriptedModelRunner("yes")
    runner.render = lambda *_: type(builtin.render("x"))("<|im_start|>assistant\n<think>\n", 3)  # type: ignore[method-assign]
    runner.tokenize = lambda text, **_: [ord(text[0])]  # type: ignore[method-assign]
    with pytest.raises(LeapOptionsError, match="reasons before it answers"):
        decide(runner, Decision("s", (Question.predicate("q"),)), Settings("labels"))


@pytest.mark.parametrize(
    ("options", "message"),
    [(["a"], "two or more"), (["a", "a"], "the same"), ([str(n) for n in range(256)], "more than 255")],
)
def test_options_that_cannot_be_told_apart_are_refused(options, message):
    with pytest.raises(LeapError, match=message):
        Question.choice("q", options)


def test_a_text_and_a_truth_value_differ():
    question = Question.choice("q", ["true", True, "yes"])
    assert question.texts == ('"true"', "true", "yes")
    answer = Answer(question, (0.2, 0.7, 0.1), "text", 1.0)
    assert answer.value is True and answer.margin == pytest.approx(0.5)


def test_confidence_follows_the_published_formulas():
    assert choice_confidence([0.25] * 4) == 0 and choice_confidence([0, 1, 0]) == 1
    assert choice_confidence([0.6, 0.4]) == pytest.approx(0.2)
    assert score_confidence([0.5, 0, 0.5]) == 0 and score_confidence([0, 1, 0]) == 1
    assert score_confidence([0.8, 0.2, 0, 0]) == pytest.approx(1 - 0.2 / 1.0)


def cases(temperature: float, count: int = 400) -> list[LabeledCase]:
    """Answers that are right as often as they say at this temperature: one in four says 0.9, and so on."""
    made = []
    for n in range(count):
        probability = (0.9, 0.8, 0.7, 0.6)[n // 2 % 4]
        logprobs = (math.log(probability) * temperature, math.log(1 - probability) * temperature)
        made.append(LabeledCase("predicate", logprobs, 0 if n // 8 % 10 < probability * 10 else 1))
    return made


def test_a_fit_finds_the_temperature_and_tells_what_it_gained():
    found = fit(cases(3.0))
    assert found.temperatures["noul.2"] == pytest.approx(3.0, rel=0.2)
    assert found.after.ece < 0.08 < found.before.ece and found.after.accuracy == found.before.accuracy
    assert found.fitted_cases == found.after.cases == 200


def test_too_few_cases_are_refused():
    with pytest.raises(LeapOptionsError, match="too few"):
        fit(cases(1.0, 19))


def test_ece_is_the_distance_between_confidence_and_accuracy():
    assert ece([0.8] * 10, [True] * 8 + [False] * 2) == pytest.approx(0)
    assert ece([0.9, 0.9, 0.2, 0.2], [True, False, False, False]) == pytest.approx((2 * 0.4 + 2 * 0.2) / 4)


@pytest.mark.slow
def test_a_fit_applies_to_its_weights_and_readout(builtin, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAP_HOME", str(tmp_path))
    directories = Directories.from_environment()
    decision = Decision("It rains.", (Question.predicate("Is it dry?"),))
    (before,) = decide(builtin, decision, Settings("labels")).answers
    fingerprint = builtin.decision_model.fingerprint
    path = keep(fit(cases(3.0)), "builtin", fingerprint, "labels", directories)
    temperature = kept_temperatures(fingerprint, "labels", directories)["noul.2"]
    (after,) = decide(builtin, decision, Settings("labels")).answers
    assert (after.temperature, after.fitted) == (temperature, True)
    assert after.probabilities == pytest.approx(shares(before.logprobs, temperature), abs=2e-3)
    assert not decide(builtin, decision, Settings("text")).answers[0].fitted
    path.write_text('{"labels": {"temperatures": {"noul": 0}}}')
    with pytest.raises(LeapOptionsError, match="fit them again"):
        decide(builtin, decision, Settings("labels"))
