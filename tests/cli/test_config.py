"""Settings: what goes before what, where values come from, and a file that keeps what its owner wrote in it."""

from __future__ import annotations

import json
import stat
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from leap_cli.command_table import COMMANDS
from leap_cli.config.settings import GENERAL, commands, option_settings, set_value
from leap_core.tools.policy import FunctionPolicy, ToolPolicy


@pytest.fixture
def file(leap_home):
    leap_home.mkdir()
    return leap_home / "config.toml"


def settings(done) -> dict[str, dict]:
    assert done.code == 0, done.stderr
    return {record["key"]: record for record in json.loads(done.stdout)}


def test_a_flag_overrides_a_variable_the_file_and_the_default(leap, file):
    def shown(*flags: str) -> str:
        return leap("models", "catalogue", *flags).stdout[:1]

    assert shown() == "N"  # of the table's heading NAME
    file.write_text('[options.models.catalogue]\nformat = "json"\n')
    assert shown() == "["
    leap.variables["LEAP_MODELS_CATALOGUE_FORMAT"] = "jsonl"
    assert shown() == "{"
    assert shown("--format", "quiet") == "L"
    leap.variables["LEAP_MODELS_CATALOGUE_FORMAT"] = ""  # as if it were not set
    assert shown() == "["


def test_options_of_generation_can_be_set(leap, file):
    runner = leap.script("hello")
    file.write_text('[options.generate]\ntemperature = 0\nstop = ["a b", "c"]\nstream = false\nmodel = "mine.gguf"\n')
    leap.variables |= {"LEAP_GENERATE_MAX_TOKENS": "7", "LEAP_GENERATE_THREADS": "3"}
    assert leap("generate", "hi").code == 0
    options = runner.requests[0].options
    assert (options.temperature, options.max_tokens, options.stop) == (0.0, 7, ("a b", "c"))
    assert leap.loaded[0][0] == "mine.gguf" and leap.loaded[0][1].cpu_threads == 3


def test_a_repeated_option_in_a_variable_is_split_as_by_a_shell(leap):
    runner = leap.script("hello")
    leap.variables["LEAP_GENERATE_STOP"] = "END 'two words'"
    assert leap("generate", "hi").code == 0
    assert runner.requests[0].options.stop == ("END", "two words")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[options.generate]\ntemperatur = 1\n", "options.generate.temperatur; did you mean temperature?"),
        ('[options.generate]\ntop_p = "much"\n', "options.generate.top_p: 'much' is not a valid float."),
        ("[options.generate]\ntop_k = true\n", "options.generate.top_k must not be true or false"),
        ("[options.generate]\nstream = 1\n", "options.generate.stream must be true or false"),
        ("[options.generate]\nseed = [1]\n", "options.generate.seed must be one value"),
        ("options = 1\n", "must be a table"),
        ("[options\n", "config.toml"),
    ],
)
def test_an_error_in_the_file_is_one_line(leap, file, text, says):
    leap.script("hello")
    file.write_text(text)
    done = leap("generate", "hi")
    assert (done.code, done.stdout) == (2, "")
    assert str(file) in done.stderr and says in done.stderr and done.stderr.count("\n") == 1
    assert leap("generate", "--help").code == 0


def test_an_error_in_a_variable_is_one_line(leap):
    leap.variables |= {"LEAP_GENERATE_TOP_P": "much", "LEAP_CHAT_STOP": "'open"}
    done = leap("generate", "hi")
    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert "LEAP_GENERATE_TOP_P: 'much' is not a valid float." in done.stderr
    assert "LEAP_CHAT_STOP: No closing quotation" in leap("chat").stderr
    assert leap("generate", "--help").code == 0


