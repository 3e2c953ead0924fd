"""Both protocols, asked by their official clients, of a server over real sockets and a d1 model."""

from __future__ import annotations

import base64
import json
import math
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from urllib.error import HTTPError

import pytest

from leap_core import Leap
from leap_core.errors import LeapError
from leap_core.tasks.decisions.deciding import decide
from leap_core.tasks.decisions.protocols import read_decisions, read_systemone

from ...server.conftest import _Running


@pytest.fixture(scope="module")
def served(d1_path):
    running = _Running((), "secret", False, {}, {}, False, None)
    running._runner = Leap.load(str(d1_path), host="never")  # type: ignore[assignment]
    with running as server:
        yield server


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
OPENAI_QUESTIONS = [
    {"type": "predicate", "name": "late", "instructions": "Is it late?"},
    {
        "type": "choice",
        "instructions": [{"type": "input_text", "text": "What is it about?"}],
        "choices": [{"value": "true"}, {"value": True, "description": "it is true"}, {"value": "other"}],
    },
    {"type": "score", "name": "mood", "instructions": "How angry?", "levels": [{"label": "calm"}, {"label": "cross"}]},
]


@pytest.mark.slow
def test_the_official_client_gets_what_its_types_promise(served):
    decision = served.client().decisions.create(
        model="builtin", input="The parcel is late. " * 30, questions=OPENAI_QUESTIONS, safety_identifier="x"
    )
    late, about, mood = decision.answers
    assert (late.type, late.name, 0 <= late.probability <= 1) == ("predicate", "late", True)
    assert about.type == "choice" and about.name is None
    assert [(type(each.value), each.value) for each in about.probabilities] == [
        (str, "true"),
        (bool, True),
        (str, "other"),
    ]
    assert math.fsum(each.probability for each in about.probabilities) == pytest.approx(1)
    best = max(about.probabilities, key=lambda each: each.probability)
    assert (type(about.choice), about.choice) == (type(best.value), best.value)
    assert about.confidence == pytest.approx(max(0, (best.probability - 1 / 3) / (2 / 3)))
    assert [(each.value, each.label) for each in mood.probabilities] == [(0, "calm"), (1, "cross")]
    assert mood.score == pytest.approx(mood.probabilities[1].probability)
    assert decision.model == "builtin"
    usage = decision.usage
    assert usage.total_tokens == usage.input_tokens > 0 and usage.output_tokens == 0
    assert 0 < usage.input_tokens_details.cached_tokens < usage.input_tokens
    assert type(decision).model_validate(decision.model_dump(), strict=True) == decision
    assert about.model_extra["x_readout"] == "labels" and 0 < about.model_extra["x_label_mass"] <= 1


@pytest.mark.slow
def test_messages_calls_and_outputs_are_the_state(served):
    items = [
        {"role": "system", "content": "Watch."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_json", "data": {"a": [1]}}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "nothing"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    asked = read_decisions({"model": "m", "input": items, "questions": OPENAI_QUESTIONS})
    assert asked.decision.state == [
        {"role": "system", "content": "Watch."},
        {"role": "user", "content": ["Hi", {"a": [1]}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "nothing"},
        {"role": "assistant", "content": "Done."},
    ]
    answers = served.client().decisions.create(model="builtin", input=items, questions=OPENAI_QUESTIONS).answers
    assert [each.type for each in answers] == ["predicate", "choice", "score"]


CHOICE = {"type": "choice", "instructions": "q", "choices": [{"value": "a"}, {"value": "b"}]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"questions": []}, "questions"),
        ({"questions": [CHOICE] * 401}, "questions"),
        ({"questions": [{**CHOICE, "choices": [{"value": "a"}]}]}, "questions[0].choices"),
        ({"questions": [{**CHOICE, "choices": [{"value": str(n)} for n in range(256)]}]}, "questions[0].choices"),
        ({"questions": [{**CHOICE, "choices": [{"value": "a"}, {"value": "a"}]}]}, "questions[0].choices"),
        ({"questions": [{**CHOICE, "choices": [{"value": 1}, {"value": 2}]}]}, "questions[0].choices[0].value"),
        ({"questions": [{**CHOICE, "type": "box"}]}, "questions[0].type"),
        ({"questions": [{**CHOICE, "criteria": {}}]}, "questions[0].criteria"),
        ({"questions": [{"type": "predicate"}]}, "questions[0].instructions"),
        ({"questions": [{**CHOICE, "name": "n"}, {**CHOICE, "name": "n"}]}, "questions"),
        ({"input": []}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "input[0].call_id"),
        ({"temperature": 1}, "temperature"),
        ({"leap": {"readout": "guess"}}, "readout"),
    ],
)
def test_errors_are_named_by_their_path(served, fields, param):
    import openai

    body = {"model": "builtin", "input": "s", "questions": [CHOICE], **fields}
    with pytest.raises(openai.BadRequestError) as refused:
        served.client().post("/decisions", body=body, cast_to=object)
    assert refused.value.param == param


