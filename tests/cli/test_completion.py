"""What the shell is told when TAB is pressed, and what is not imported to tell it."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leap_cli.command_table import COMMANDS, command_line
from leap_cli.completion.candidates import OWN_TOOLS
from leap_cli.completion.scripts import FILE_NAMES, place_of, script_of
from leap_cli.completion.shell import Proposal, Typed, answer, for_readline, split
from leap_cli.framework.environment import Environment
from leap_cli.options.tools import known_tools
from leap_core.conversation.messages import ChatMessage

from .test_startup import HEAVY, imported

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def complete(leap, leap_home):
    """The candidates for a line, as the shell receives them."""

    def ask(line: str, shell: str = "zsh", breaks: str = "") -> list[Proposal]:
        env = leap.environment(b"", terminal=False, stdin_terminal=False)
        env.variables = {**env.variables, "_LEAP_COMPLETE": shell, "_LEAP_LINE": line, "_LEAP_BREAKS": breaks}
        assert answer(command_line, env) == 0
        return [Proposal(*row.split("\t")) for row in env.stdout.getvalue().splitlines()]

    return ask


@pytest.fixture
def words(complete):
    return lambda line, **how: [candidate.value for candidate in complete(line, **how)]


def install(home: Path, *names: str) -> None:
    for name in names:
        directory = home / "models" / name
        directory.mkdir(parents=True)
        (directory / f"{name}.gguf").write_bytes(b"")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("leap ", Typed([], "", "")),
        ("leap gen", Typed([], "gen", "")),
        ("leap generate 'two words' x", Typed(["generate", "two words"], "x", "")),
        ("leap -m 'a b", Typed(["-m"], "a b", "'")),
        ('leap -m "a \\" b', Typed(["-m"], 'a " b', '"')),
        ("leap a\\ b ", Typed(["a b"], "", "")),
        ("leap ''", Typed([], "", "")),
        ("leap a '' ", Typed(["a", ""], "", "")),
        ("A=1 B=2 leap x=1 y", Typed(["x=1"], "y", "")),
        ("leap ende\\", Typed([], "ende", "")),
        ("", Typed([], "", "")),
    ],
)
def test_lines_are_split_as_shells_split_them(line, expected):
    assert split(line) == expected


@pytest.mark.parametrize(
    ("value", "line", "breaks", "inserted"),
    [
        ("a:b", "leap a:", ":=", "b"),
        ("a:b", "leap a", ":=", "a:b"),
        ("a:b", "leap a:", "", "a:b"),
        ("--m=a:b", "leap --m=a", ":=", "a:b"),
        ("--m=a:b", "leap --m=a:", ":=", "b"),
        ("a:b", "leap 'a:", ":=", "a:b"),
        ("it's $(rm x)", "leap i", ":=", "it\\'s\\ \\$\\(rm\\ x\\)"),
        ("it's $(rm x)", 'leap "i', ":=", "it's \\$(rm x)"),
        ("it's", "leap 'i", ":=", "it'\\''s"),
    ],
)
def test_bash_gets_the_part_that_it_replaces_quoted(value, line, breaks, inserted):
    assert for_readline(value, split(line), breaks) == inserted


def test_commands_come_with_their_summaries(complete):
    assert complete("leap ") == [Proposal("plain", name, entry.summary) for name, entry in COMMANDS.items()]
    assert complete("leap CHA") == [Proposal("plain", "chat", COMMANDS["chat"].summary)]


def test_options_come_with_their_help(complete):
    assert complete("leap generate --temper")[0].help.startswith("Randomness")
    assert [each.value for each in complete("leap generate --help")] == ["--help", "--help-all"]
    assert [each.value for each in complete("leap jobs wait --help")] == ["--help"]
    for begun in ("generate --lora ", "chat --chat-template ", "batch in.jsonl --speak ", "index make docs "):
        assert [each.kind for each in complete(f"leap {begun}")] == ["file"], begun
    assert "--version" in [candidate.value for candidate in complete("leap --")]


def test_arguments_of_setup_man_and_help_are_completed(words):
    assert words("leap setup --completion ") == ["bash", "zsh", "fish", "powershell", "none"]
    assert words("leap setup --keep-alive ")[0] == "none" and "LFM2.5-350M" in words("leap setup --model LFM2.5")
    assert words("leap help --man ge") == ["generate"] and words("leap help stru") == ["structured-outputs"]


@pytest.mark.parametrize("begin", ["leap 'What is it?' ", "leap -m some ", "leap -m some 'What is it?' ", "leap - "])
def test_a_prompt_alone_is_completed_as_generate(complete, words, leap_home, begin):
    assert complete(f"{begin}--temper")[0].help.startswith("Randomness")
    install(leap_home, "Mine-Q4_0")
    assert words(f"{begin}-m ")[0] == "Mine-Q4_0"


def test_installed_models_come_first(words, leap_home):
    install(leap_home, "Zeta-Q4_0", "alpha-Q8_0")
    (leap_home / "models" / "nothing").mkdir()
    found = words("leap generate -m ")
    assert found[:3] == ["alpha-Q8_0", "Zeta-Q4_0", "builtin"]
    assert "LFM2.5-350M" in found and "nothing" not in found
    for line in ("leap chat --model ", "leap batch -m ", "leap download ", "leap load ", "leap models info "):
        assert words(line) == found, line
    assert words("leap models remove ") == words("leap models verify ") == ["alpha-Q8_0", "Zeta-Q4_0"]


def test_endpoints_are_completed_as_models(words, leap, leap_home):
    leap("models", "add-endpoint", "faraway", "http://127.0.0.1:9/v1")
    assert "faraway" in words("leap generate -m far") and "faraway" in words("leap models endpoints far")
    (leap_home / "config.toml").write_text("[endpoints.faraway]\nurl = 1\n")
    assert "faraway" not in words("leap generate -m far")


def test_aliases_are_completed(words, leap):
    leap("models", "alias", "mine", "builtin")
    assert words("leap models alias m") == ["mine"] and "mine" in words("leap generate -m mi")
    assert words("leap models list --sort ") == ["name", "size", "used"]
    assert words("leap download builtin LFM2.5-350M ")[:1] == ["mine"]


def test_models_of_the_users_catalogue_are_completed(words, leap_home):
    leap_home.mkdir(exist_ok=True)
    (leap_home / "catalogue.json").write_text(
        json.dumps({"models": [{"name": "Mine", "repo": "me/Mine", "quantizations": ["Q2_K"]}]})
    )
    assert words("leap generate -m mi") == ["Mine"]
    assert words("leap generate -m Mine:") == ["Mine:Q2_K"]
    (leap_home / "catalogue.json").write_text("{damaged")
    assert words("leap generate -m LFM2.5-35") == ["LFM2.5-350M"]


def test_installed_quantizations_come_first(words, leap_home):
    install(leap_home, "LFM2.5-350M-Q8_0")
    assert words("leap generate -m LFM2.5-350M:")[:2] == ["LFM2.5-350M:Q8_0", "LFM2.5-350M:Q4_0"]
    assert words("leap download lfm2.5-350m --quant ")[:2] == ["Q8_0", "Q4_0"]
    assert "Q4_K_M" in words("leap download --quant ")
    assert words("leap generate --model=LFM2.5-350M:Q8") == ["--model=LFM2.5-350M:Q8_0"]


@pytest.mark.parametrize(
    ("line", "kind", "before"),
    [
        ("leap generate -m ./x", "file", ""),
        ("leap generate -m unheard-of", "file", ""),
        ("leap batch ", "file", ""),
        ("leap batch x --output=", "file", "--output="),
        ("leap saved schemas show ", "file", ""),
        ("leap tools list --tools-file ", "file", ""),
    ],
)
def test_paths_are_left_to_the_shell(complete, line, kind, before):
    assert complete(line) == [Proposal(kind, before, "")]


def test_tools_are_completed(words, leap, leap_home, tmp_path):
    assert leap("tools", "add", "greet", "--command", "echo").code == 0
    (tmp_path / "own.py").write_text("raise SystemExit\ndef shout(text: str): ...\ndef _hidden(): ...\n")
    (tmp_path / "own.json").write_text('[{"type": "function", "function": {"name": "declared"}}]')
    assert words("leap generate --tool ") == ["greet", *OWN_TOOLS]
    line = "leap chat --tools-file own.py --tools-file own.json "
    assert words(f"{line} --allow-tool ") == ["shout", "declared", "greet", *OWN_TOOLS]
    assert words(f"{line} --tool-choice ")[:4] == ["auto", "required", "none", "shout"]
    assert words("leap tools remove ") == ["greet"]
    assert words("leap tools call c") == ["current_time", "calculate"]


def test_templates_are_completed(words, leap):
    assert words("leap generate --template ") == []
    for name in ("french", "order"):
        assert leap("saved", "templates", "add", name, "--seed", "1").code == 0
    assert words("leap generate --template ") == words("leap --template ") == ["french", "order"]
    assert words("leap saved templates show f") == words("leap saved templates remove f") == ["french"]
    leap("saved", "templates", "add", "tr", "To {language}, {tone}: {input}", "-p", "tone=kind")
    assert words("leap generate -t tr -p ") == words("leap batch -t tr --param ") == ["language=", "tone="]
    assert words("leap saved templates edit t") == ["tr"] and words("leap generate -p ") == []
    leap("saved", "schemas", "add", "person", "name")
    assert words("leap generate --json-schema p") == words("leap saved schemas show ") == ["person", ""]
    assert words("leap saved schemas edit ") == words("leap saved schemas remove ") == ["person"]
    assert words("leap generate --think ") == ["show", "hide", "only"]


def test_completion_knows_all_builtin_tools(leap):
    env = leap.environment(b"", terminal=False, stdin_terminal=False)
    assert {tool.name for tool in known_tools(env)} == set(OWN_TOOLS)


def test_unreadable_files_complete_to_nothing(words, leap_home):
    leap_home.mkdir(exist_ok=True)
    for name in ("tools.json", "jobs.db", "leap.db", "config.toml", "catalogue.json"):
        (leap_home / name).write_bytes(b"\xff\x00 damaged")
    (leap_home / "models").write_bytes(b"no directory")
    assert words("leap tools remove ") == []
    assert words("leap jobs cancel ") == []
    assert words("leap models remove ") == []
    assert words("leap sessions remove ") == []


def test_sessions_are_completed_by_name_and_id(words, complete, leap_home):
    lines = ["leap sessions show ", "leap sessions remove x ", "leap chat --session ", "leap generate --session "]
    lines.append("leap export ")
    assert [words(line) for line in lines] == [[]] * 5 and not leap_home.exists()
    from leap_core.conversation.sessions import SessionStore

    with SessionStore(leap_home / "leap.db") as store:
        old, named = store.create().id, store.create(name="my work").id
        store.append(old, ChatMessage("user", "What is the capital of France?"))
    assert [words(line) for line in lines] == [["my work", old, named]] * 5
    assert complete("leap sessions show ")[1].help == "What is the capital of France?"
    begun = [word for word in words("leap sessions rename my") if word not in (old, named)]  # an id may begin so too
    assert begun == ["my work"] and words("leap sessions rename my ") == []
    with closing(sqlite3.connect(leap_home / "leap.db")) as store:
        store.execute("DROP TABLE sessions")
    assert words("leap sessions show ") == []


def test_only_jobs_with_an_answer_are_completed_for_export(words, leap_home):
    from jobs.table.database import SqliteDatabase

    leap_home.mkdir()
    with closing(SqliteDatabase(leap_home / "jobs.db").connection) as table:
        for kind, state in (("batch", "succeeded"), ("generate", "succeeded"), ("generate", "queued")):
            table.execute(
                "INSERT INTO jobs (id, kind, state, parameters, created) VALUES (?, ?, ?, '{}', 0)",
                (f"{kind[:2]}{state[:2]}2345", kind, state),
            )
    assert words("leap export ") == ["gesu2345"]


def test_jobs_are_completed_by_state(words, complete, leap_home):
    assert words("leap jobs cancel ") == []
    assert not leap_home.exists(), "asking has made something"
    from jobs.table.database import SqliteDatabase

    with closing(SqliteDatabase(leap_home / "jobs.db").connection) as table:
        for number, state in enumerate(("queued", "running", "succeeded", "failed", "cancelled")):
            table.execute(
                "INSERT INTO jobs (id, kind, state, parameters, created) VALUES (?, 'batch', ?, ?, ?)",
                (f"{state[:2]}345678", state, '{"label": "prompts.jsonl"}', number),
            )
    assert words("leap jobs cancel ") == ["ru345678", "qu345678"]
    assert words("leap jobs status ")[0] == "ca345678" and len(words("leap jobs status ")) == 5
    assert words("leap jobs status s") == ["su345678"]
    assert "batch prompts.jsonl" in complete("leap jobs status s")[0].help
    with closing(sqlite3.connect(leap_home / "jobs.db")) as table:
        table.execute("DROP TABLE jobs")
    assert words("leap jobs cancel ") == []


def test_settings_are_completed(words):
    assert words("leap config get de") == ["default_model", "default_index"]
    assert words("leap config set options.generate.temper") == ["options.generate.temperature"]
    assert words("leap config set tools.policy ") == ["allow", "ask", "decide", "deny"]
    assert words("leap config set options.generate.stream ") == ["true", "false"]
    assert words("leap config set default_model LFM2.5-35") == ["LFM2.5-350M"]
    assert words("leap config set frobnicate ") == []


def test_values_that_no_shell_accepts_are_left_out(words, leap_home):
    install(leap_home, "new\nline", "tab\there", "x; rm -rf ~")
    assert words("leap models remove ") == ["x; rm -rf ~"]
    assert words("leap models remove ", shell="bash") == ["x\\;\\ rm\\ -rf\\ \\~"]


@pytest.mark.parametrize("line", ["leap nonsense ", "leap models nonsense x"])
def test_nothing_is_completed_after_a_wrong_command(words, line):
    assert words(line) == []


def test_an_unknown_shell_gets_nothing():
    env = Environment(variables={"_LEAP_COMPLETE": "bash_source", "_LEAP_LINE": "leap "})
    assert answer(command_line, env) == 2
    assert isinstance(env.stdout, io.StringIO) and env.stdout.getvalue() == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "leap ",
        "leap generate --",
        "leap -m x --",
        "leap generate --template ",
        "leap generate -m LFM",
        "leap models ",
        "leap sessions ",
        "leap batch ",
    ],
)
def test_completion_imports_nothing_heavy(line, monkeypatch, leap_home):
    monkeypatch.setenv("_LEAP_COMPLETE", "bash")
    monkeypatch.setenv("_LEAP_LINE", line)
    imported("-m", "leap_cli")  # which looks for plugins, once
    names = imported("-m", "leap_cli")
    assert "leap_cli.completion.shell" in names
    assert not names & (HEAVY | {"leap_core.conversation.messages", "leap_core.server", "socket", "ssl"})


@pytest.mark.slow
def test_completion_uses_no_network(monkeypatch, leap_home):
    """An audit hook refuses sockets and models in the process that answers."""
    install(leap_home, "Mine-Q4_0")
    refuse = (
        "import sys; sys.addaudithook(lambda event, args: (_ for _ in ()).throw(SystemExit(99))"
        " if event.startswith('socket.') or event == 'open' and str(args[0]).endswith('.gguf') else None);"
        "from leap_cli.main import run; run()"
    )
    for line in ("leap generate -m ", "leap download LFM2.5-350M:", "leap jobs status ", "leap generate --tool "):
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "_LEAP_COMPLETE": "fish", "_LEAP_LINE": line}
        done = subprocess.run([sys.executable, "-c", refuse], capture_output=True, env=variables, check=False)
        assert (done.returncode, done.stderr) == (0, b""), line


@pytest.mark.parametrize("shell", FILE_NAMES)
def test_leap_completion_prints_the_script(leap, shell):
    done = leap("completion", shell)
    assert (done.code, done.stdout, done.stderr) == (0, script_of(shell), "")


@pytest.mark.parametrize("shell", FILE_NAMES)
def test_installing_twice_changes_the_start_file_once(leap, shell, tmp_path):
    leap.variables |= {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    place = place_of(shell, leap.environment(b"", terminal=False, stdin_terminal=False))
    if place.start_file is not None:
        place.start_file.parent.mkdir(parents=True, exist_ok=True)
        kept = tmp_path / "kept elsewhere"
        kept.write_text("alias x=y")
        place.start_file.symlink_to(kept)
    for _ in range(2):
        done = leap("completion", shell, "--install")
        assert (done.code, done.stdout) == (0, f"{place.script}\n")
    assert place.script.read_text("utf-8") == script_of(shell)
    if place.start_file is not None:
        assert place.start_file.is_symlink()
        assert kept.read_text() == f"alias x=y\n{place.line}\n"


def test_an_unwritable_location_is_named(leap, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    leap.variables["HOME"] = str(tmp_path / "file")
    done = leap("completion", "fish", "--install")
    assert done.code == 1 and "cannot write" in done.stderr and done.stderr.count("\n") == 1