def test_list_shows_values_and_origins(leap, file):
    file.write_text('default_model = "mine.gguf"\n[tools.shell]\npolicy = "deny"\n')
    leap.variables["LEAP_GENERATE_TEMPERATURE"] = "0.5"
    listed = settings(leap("config", "list", "--format", "json"))
    assert (listed["default_model"]["value"], listed["default_model"]["origin"]) == ("mine.gguf", str(file))
    assert (listed["tools.shell.policy"]["value"], listed["tools.shell.policy"]["origin"]) == ("deny", str(file))
    temperature = listed["options.generate.temperature"]
    assert (temperature["value"], temperature["origin"]) == (0.5, "LEAP_GENERATE_TEMPERATURE")
    assert (listed["keep_alive"]["value"], listed["keep_alive"]["origin"]) == ("10m", "default")
    assert "options.chat.temperature" not in listed
    everything = settings(leap("config", "list", "--all", "--format", "json"))
    assert {setting.key for setting in option_settings()} <= set(everything)
    assert leap("config", "list", "--format", "quiet").stdout.splitlines() == list(listed)


def test_list_shows_no_secret(leap, file):
    file.write_text('[jobs]\nwebhook_secret = "whsec_c2VjcmV0"\n')
    listed = settings(leap("config", "list", "--format", "json"))
    assert listed["jobs.webhook_secret"]["value"] == "***"
    assert leap("config", "get", "jobs.webhook_secret").stdout == "whsec_c2VjcmV0\n"


def test_list_warns_about_unknown_keys(leap, file):
    file.write_text('defualt_model = "x"\nkeep_alive = "soon"\n[jobs]\nbatch = "2"\n')
    done = leap("config", "list")
    assert done.code == 0 and done.stderr.count("warning") == 3
    assert "did you mean default_model" in done.stderr
    assert "keep_alive: 'soon' is not a length of time" in done.stderr
    assert "jobs.batch must be a number, without quotes" in done.stderr


def test_another_programs_name_of_an_option_leads_to_leaps_name(leap, leap_home, file):
    file.write_text("[options.generate]\nnum_predict = 5\n")
    says = "there is no option options.generate.num_predict; did you mean max_tokens?"
    done = leap("generate", "Hi")
    assert done.code == 2 and says in done.stderr
    assert "did you mean options.generate.max_tokens?" in leap("config", "list").stderr
    assert leap("config", "unset", "options.generate.num_predict").code == 0
    (leap_home / "templates").mkdir()
    (leap_home / "templates" / "mine.toml").write_text('prompt = "Say {input}"\n[options]\nguided_json = "a int"\n')
    done = leap("generate", "-t", "mine", "Hi")
    assert done.code == 2 and "did you mean json_schema?" in done.stderr


def test_get_prints_a_value(leap, file):
    file.write_text('[options.generate]\nstop = ["a", "b c"]\nstream = false\n')
    assert leap("config", "get", "options.generate.stop").stdout == "a\nb c\n"
    assert leap("config", "get", "options.generate.stream").stdout == "false\n"
    assert leap("config", "get", "jobs.download").stdout == "2\n"
    assert leap("config", "get", "jobs_url").stdout == ""
    record = json.loads(leap("config", "get", "options.generate.stop", "--format", "json").stdout)
    assert (record["value"], record["variable"]) == (["a", "b c"], "LEAP_GENERATE_STOP")