@pytest.mark.slow
def test_pictures_are_refused_by_a_model_that_does_not_see(served):
    import openai

    data = base64.b64encode(PNG).decode()
    part = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    with pytest.raises(openai.BadRequestError, match="picture|image|see"):
        served.client().decisions.create(
            model="builtin", input=[{"role": "user", "content": [part]}], questions=OPENAI_QUESTIONS
        )


def test_both_protocols_give_the_same_answer():
    one = read_decisions(
        {
            "input": "s",
            "questions": [
                {"type": "predicate", "name": "p", "instructions": "Is it?"},
                {
                    "type": "choice",
                    "name": "c",
                    "instructions": "Which?",
                    "choices": ["a", {"value": "b", "description": "B"}],
                },
                {"type": "score", "name": "l", "instructions": "How?", "levels": ["low", "high"]},
            ],
        }
    )
    other = read_systemone(
        {
            "state": "s",
            "questions": {
                "p": {"type": "noul", "instructions": "Is it?"},
                "c": {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": "B"}},
                "l": {"type": "score", "instructions": "How?", "criteria": ["low", "high"]},
            },
        }
    )
    assert one.decision == other.decision


SYSTEMONE = {
    "model": "builtin",
    "state": {"parcel": "late"},
    "questions": {
        "late": {"type": "noul", "criteria": {"true": "it is late", "false": None}},
        "about": {"type": "choice", "instructions": ["What is it", "about?"], "criteria": {"a": None, "b": {"x": 1}}},
        "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]},
    },
}


def post(served, body, path="/systemone") -> tuple[int, dict, dict]:
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    request = urllib.request.Request(served.url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.status, json.load(answer), dict(answer.headers)
    except HTTPError as error:
        return error.code, json.load(error), dict(error.headers)


def test_system_one_is_answered_in_its_own_form(served):
    status, answer, headers = post(served, SYSTEMONE)
    assert status == 200 and headers["x-typesafe-request-id"]
    assert list(answer["answers"]) == ["late", "about", "mood"] and set(answer["usage"]) == {
        "input_tokens",
        "output_tokens",
    }
    late, about, mood = answer["answers"].values()
    assert late["type"] == "noul" and isinstance(late["noul"], float) and "confidence" not in late
    assert about["choice"] in ("a", "b") and list(about["probabilities"]) == ["a", "b"]
    assert mood["legend"] == {"0": "calm", "1": "cross", "2": "furious"} and list(mood["probabilities"]) == [
        "0",
        "1",
        "2",
    ]
    assert mood["score"] == pytest.approx(mood["probabilities"]["1"] + 2 * mood["probabilities"]["2"])
    _, by_hand, _ = decide(served.runner, read_systemone(SYSTEMONE).decision).answers
    assert by_hand.probabilities == pytest.approx(list(about["probabilities"].values()), abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "status", "loc"),
    [
        ({"questions": {}}, 422, ["body", "questions"]),
        ({"questions": {"q": {"type": "noul"}}}, 422, ["body", "questions", "q", "instructions"]),
        ({"questions": {"q": {"type": "score", "criteria": ["x"] * 11}}}, 422, ["body", "questions", "q", "criteria"]),
        ({"questions": {"q": {"type": "box", "instructions": "x"}}}, 422, ["body", "questions", "q", "type"]),
        (
            {"questions": {"q": {"type": "noul", "instructions": "x", "more": 1}}},
            422,
            ["body", "questions", "q", "more"],
        ),
        ({"state": "x " * 20000}, 413, None),
        ({"model": "nosuch"}, 404, None),
    ],
)
def test_system_ones_errors_name_the_place(served, fields, status, loc):
    code, body, _ = post(served, {**SYSTEMONE, **fields})
    assert code == status
    if loc is not None:
        assert body["detail"][0]["loc"] == loc and body["detail"][0]["msg"]


def test_a_state_is_needed(served):
    code, body, _ = post(served, {name: value for name, value in SYSTEMONE.items() if name != "state"})
    assert (code, body["detail"][0]["loc"]) == (422, ["body", "state"])


def test_the_sdk_of_typesafe_reads_the_answers(served):
    sdk = pytest.importorskip(
        "typesafe_sdk", reason="typesafe-sdk is not installed: it brings an HTTP library of its own"
    )
    with sdk.TypeSafeClient(base_url=served.url.removesuffix("/v1"), api_key="secret") as client:
        response = client.system_one(state=SYSTEMONE["state"], questions=SYSTEMONE["questions"], model="builtin")
        late, about, mood = (response.answers[name] for name in ("late", "about", "mood"))
        assert (late.type, about.type, mood.type) == ("noul", "choice", "score")
        assert sum(about.probabilities.values()) == pytest.approx(1) and about.choice in about.probabilities
        assert set(mood.probabilities) == {0, 1, 2}
        assert [each.name for each in client.models.list().models] == ["builtin"]
        with pytest.raises(sdk.TypeSafeUnprocessableEntityError, match="criteria"):
            client.system_one(
                state="s",
                questions={"q": {"type": "score", "instructions": "x", "criteria": ["x"] * 11}},
                model="builtin",
            )


def test_the_list_of_models_has_both_forms(served):
    request = urllib.request.Request(served.url + "/models", headers={"Authorization": "Bearer secret"})
    with urllib.request.urlopen(request, timeout=100) as answer:
        listed = json.load(answer)
    assert [each["id"] for each in listed["data"]] == [each["name"] for each in listed["models"]] == ["builtin"]
    (model,) = listed["models"]
    assert model["description"].startswith("text model") and len(model["release_date"]) == len("2026-09-15")
    assert [each.id for each in served.client().models.list()] == ["builtin"]


def test_litellm_reads_the_answers_of_both_protocols(served, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        known = tuple(map(int, version("litellm").split(".")[:2])) >= (1, 106)
    except PackageNotFoundError:
        known = False
    if not known:
        pytest.skip("no litellm that knows decisions is installed: it pins another version of openai")
    import litellm

    for model, base in (("openai/builtin", served.url), ("typesafe/builtin", served.url.removesuffix("/v1"))):
        given = {"model": model, "api_base": base, "api_key": "secret"}
        listed = litellm.decisions(input="It is late.", questions=[OPENAI_QUESTIONS[0]], **given).answers
        named = litellm.systemone(state="It is late.", questions={"late": SYSTEMONE["questions"]["late"]}, **given)
        assert 0 <= listed[0].probability <= 1 and 0 <= named.answers["late"].noul <= 1


def test_a_broken_asset_is_named():
    body = {**SYSTEMONE, "assets": {"one": {"type": "image", "format": "png", "part": "asset-0"}}}
    with pytest.raises(LeapError, match="no part 'asset-0'"):
        read_systemone(body)
    data = PNG
    asked = read_systemone(body, {"asset-0": data})
    assert len(asked.decision.pictures) == 1
