"""What commands say where they said nothing, or the wrong thing."""

from __future__ import annotations

import pytest

from leap_cli.framework.wrapping import fitting_widths
from leap_core.errors import LeapModelDownloadError
from leap_core.models.http import DownloadStopped, Retryable, RetryPolicy


def test_the_name_column_is_shortened_last():
    assert fitting_widths([38, 6, 12, 12], 60, whole=True) == [38, 6, 12]
    assert fitting_widths([38, 6, 30], 60, whole=True) == [38, 6, 12]
    assert fitting_widths([90, 6], 60, whole=True) == [60]


def test_an_error_names_an_option_as_it_was_typed(leap):
    leap.script("never")
    assert leap("generate", "--max-tokens", "0", "hi").stderr == "leap: error: --max-tokens: 0 must be 1 or more\n"


def test_an_empty_filtered_list_does_not_say_that_there_are_no_jobs(leap):
    assert leap("jobs", "list", "--state", "failed").stderr == "leap: there are no such jobs\n"
    assert "--background makes one" in leap("jobs", "list").stderr


def test_a_misspelled_variable_without_its_command_is_reported(leap):
    leap.variables["LEAP_TEMPERTURE"] = "1"
    leap.script("ok")
    assert "did you mean LEAP_GENERATE_TEMPERATURE?" in leap("generate", "-m", "some", "hi").stderr


def test_setting_a_missing_default_model_warns(leap):
    done = leap("config", "set", "default_model", "nosuch")
    assert done.code == 0 and "there is no model 'nosuch'" in done.stderr
    assert leap("config", "set", "default_model", "builtin").stderr == ""


def test_a_download_that_is_stopped_does_not_blame_the_server():
    import threading

    stop = threading.Event()
    told: list[str] = []
    policy = RetryPolicy(stop, on_wait=lambda reason, _: told.append(reason))
    stop.set()
    with pytest.raises(DownloadStopped):
        policy.failed(Retryable("closed the connection early"))
    assert told == [] and issubclass(DownloadStopped, LeapModelDownloadError)


def test_nothing_to_embed_is_a_usage_error(leap):
    done = leap("embed", stdin="\n")
    assert done.code == 2 and "there is no text to embed" in done.stderr


def test_a_terminal_is_prompted_for_text(leap):
    done = leap("embed", stdin="a text\n", stdin_terminal=True)
    assert done.code == 0 and "type the text, then Ctrl-D" in done.stderr


def test_plain_lines_get_the_right_hint(leap):
    done = leap("batch", "-", stdin="hello there\nsecond\n")
    assert done.code == 2 and "--input-format lines" in done.stderr and "--skip-invalid" not in done.stderr
    done = leap("batch", "-", stdin='hello there\n"second"\n')
    assert "--skip-invalid" in done.stderr


def test_an_output_named_as_a_spreadsheet_is_refused(leap):
    done = leap("batch", "-", "-o", "out.xlsx", stdin='"hi"\n')
    assert done.code == 2 and "would be no .xlsx file" in done.stderr and not (leap.home.parent / "out.xlsx").exists()


def test_a_table_can_go_to_standard_output(leap):
    leap.script("yes")
    done = leap("batch", "-", "-m", "builtin", "--format", "csv", "--input-format", "lines", stdin="hi\n")
    assert done.stdout.splitlines()[0].startswith("custom_id,answer")


def test_files_get_no_hint_about_options_and_version_is_explained(leap):
    assert "--help" not in leap("generate", "-f", "/no/such", "hi").stderr
    assert "leap --version prints it" in leap("version").stderr


def test_the_catalogue_can_be_filtered(leap):
    words = leap("models", "catalogue", "audio", "--format", "quiet").stdout.split()
    every = leap("models", "catalogue", "--format", "quiet").stdout.split()
    assert "LFM2.5-Audio-1.5B" in words and 0 < len(words) < len(every)
    assert "no model of the catalogue" in leap("models", "catalogue", "--option", "installed").stderr


def test_a_continued_chat_shows_the_last_exchange(leap, talk):
    leap.script("Hello.", "I do.")
    talk("hi")
    done = talk("do you know me?", arguments=("-c",))
    assert "2 messages\n> hi\nHello.\n" in done.stderr
    done = talk("/system Be brief.", "/set temperature 0.5", arguments=("--no-save",))
    assert "the system prompt is now: Be brief." in done.stdout and "temperature is 0.5" in done.stdout


def test_prune_says_that_no_session_is_that_old(leap):
    assert (
        "no session without a name is that old" in leap("sessions", "prune", "--older-than", "30d", "--dry-run").stderr
    )