def test_set_keeps_comments_order_and_rights(leap, file):
    file.write_text('# mine\nkeep_alive = "1m"  # short\n\n[tools.shell]  # careful\npolicy = "ask"\n')
    file.chmod(0o640)
    for key, value in [
        ("default_model", "builtin"),
        ("keep_alive", "1h30m"),
        ("jobs.download", "4"),
        ("tools.shell.timeout", "2.5"),
        ("options.generate.temperature", "0.2"),
        ("options.models.list.format", "json"),
        ("options.generate.stream", "no"),
        ("options.generate.max-tokens", "9"),
        ("options.generate.repeat_last_n", "-1"),
    ]:
        done = leap("config", "set", key, value)
        assert (done.code, done.stdout, done.stderr) == (0, "", ""), key
    assert leap("config", "set", "options.generate.stop", "END", "two words").code == 0
    text = file.read_text()
    assert "# mine\n" in text and "# short" in text and "# careful" in text
    assert text.index("default_model") < text.index("[")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    listed = settings(leap("config", "list", "--format", "json"))
    values = {key: record["value"] for key, record in listed.items() if record["origin"] == str(file)}
    assert values == {
        "keep_alive": "1h30m",
        "default_model": "builtin",
        "jobs.download": 4,
        "tools.shell.policy": "ask",
        "tools.shell.timeout": 2.5,
        "options.generate.temperature": 0.2,
        "options.generate.stream": False,
        "options.generate.max_tokens": 9,
        "options.generate.repeat_last_n": -1,
        "options.generate.stop": ["END", "two words"],
        "options.models.list.format": "json",
    }
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]


def test_a_new_file_is_private_and_a_link_stays_a_link(leap, leap_home, tmp_path):
    assert leap("config", "set", "jobs.batch", "2").code == 0
    file = leap_home / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.rename(tmp_path / "dotfiles.toml")
    file.symlink_to(kept)
    assert leap("config", "set", "jobs.batch", "3").code == 0
    assert file.is_symlink() and kept.read_text() == "[jobs]\nbatch = 3\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["defualt_model", "x"], "did you mean default_model"),
        (["generate.temperature", "1"], "did you mean options.generate.temperature?"),
        (["frobnicate", "1"], "leap config list --all shows the keys"),
        (["jobs.download", "many"], "jobs.download: 'many' is not a valid integer range."),
        (["jobs.download", "0"], "jobs.download: 0 is not in the range 1<=x<=64."),
        (["keep_alive", "soon"], "keep_alive: 'soon' is not a length of time"),
        (["default_model", ""], "default_model: must be a text, and not empty"),
        (["tools.shell.policy", "perhaps"], "'perhaps' is not one of 'allow', 'ask', 'decide', 'deny'"),
        (["options.generate.temperature", "-1"], "options.generate.temperature: "),
        (["options.generate.stream", "perhaps"], "options.generate.stream: "),
        (["options.generate.format", "xml"], "'xml' is not one of"),
        (["jobs.download", "1", "2"], "takes one value, and 2 were given"),
        (["jobs_url", "foo://"], "jobs_url: 'foo://' begins with none of postgresql://, postgres://"),
        (["options.generate.context_size", "1"], "options.generate.context_size: context_size: 1 must be 8 or more"),
        (["tools.timeout", "nan"], "tools.timeout: nan is not a number"),
        (["default_model", "\udcff"], "is not valid UTF-8"),
    ],
)
def test_set_refuses_invalid_values(leap, leap_home, arguments, says):
    done = leap("config", "set", *arguments)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert not (leap_home / "config.toml").exists()


def test_set_does_not_change_a_file_that_is_not_toml(leap, file):
    file.write_text("[broken\n")
    assert leap("config", "set", "jobs.batch", "2").code == 2
    assert file.read_text() == "[broken\n"


def test_set_warns_when_a_variable_overrides_the_value(leap):
    leap.variables["LEAP_MODEL"] = "other"
    done = leap("config", "set", "default_model", "mine")
    assert done.code == 0 and "$LEAP_MODEL is set, and overrides the file" in done.stderr
    assert leap("config", "get", "default_model").stdout == "other\n"


def test_unset_removes_a_value(leap, file):
    file.write_text("# mine\n[jobs]\nbatch = 2\n\n[unheard]\nof = 1\n")
    assert leap("config", "unset", "jobs.batch").code == 0
    assert leap("config", "unset", "unheard.of").code == 0
    assert file.read_text().strip() == "# mine"
    done = leap("config", "unset", "jobs.batch")
    assert done.code == 0 and "is not set" in done.stderr
    assert leap("config", "unset", "jobs.bach").code == 2


