"""Which model answers when none is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from leap_core import LeapModelNotFoundError
from leap_core.models.builtin import model_path
from leap_core.models.store import USE_LOCK
from tests.support.random_models import TINY_LLAMA, write_random_model

NOTE = "leap: no model given, so the built-in demo model answers; "


def configure(leap, text):
    leap.home.mkdir()
    (leap.home / "config.toml").write_text(text)


def test_the_builtin_model_answers_with_a_note(leap):
    leap.script("Paris.")
    done = leap("generate", "capital of France?")
    assert (done.code, done.stdout) == (0, "Paris.\n")
    assert done.stderr.startswith(NOTE) and done.stderr.count("\n") == 1
    assert leap.loaded[0][0] == "builtin"


def test_naming_the_builtin_model_needs_no_note(leap):
    leap.script("Paris.")
    assert leap("generate", "-m", "builtin", "capital of France?").stderr == ""


def test_a_refused_prompt_prints_only_the_error(leap):
    leap.script("never", context_size=8)
    done = leap("generate", "word " * 20)
    assert (done.code, done.stderr.count("\n")) == (5, 1)
    assert done.stderr.startswith("leap: error: the prompt has 23 tokens")


def test_the_configured_model_answers(leap):
    configure(leap, 'default_model = "LFM2-350M"\n')
    leap.script("ok")
    assert leap("generate", "hello").stderr == ""
    assert leap.loaded[0][0] == "LFM2-350M"


def test_the_option_overrides_the_environment_which_overrides_the_configuration(leap):
    configure(leap, 'default_model = "configured"\n')
    leap.variables["LEAP_MODEL"] = "from-environment"
    leap.script("ok")
    leap("generate", "hello")
    leap.script("ok")
    leap("generate", "-m", "from-option", "hello")
    assert [reference for reference, _ in leap.loaded] == ["from-environment", "from-option"]


@pytest.mark.parametrize("text", ["default_model = ", "default_model = 5", 'default_model = ""', "[default_model]"])
def test_a_malformed_configuration_is_a_named_error(leap, text):
    configure(leap, text)
    done = leap("generate", "hello")
    assert (done.code, done.stdout) == (2, "")
    assert str(leap.home / "config.toml") in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["generate", "hi"], ["chat"]])
def test_a_default_that_cannot_be_loaded_names_the_setting(leap, command):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["load"], ["serve", "--port", "0"], ["batch", "-"], ["generate", "hi", "--background"]]
)
def test_every_command_names_the_setting_of_a_missing_default(leap, command):
    leap.variables["LEAP_MODEL"] = "/nosuch.gguf"
    done = leap(*command, stdin='{"prompt": "hi"}\n')
    assert done.code == 2
    assert done.stderr == "leap: error: there is no file /nosuch.gguf (hint: $LEAP_MODEL names this model)\n"


def test_chat_starts_with_a_note_about_the_builtin_model(leap):
    leap.script("ok")
    done = leap("chat", stdin="hi\n")
    assert done.stderr.startswith(NOTE)


def test_a_removed_default_is_reported(leap):
    leap.variables["LEAP_MODEL"] = "nosuch"
    done = leap("models", "default")
    assert (done.code, done.stdout) == (0, "nosuch\n") and "there is no model 'nosuch'" in done.stderr
    leap.variables["LEAP_MODEL"] = "builtin"
    assert leap("models", "default").stderr == ""


@pytest.fixture
def two(leap, tmp_path):
    """Two installed models that answer, and one that makes vectors."""
    for name, source in (("Mine-Q8_0", "model"), ("Other-Q8_0", "model"), ("Encoder-Q8_0", "builtin-embed")):
        (tmp_path / f"{name}.gguf").write_bytes(Path(model_path()).with_name(f"{source}.gguf").read_bytes())
        assert leap("models", "import", f"{name}.gguf").code == 0


@pytest.mark.slow
def test_the_only_installed_model_answers(leap, tmp_path):
    (tmp_path / "Mine-Q8_0.gguf").write_bytes(Path(model_path()).read_bytes())
    assert leap("models", "import", "Mine-Q8_0.gguf").code == 0
    leap.script("ok")
    assert leap("generate", "hi").stderr == "" and leap.loaded[-1][0] == "Mine-Q8_0"
    assert leap("models", "default").stdout == "Mine-Q8_0\n"


def test_the_default_answers_and_not_the_last_used_model(leap, two):
    for name, moment in (("Other-Q8_0", 2000), ("Mine-Q8_0", 1000), ("Encoder-Q8_0", 3000)):
        (lock,) = (leap.home / "models" / name).glob(f"*{USE_LOCK}")
        os.utime(lock, (moment, moment))
    runner = leap.script("ok")
    for command in (["generate", "hi"], ["batch", "-"], ["generate", "hi", "--background"]):
        done = leap(*command, stdin='{"prompt": "hi"}\n')
        assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1) and runner.requests == []
        assert "Other-Q8_0, Mine-Q8_0" in done.stderr and "leap models default NAME" in done.stderr
    assert leap("models", "default", "Mine-Q8_0").code == 0 and leap("models", "default").stdout == "Mine-Q8_0\n"
    assert leap("generate", "hi").stderr == "" and leap.loaded[-1][0] == "Mine-Q8_0"
    assert leap("models", "default", "nosuch").code == 2


@pytest.mark.parametrize(("typed", "name"), [("2", "Mine-Q8_0"), ("Mine-Q8_0", "Mine-Q8_0"), ("", None), ("7", None)])
def test_a_terminal_is_asked_to_choose_among_several_models(leap, two, typed, name):
    (lock,) = (leap.home / "models" / "Other-Q8_0").glob(f"*{USE_LOCK}")
    os.utime(lock, (5_000_000_000, 5_000_000_000))
    leap.script("ok")
    done = leap("generate", "hi", stdin=f"{typed}\n", terminal=True, stdin_terminal=True)
    assert done.code == (2 if name is None else 0) and [model for model, _ in leap.loaded] == ([name] if name else [])


def test_a_header_is_read_once_per_version_of_its_file(leap, two, monkeypatch):
    from leap_core.models import model_files

    read = []
    original = model_files.header_or_error
    monkeypatch.setattr(model_files, "header_or_error", lambda path: read.append(path.name) or original(path))
    for _ in range(3):
        leap("generate", "hi")
    assert len(read) == 3
    model = leap.home / "models" / "Mine-Q8_0" / "Mine-Q8_0.gguf"
    os.utime(model, (1, 1))
    leap("generate", "hi")
    assert read[3:] == ["Mine-Q8_0.gguf"]


@pytest.fixture
def base(leap, tmp_path):
    """An installed base model: it has no chat template."""
    file = tmp_path / "Base-F16.gguf"
    write_random_model(file, TINY_LLAMA)
    file.write_bytes(file.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.former_templ."))
    assert leap("models", "import", "Base-F16.gguf").code == 0


@pytest.mark.slow
def test_a_model_without_a_chat_template_cannot_become_the_default(leap, base, tmp_path):
    for line in (
        ["models", "default", "Base-F16"],
        ["setup", "-m", "Base-F16", "--completion", "none", "--keep-alive", "none"],
    ):
        done = leap(*line)
        assert done.code == 2 and "no chat template" in done.stderr and "--raw" in done.stderr
    (tmp_path / "Encoder-Q8_0.gguf").write_bytes(Path(model_path()).with_name("builtin-embed.gguf").read_bytes())
    leap("models", "import", "Encoder-Q8_0.gguf")
    done = leap("models", "default", "Encoder-Q8_0")
    assert done.code == 2 and "makes vectors" in done.stderr
    leap.script("ok")
    assert leap("generate", "hi").stderr.startswith(NOTE) and leap.loaded[-1][0] == "builtin"


def test_removing_the_default_model_is_reported(leap, two):
    assert leap("models", "alias", "fav", "Mine-Q8_0").code == 0 and leap("models", "default", "fav").code == 0
    done = leap("models", "alias", "fav", "--remove")
    assert "fav was the model that answers where none is named" in done.stderr and "models default NAME" in done.stderr
    assert leap("models", "default", "Mine-Q8_0").code == 0
    assert "was the model that answers" not in leap("models", "remove", "Other-Q8_0").stderr
    assert "Mine-Q8_0 was the model that answers where none is named" in leap("models", "remove", "Mine-Q8_0").stderr


def test_the_list_of_models_marks_aliases_and_the_default(leap, two):
    leap("models", "alias", "fav", "Mine-Q8_0")
    leap("models", "default", "fav")
    rows = json.loads(leap("models", "list", "--format", "json").stdout)
    assert {row["name"]: row["called"] for row in rows} == {
        "Mine-Q8_0": ["default", "fav"], "Other-Q8_0": None, "Encoder-Q8_0": None,
    }  # fmt: skip
    assert "default, fav" in leap("models", "list").stdout


def test_reassigning_an_alias_reports_its_former_model(leap, two):
    leap("models", "alias", "fav", "Mine-Q8_0")
    assert "no longer for Mine-Q8_0" in leap("models", "alias", "fav", "Other-Q8_0").stderr


@pytest.mark.slow
def test_an_imported_model_is_named_by_the_stem_of_its_file(leap, tmp_path):
    (tmp_path / "Smol-135M.Q8_0.gguf").write_bytes(Path(model_path()).read_bytes())
    name = Path(leap("models", "import", "Smol-135M.Q8_0.gguf").stdout.strip()).parent.name
    assert name == "Smol-135M-Q8_0"
    assert leap("models", "alias", "smol", "Smol-135M.Q8_0").code == 0
    assert leap("models", "path", "Smol-135M.Q8_0").stdout == leap("models", "path", "smol").stdout


@pytest.mark.parametrize("name", ["LEAP_DEFAULT_MODEL", "LEAP_MODLE"])
def test_a_misspelled_variable_is_reported(leap, name):
    leap.variables[name] = "x"
    leap.script("ok")
    assert f"${name} is no variable of leap; did you mean LEAP_MODEL?" in leap("generate", "hi").stderr
