"""Lengths of time, read and written."""

from __future__ import annotations

import pytest

from leap_cli.framework.options import in_words, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("2w", 1_209_600),
        ("1.5s", 1.5),
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        (" 1H 30M ", 5400),
        ("250ms", 0.25),
    ],
)
def test_durations_are_parsed(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10x", "-5", "-5m", "1h 30", "ten", "1e3", "nan", "inf", "5mm", "1:30"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(ValueError, match="not a length of time such as"):
        seconds_of(text)


@pytest.mark.parametrize("text", ["30", "7", "1.5"])
def test_a_number_without_a_unit_is_refused(text):
    with pytest.raises(ValueError, match=f"{text} has no unit: write {text}s"):
        seconds_of(text)


def test_the_longest_duration_is_finite():
    assert seconds_of("9" * 400 + "s") < 1e10 and seconds_of("9" * 400 + "d") < 1e10


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (59.4, "59s"), (60, "1m"), (61, "1m 1s"), (3600, "1h"), (3661, "1h 1m"), (90_000, "1d 1h")],
)
def test_durations_are_formatted(seconds, words):
    assert in_words(seconds) == words


@pytest.mark.parametrize(
    "arguments",
    [["--keep-alive", "soon"], ["--slots", "0"], ["--slots", "257"], ["--context-size", "-1"], ["--queue", "-1"]],
)
def test_load_refuses_impossible_durations(leap, arguments):
    done = leap("load", "builtin", *arguments)
    assert (done.code, done.stdout) == (2, "") and done.stderr.count("\n") == 1 and arguments[0][2:5] in done.stderr


def test_an_invalid_configured_keep_alive_is_an_error(leap):
    leap.home.mkdir()
    for text in ('keep_alive = "soon"', "keep_alive = 3"):
        (leap.home / "config.toml").write_text(text)
        done = leap("load", "builtin")
        assert done.code == 2 and "config.toml: keep_alive" in done.stderr


def test_unload_takes_either_a_name_or_all(leap):
    assert leap("unload", "--all", "builtin").code == 2