def test_path_prints_the_location_of_the_file(leap, leap_home):
    assert leap("config", "path").stdout == f"{leap_home / 'config.toml'}\n"
    assert not leap_home.exists()


def editor(tmp_path, *, writes: str = "", code: int = 0) -> str:
    script = tmp_path / "editor.py"
    script.write_text(f"import sys\nopen(sys.argv[1], 'a').write({writes!r})\nsys.exit({code})\n")
    return f"'{sys.executable}' '{script}'"


@pytest.mark.slow
def test_edit_opens_the_file_in_an_editor(leap, file, tmp_path):
    file.write_text("# mine\n")
    leap.variables["EDITOR"] = editor(tmp_path, writes="[jobs]\nbatch = 2\n")
    assert leap("config", "edit").code == 0
    assert file.read_text() == "# mine\n[jobs]\nbatch = 2\n"
    leap.variables["VISUAL"] = editor(tmp_path, writes="download = 'x'\n")
    done = leap("config", "edit")
    assert done.code == 2 and "jobs.download must be a number" in done.stderr and "kept there" in done.stderr
    assert file.read_text() == "# mine\n[jobs]\nbatch = 2\n"
    drafts = [path for path in file.parent.iterdir() if path != file]
    assert len(drafts) == 1 and drafts[0].read_text().endswith("download = 'x'\n") and str(drafts[0]) in done.stderr
    leap.variables["VISUAL"] = editor(tmp_path, writes="x", code=3)
    assert leap("config", "edit").code == 1
    leap.variables["VISUAL"] = str(tmp_path / "no-such-editor")
    done = leap("config", "edit")
    assert done.code == 1 and "cannot start the editor" in done.stderr


def test_each_option_has_one_key_and_one_variable():
    options = list(option_settings())
    assert len({setting.key for setting in options}) == len(options)
    variables = [setting.variable for setting in (*GENERAL, *options) if setting.variable]
    assert len(set(variables)) == len(variables)
    assert {path.partition(" ")[0] for path, _ in commands()} == set(COMMANDS)


def test_listed_defaults_equal_those_in_the_code():
    from leap_core.system.configuration import JobSettings

    default, jobs = {setting.key: setting.default for setting in GENERAL}, JobSettings()
    assert {f"jobs.{kind}": count for kind, count in jobs.concurrency.items()}.items() <= default.items()
    for name in ("lease_seconds", "fetch_models", "keep_output_days"):
        assert default[f"jobs.{name}"] == getattr(jobs, name)
    policy = ToolPolicy()
    assert default["tools.policy"] == policy.decision
    assert (default["tools.timeout"], default["tools.output_limit"]) == (policy.timeout, policy.output_limit)
    assert (default["tools.threshold"], default["tools.question"]) == (policy.threshold, policy.question)
    assert default["tools.rounds"] == FunctionPolicy().rounds


def test_concurrent_sets_are_all_kept(file):
    keys = [f"options.generate.k{n}" for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: set_value(file, key, 1), keys))
    assert all(f"k{n} = 1" in file.read_text() for n in range(24))
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]


BROKEN = '# mine\ndefault_model = "x\nkeep_alive = "5m"\n'


@pytest.fixture
def broken(leap):
    """A configuration file whose second line is no TOML."""
    leap.home.mkdir(exist_ok=True)
    file = leap.home / "config.toml"
    file.write_text(BROKEN)
    return file


@pytest.mark.parametrize("line", ["config path", "config list", "completion bash", "doctor --help"])
def test_commands_that_repair_a_broken_file_still_run(leap, broken, line):
    done = leap(*line.split())
    assert done.code == 0 and done.stdout
    assert line != "config list" or "config.toml: " in done.stderr and "line 2" in done.stderr


def test_setting_the_broken_key_repairs_the_file(leap, broken):
    assert leap("config", "set", "default_model", "y").code == 0
    mended = '# mine\n# default_model = "x  # could not be read\nkeep_alive = "5m"\ndefault_model = "y"\n'
    assert broken.read_text() == mended


