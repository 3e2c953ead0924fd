"""Which model answers when none is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leap_core import LeapModelNotFoundError
from leap_core.models.store import USE_LOCK

NOTE = "leap: no model given, so the built-in demo model answers; "


def configure(leap, text):
    leap.home.mkdir()
    (leap.home / "config.toml").write_text(text)


def test_the_built_in_model_with_one_line_that_says_so(leap):
    leap.script("Paris.")
    done = leap("generate", "capital of France?")
    assert (done.code, done.stdout) == (0, "Paris.\n")
    assert done.stderr.startswith(NOTE) and done.stderr.count("\n") == 1
    assert leap.loaded[0][0] == "builtin"


def test_naming_the_built_in_model_needs_no_line(leap):
    leap.script("Paris.")
    assert leap("generate", "-m", "builtin", "capital of France?").stderr == ""


def test_a_refused_prompt_gives_the_error_alone(leap):
    leap.script("never", context_size=8)
    done = leap("generate", "word " * 20)
    assert (done.code, done.stderr.count("\n")) == (5, 1)
    assert done.stderr.startswith("leap: error: the prompt has 23 tokens")


def test_the_configured_model(leap):
    configure(leap, 'default_model = "LFM2-350M"\n')
    leap.script("ok")
    assert leap("generate", "hello").stderr == ""
    assert leap.loaded[0][0] == "LFM2-350M"


def test_the_environment_goes_before_the_configuration_and_the_option_before_both(leap):
    configure(leap, 'default_model = "configured"\n')
    leap.variables["LEAP_MODEL"] = "from-environment"
    leap.script("ok")
    leap("generate", "hello")
    leap.script("ok")
    leap("generate", "-m", "from-option", "hello")
    assert [reference for reference, _ in leap.loaded] == ["from-environment", "from-option"]


@pytest.mark.parametrize("text", ["default_model = ", "default_model = 5", 'default_model = ""', "[default_model]"])
def test_a_malformed_configuration_is_named(leap, text):
    configure(leap, text)
    done = leap("generate", "hello")
    assert (done.code, done.stdout) == (2, "")
    assert str(leap.home / "config.toml") in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["generate", "hi"], ["chat"]])
def test_a_default_that_cannot_be_loaded_is_told_with_where_it_is_named(leap, command):
    def hint(*arguments):
        leap.load_error = LeapModelNotFoundError("there is no such model", hint="look for it")
        done = leap(*command, *arguments)
        assert (done.code, done.stderr.count("\n")) == (2, 1)
        return done.stderr.partition("(hint: ")[2]

    configure(leap, 'default_model = "nosuch"\n')
    assert hint() == f"look for it; default_model in {leap.home / 'config.toml'} names this model)\n"
    leap.variables["LEAP_MODEL"] = "neither"
    assert hint() == "look for it; $LEAP_MODEL names this model)\n"
    assert hint("-m", "nosuch") == "look for it)\n"


@pytest.mark.parametrize(
    "command", [["load"], ["serve", "--port", "0"], ["batch", "-"], ["generate", "hi", "--background"]]
)
def test_every_command_tells_where_a_default_that_is_missing_is_named(leap, command):
    leap.variables["LEAP_MODEL"] = "/nosuch.gguf"
    done = leap(*command, stdin='{"prompt": "hi"}\n')
    assert done.code == 2
    assert done.stderr == "leap: error: there is no file /nosuch.gguf (hint: $LEAP_MODEL names this model)\n"


def test_chat_says_so_at_its_beginning(leap):
    leap.script("ok")
    done = leap("chat", stdin="hi\n")
    assert done.stderr.startswith(NOTE)


def test_the_only_installed_model_answers_and_of_several_the_last_used(leap, tmp_path):
    from leap_core.models.builtin import model_path

    model = tmp_path / "Mine-Q8_0.gguf"
    model.write_bytes(Path(model_path()).read_bytes())
    assert leap("models", "import", str(model)).code == 0
    leap.script("ok")
    assert leap("generate", "hi").stderr == "" and leap.loaded[-1][0] == "Mine-Q8_0"
    assert leap("models", "default").stdout == "Mine-Q8_0\n"
    other, encoder = tmp_path / "Other-Q8_0.gguf", tmp_path / "Encoder-Q8_0.gguf"
    other.write_bytes(model.read_bytes())
    encoder.write_bytes(Path(model_path()).with_name("builtin-embed.gguf").read_bytes())
    assert leap("models", "import", str(other)).code == 0 and leap("models", "import", str(encoder)).code == 0
    for name, moment in (("Other-Q8_0", 2000), ("Mine-Q8_0", 1000), ("Encoder-Q8_0", 3000)):
        (lock,) = (leap.home / "models" / name).glob(f"*{USE_LOCK}")
        os.utime(lock, (moment, moment))
    leap.script("ok")
    done = leap("generate", "hi")
    assert leap.loaded[-1][0] == "Other-Q8_0" and "Other-Q8_0 answers, the last used of 2 models here" in done.stderr
    assert leap("models", "default", "Mine-Q8_0").code == 0 and leap("models", "default").stdout == "Mine-Q8_0\n"
    leap.script("ok")
    assert leap("generate", "hi").stderr == "" and leap.loaded[-1][0] == "Mine-Q8_0"
    assert leap("models", "default", "nosuch").code == 2
