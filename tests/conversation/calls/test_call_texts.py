"""The golden table: what models write, and what must come out of it, cut at every position."""

from __future__ import annotations

from typing import Any

import pytest

from leap_core.conversation.calls import parser_named
from leap_core.conversation.calls.parsers import CallEvent, CallsFound, CallStream, CallText, CallWarning
from tests.support.growth import check_growth
from tests.support.lengths import usually

from ...support.tables import check_each
from .call_texts import DECLARED, LFM_GOOD, TABLE, UNREADABLE, E, H, K, Row, S, call


def played(row: Row, pieces: list[str]) -> list[Any]:
    """What comes out when the reply arrives in these pieces, in the table's notation."""
    stream = CallStream(parser_named(row.parser) if row.parser else None, DECLARED)
    events: list[CallEvent] = []
    for piece in pieces:
        events += stream.feed(piece)
    events += stream.finish()
    shown: list[Any] = []
    for event in events:
        if isinstance(event, CallText) and shown and isinstance(shown[-1], str) and shown[-1] != UNREADABLE:
            shown[-1] += event.text
        elif isinstance(event, CallText):
            shown.append(event.text)
        elif isinstance(event, CallsFound):
            shown.append(list(event.calls))
        else:
            assert isinstance(event, CallWarning) and "could not be read" in event.message
            shown.append(UNREADABLE)
    return [found for found in shown if found != []]


def test_the_table_is_large_enough():
    assert len(TABLE) >= 120


def named(row: Row) -> str:
    return f"{row.parser}: {row.text[:50]!r}"


def test_a_reply_in_one_piece():
    def check(row: Row) -> None:
        assert played(row, [row.text]) == [found for found in row.expected if found != []]

    check_each(TABLE, check, named)


@pytest.mark.slow
@pytest.mark.parametrize("part", usually(range(0, 20, 4), range(20)))
def test_a_reply_cut_at_every_position(part: int):
    def check(row: Row) -> None:
        whole = played(row, [row.text])
        step = len(row.text) // 400 + 1  # a long row is long in one thing only
        for cut in range(0, len(row.text) + 1, step):
            assert played(row, [row.text[:cut], row.text[cut:]]) == whole, f"cut at {cut}"
        assert played(row, list(row.text)) == whole

    check_each(TABLE[part::20], check, named)


def test_no_marker_ever_leaks_into_text():
    def check(row: Row) -> None:
        for found in played(row, list(row.text)):
            if isinstance(found, str):
                assert not any(marker in found for marker in (S, E, H, K) if marker in row.text)

    check_each([row for row in TABLE if row.parser], check, named)


@pytest.mark.parametrize("name", ["lfm", "hermes"])
def test_written_calls_read_back_the_same(name: str):
    def check(row: Row) -> None:
        calls = [call for found in row.expected for call in found]
        again = Row(parser_named(name).dump(calls), [], name)
        found = [call for calls in played(again, list(again.text)) if isinstance(calls, list) for call in calls]
        assert found == calls

    check_each(LFM_GOOD, check, named)


def test_text_is_delivered_as_it_arrives():
    stream = CallStream(parser_named("lfm"), DECLARED)
    assert stream.feed("Let me ") == [CallText("Let me ")]
    assert stream.feed("see <|tool") == [CallText("see ")]
    assert stream.feed("_call_start|>[f(a=1)]") == []
    assert stream.feed(E) == [CallsFound((call("f", a=1),))]


def test_a_bracket_that_begins_no_call_is_not_held_back():
    stream = CallStream(parser_named("lfm"), DECLARED)
    assert stream.feed("[1, 2, ") == [CallText("[1, 2, ")]
    assert stream.feed("[ge") == [CallText("[ge")]
    stream = CallStream(parser_named("lfm"), DECLARED)
    assert stream.feed("[ge") == []
    assert stream.feed("n") == [CallText("[gen")]
    stream = CallStream(parser_named("lfm"), DECLARED)
    assert stream.feed("[f(a=1)]") == []
    assert stream.feed(" is a call.") == [CallText("[f(a=1)] is a call.")]


def test_endless_text_takes_linear_time():
    """A long reply is read once, not over and over."""
    stream = CallStream(parser_named("lfm"), DECLARED)
    text = "".join(event.text for _ in range(5000) for event in stream.feed("[word] ") if isinstance(event, CallText))
    assert text == "[word] " * 5000


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", ["[f(a=" + "[" * 30_000, '[f(a="' + "x" * 60_000, "[f(a=[" + "1, " * 20_000, "[f(a=" + "'" * 60_000]
)
def test_a_bare_call_takes_linear_time(body: str):
    def read(size: int) -> None:
        stream, part = CallStream(parser_named("lfm"), DECLARED), body[:size]
        events = [event for place in range(0, size, 4) for event in stream.feed(part[place : place + 4])]
        assert "".join(event.text for event in (*events, *stream.finish()) if isinstance(event, CallText)) == part

    check_growth(read, len(body))


@pytest.mark.parametrize(
    "number", ["1" * 200_000, "1_" * 100_000, "_" * 50_000, "1" + "_" * 50_000 + "x", "1e" * 50_000]
)
def test_a_number_takes_linear_time(number: str):
    assert played(Row("", []), [f"{S}[f(a={number})]{E}"])[-1] == UNREADABLE
    check_growth(lambda size: played(Row("", []), [f"{S}[f(a={number[:size]})]{E}"]), len(number))