def test_unsetting_the_broken_key_repairs_the_file(leap, broken):
    assert leap("config", "unset", "default_model").code == 0
    assert leap("config", "get", "keep_alive").stdout == "5m\n"


def test_setting_another_key_keeps_the_broken_line_and_reports_it(leap, broken):
    done = leap("config", "set", "default_index", "notes")
    assert done.code == 2 and "line 2" in done.stderr and "leap config edit" in done.stderr
    assert broken.read_text() == BROKEN


def test_other_commands_name_the_line_and_the_repair(leap, broken):
    done = leap("generate", "hi")
    assert done.code == 2 and "line 2" in done.stderr and "leap config edit" in done.stderr


def test_an_option_can_be_set_for_all_commands(leap):
    assert leap("config", "set", "options.temperature", "0.3").code == 0
    leap.script("a")
    leap("generate", "x")
    assert leap.runner.requests[0].options.temperature == 0.3
    leap("config", "set", "options.generate.temperature", "0.5")
    leap.script("a")
    leap("generate", "x")
    assert leap.runner.requests[0].options.temperature == 0.5
    leap.script("a")
    leap("chat", stdin="x\n")
    assert leap.runner.requests[0].options.temperature == 0.3
    assert leap("config", "get", "options.temperature").stdout == "0.3\n"
    assert leap("config", "set", "options.temprature", "0.3").code == 2


def test_a_variable_with_another_programs_name_of_an_option_is_reported(leap):
    leap.variables["LEAP_GENERATE_NUM_PREDICT"] = "5"
    leap.script("a")
    assert "did you mean LEAP_GENERATE_MAX_TOKENS?" in leap("generate", "-m", "builtin", "x").stderr


def test_misspelled_keys_and_variables_are_reported(leap):
    leap.home.mkdir(exist_ok=True)
    (leap.home / "config.toml").write_text('defualt_model = "x"\n')
    leap.variables["LEAP_GENERATE_TEMPRATURE"] = "1"
    leap.script("a")
    done = leap("generate", "-m", "builtin", "x")
    assert done.code == 0 and done.stderr.count("\n") == 2
    assert "there is no setting 'defualt_model'; did you mean default_model" in done.stderr
    assert "did you mean LEAP_GENERATE_TEMPERATURE?" in done.stderr


def test_misspelled_general_options_and_variables_are_reported(leap, file):
    file.write_text("[options]\ntemprature = 0.2\nlimit = 3\n")
    leap.variables |= {"LEAP_HOM": "x", "LEAP_OF_SOMEBODY_ELSE": "y"}
    leap.variables |= {"LEAP_BATCH_FORMAT": "plain", "LEAP_CHAT_MAX_TOKENS": "9"}  # of other commands
    leap.script("a")
    done = leap("generate", "-m", "some", "x")
    assert (done.code, done.stdout) == (0, "a\n")
    assert done.stderr.splitlines() == [
        "leap: warning: $LEAP_HOM is no variable of leap; did you mean LEAP_HOME?",
        f"leap: warning: {file}: there is no option options.temprature; did you mean temperature?",
    ]
    file.write_text("[options]\nfile = 'of generate'\n")
    (leap.home.parent / "a.txt").write_text("words")
    assert leap("index", "make", "notes", "a.txt", "--keywords-only").code == 0
    assert "options.file" not in leap("search", "notes", "words").stderr


def test_a_byte_order_mark_before_the_configuration_is_ignored(leap):
    leap.home.mkdir()
    (leap.home / "config.toml").write_bytes(b'\xef\xbb\xbfdefault_model = "some"\n')
    leap.script("ok")
    done = leap("generate", "hi")
    assert (done.code, done.stderr) == (0, "") and leap.loaded[0][0] == "some"
    assert leap("config", "set", "keep_alive", "5m").code == 0
    assert leap("config", "get", "default_model").stdout == "some\n"
