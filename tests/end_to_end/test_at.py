"""``--at``: a job begins at its time, and not before."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta

import click
import pytest

from leap_cli.framework.options import Moment

MOMENT = Moment()


def test_a_time_is_parsed_in_three_forms(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    now = time.time()
    assert MOMENT.convert("+90m", None, None) == pytest.approx(now + 5400, abs=2)
    later = datetime.now() + timedelta(hours=3)
    assert MOMENT.convert(f"{later:%H:%M}", None, None) == pytest.approx(later.timestamp(), abs=61)
    earlier = datetime.now() - timedelta(hours=3)
    assert MOMENT.convert(f"{earlier:%H:%M}", None, None) == pytest.approx(
        (earlier + timedelta(days=1)).timestamp(), abs=61
    )
    assert MOMENT.convert("2126-12-01T06:00", None, None) == datetime(2126, 12, 1, 6).timestamp()
    assert MOMENT.convert("2126-12-01T05:00+00:00", None, None) == datetime(2126, 12, 1, 6).timestamp()
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text", ["25:00", "22:61", "soon", "+soon", "+30", "2020-01-01T00:00", "2126-13-01", "", "-5m"]
)
def test_invalid_times_are_refused(text):
    with pytest.raises(click.BadParameter):
        MOMENT.convert(text, None, None)


def test_a_job_begins_at_its_time(program):
    begun = time.time()
    done = program("generate", "-m", "builtin", "--at", "+3s", "What is the capital of Italy?")
    assert done.returncode == 0, done.stderr
    id = done.stdout.strip()
    seen = json.loads(program("jobs", "status", id, "--format", "json").stdout)
    assert seen["state"] == "queued" and seen["waits_for"].startswith("its time, ")
    ended = json.loads(program("jobs", "wait", id, "--format", "json").stdout)
    assert ended["state"] == "succeeded" and ended["started"] - begun >= 2.9


def test_a_job_that_waits_for_its_time_is_cancelled(program):
    id = program("generate", "-m", "builtin", "--at", "23:59", "hi").stdout.strip()
    assert program("jobs", "cancel", id).returncode == 0
    assert json.loads(program("jobs", "status", id, "--format", "json").stdout)["state"] == "cancelled"


def test_at_and_a_session_exclude_each_other(program):
    done = program("generate", "-m", "builtin", "--at", "+1h", "--host", "hi")
    assert done.returncode == 2 and "--at" in done.stderr
