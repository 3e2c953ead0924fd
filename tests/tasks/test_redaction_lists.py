"""Lists of personal data that have no room for more: the text is cut, or refused, and no entity stays in it."""

from __future__ import annotations

import json
import random

import pytest

from leap_core.tasks.redaction import LONGEST, MOST, unmask
from leap_core.tasks.task import halves_between_sentences
from leap_core.testing import ScriptedModelRunner

from .conftest import do

MAILS = [f"x{n:02}@example.org" for n in range(70)]


def lists(*items: str) -> str:
    return json.dumps({"email_address": items})


def redact(runner: ScriptedModelRunner, text: str, **fields: object):
    return do(runner, text, task="redact", categories=["email_address"], **fields)


def asked(runner: ScriptedModelRunner) -> list[str]:
    return [request.messages[-1].text for request in runner.requests]


@pytest.mark.parametrize("mark", ["\n", "\r\n", ". ", "。"])
def test_the_halves_of_a_text_with_a_full_list_are_asked_for_again(mark):
    text = mark.join(MAILS) + mark
    left, right = [lists(*MAILS[:18]), lists(*MAILS[18:35])], [lists(*MAILS[35:53]), lists(*MAILS[53:])]
    full = lists(*MAILS[:MOST])
    runner = ScriptedModelRunner(full, full, *left, lists(*MAILS[35 : 35 + MOST]), *right)
    complete = redact(runner, text)
    pieces = asked(runner)
    assert pieces[0] == text == pieces[1] + pieces[4] == "".join(pieces[2:4] + pieces[5:])
    assert not any(mail in complete.full_message.text for mail in MAILS)
    assert unmask(complete.full_message.text, complete.details["map"]) == text


def test_a_list_with_room_is_asked_for_once():
    runner = ScriptedModelRunner(lists(*MAILS[: MOST - 2], "y" * (LONGEST - 1)))
    redact(runner, "\n".join(MAILS[: MOST - 2]))
    assert len(runner.requests) == 1


def test_what_a_full_list_has_is_masked_in_the_whole_text():
    text = "\n".join([*MAILS[:30], MAILS[0]])
    runner = ScriptedModelRunner(lists(*MAILS[:MOST]), lists(), lists(*MAILS[MOST:30]))
    assert "@" not in redact(runner, text).full_message.text


def test_an_entity_that_was_cut_off_is_not_what_is_masked():
    """Its first characters would be masked, and the rest of it left."""
    first, second = f"{'a' * 40}@{'a' * 9}", f"{'b' * 40}@{'b' * 9}"
    text = f"{first}\n{second}"
    runner = ScriptedModelRunner(lists(text[:LONGEST]), lists(first), lists(second))
    complete = redact(runner, text)
    assert complete.full_message.text == "[EMAIL_ADDRESS_1]\n[EMAIL_ADDRESS_2]"


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (" ".join(MAILS[:30]), [lists(*MAILS[:MOST])]),
        ("a" * 90, [lists("a" * LONGEST)]),
        ("Hi.\n" + " ".join(MAILS[:30]) + "\n\n", [lists(*MAILS[:MOST]), lists(), lists(*MAILS[:MOST])]),
    ],
)
def test_a_text_that_cannot_be_cut_is_masked_by_expressions_and_said(text, answers):
    runner = ScriptedModelRunner(*answers)
    complete = redact(runner, text)
    assert complete.details["unasked"] == [1] and "example.org" not in complete.full_message.text
    assert len(runner.requests) == len(answers)


def test_repeated_items_and_those_of_another_text_fill_no_list():
    runner = ScriptedModelRunner(lists(*["a@b.org"] * MOST), lists(*MAILS[:MOST]))
    for text in ("Ann, a@b.org", "Ann"):
        complete = redact(runner, text)
        assert "unasked" not in complete.details and complete.full_message.text.startswith("Ann")
    assert len(runner.requests) == 2


def test_a_line_of_its_own_is_cut_between_sentences():
    text = ". ".join(MAILS[:30]) + "\nBye"
    runner = ScriptedModelRunner(lists(*MAILS[:MOST]), lists(*MAILS[:15]), lists(*MAILS[15:30]), lists())
    assert "@" not in redact(runner, text, lines=True).full_message.text
    assert asked(runner)[-1] == "Bye"


def test_halves_are_whole_lines_or_else_sentences_and_nothing_is_lost():
    assert halves_between_sentences("a. b. c\nd") == ("a. b. c\n", "d")
    assert halves_between_sentences("Is it? It is! So.") == ("Is it? ", "It is! So.")
    assert halves_between_sentences("\n\n a 1.5 b, c@d.org \r\n") is None
    chance = random.Random(3)
    for _ in range(500):
        text = "".join(chance.choices("ab. \n\r。!", k=chance.randint(0, 40)))
        halves = halves_between_sentences(text)
        assert halves is None or ("".join(halves) == text and all(half.strip() for half in halves))
