"""Decisions about pictures, by the miniature model that sees: in Python, and over both protocols."""

from __future__ import annotations

import base64
import json

import pytest

from leap_core import ChatMessage, Leap, ModelLoadingOptions
from leap_core.conversation.messages import Image, Text
from leap_core.tasks.decisions.deciding import Settings, decide
from leap_core.tasks.decisions.questions import Decision, Question
from leap_core.testing.pictures import Figure, Scene

from ...server.conftest import _Running
from .test_protocols import post

COLOURS = ("red", "blue", "green", "yellow")
ANSWERS = [f"The circle is {colour}." for colour in COLOURS]
QUESTION = Question.choice("What colour is the circle?", ANSWERS)


def circle(colour: str) -> Image:
    return Image.from_pil_image(Scene((Figure("circle", colour, 0.5, 0.5, 0.2),)).draw(256, 256, None))


@pytest.fixture(scope="module")
def served():
    running = _Running((), "secret", False, {}, {}, False, None)
    running._runner = Leap.load("builtin-vl", ModelLoadingOptions(cpu_threads=1), host="never")  # type: ignore[assignment]
    with running as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("colour", COLOURS)
def test_the_image_decides_the_answer(served, colour):
    picture = circle(colour)

    def as_trained(question: Question, _texts) -> list[ChatMessage]:
        return [ChatMessage("user", [picture, Text(question.instructions)])]

    (answer,) = decide(served.runner, Decision(None, (QUESTION,), (picture,)), Settings(put=as_trained)).answers
    assert answer.value == f"The circle is {colour}." and answer.probability > 0.5


@pytest.mark.slow
def test_both_protocols_see_and_count_the_picture_to_the_state(served):
    data = base64.b64encode(circle("blue").data).decode()
    how = {"leap": {"orders": 6}}  # it was not trained on lists of answers, and prefers what comes last
    part = {"type": "input_image", "image_url": f"data:image/jpeg;base64,{data}"}
    question = {"type": "choice", "instructions": "What colour is the circle?", "choices": ANSWERS}
    body = {"model": "builtin", "input": [{"role": "user", "content": [part]}], "questions": [question], **how}
    status, reply, _ = post(served, body, "/decisions")
    assert status == 200, reply
    answer = reply["answers"][0]
    assert answer["choice"] == "The circle is blue."
    criteria = {"type": "choice", "instructions": "What colour is the circle?", "criteria": dict.fromkeys(ANSWERS)}
    asset = {"type": "image", "format": "jpeg", "data_base64": data}
    body = {"model": "builtin", "state": [], "questions": {"colour": criteria}, "assets": {"one": asset}, **how}
    status, reply, _ = post(served, {**body, "state": None}, "/systemone")
    assert status == 200, reply
    shares = list(reply["answers"]["colour"]["probabilities"].values())
    assert shares == pytest.approx([each["probability"] for each in answer["probabilities"]], abs=1e-3)


@pytest.mark.slow
def test_the_command_line_decides_about_images(leap, tmp_path, monkeypatch):
    monkeypatch.setattr(
        leap, "load", lambda *_: Leap.load("builtin-vl", ModelLoadingOptions(cpu_threads=1), host="never")
    )
    (tmp_path / "red.jpeg").write_bytes(circle("red").data)
    questions = [{"type": "choice", "name": "colour", "instructions": QUESTION.instructions, "choices": ANSWERS}]
    (tmp_path / "q.json").write_text(json.dumps(questions))
    ask = ("decide", "-m", "some", "--questions", "q.json", "--image", "red.jpeg", "--orders", "6", "--format", "json")
    done = leap(*ask)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["answers"]["colour"]["answer"] == "The circle is red."
