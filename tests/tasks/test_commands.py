"""The task commands, on scripted answers: what is printed, what fails, and with which exit code."""

from __future__ import annotations

import csv
import io
import json

import pytest

from leap_core.errors import LeapGenerationError, LeapUnsupportedMediaError
from leap_core.testing import ScriptedModelRunner

NAME = ("--json-schema", "name, age int")
BROKEN = [LeapGenerationError("broken")]
BLIND = [LeapUnsupportedMediaError("it reads text only")]


@pytest.fixture
def texts(tmp_path):
    for name, text in {"a.txt": "Ann, 3\n", "b.txt": "Bob, 4\n", "c.txt": "Cleo, 5\n"}.items():
        (tmp_path / name).write_text(text)
    return "a.txt", "b.txt", "c.txt"


def extracted(name: str, age: int) -> str:
    return json.dumps({"name": name, "age": age})


def test_documents_are_printed_in_the_order_of_the_texts(leap, texts):
    answers = [extracted("Ann", 3), '{"name": "Bob, \\"B\\""}', extracted("Cleo", 5)]
    leap.script(*answers)
    done = leap("extract", *NAME, *texts)
    assert (done.code, done.stdout) == (0, "\n".join(answers) + "\n")
    leap.script(*answers)
    rows = list(csv.reader(io.StringIO(leap("extract", *NAME, "--format", "csv", *texts).stdout)))
    assert rows == [["name", "age"], ["Ann", "3"], ['Bob, "B"', ""], ["Cleo", "5"]]
    leap.script(*answers)
    assert json.loads(leap("extract", *NAME, "--format", "json", *texts).stdout) == [json.loads(a) for a in answers]
    leap.script(answers[0])
    assert json.loads(leap("extract", *NAME, "--format", "json", "a.txt").stdout) == {"name": "Ann", "age": 3}


def test_a_text_that_fails_is_kept_apart_and_the_rest_is_done(leap, texts, tmp_path):
    leap.script(extracted("Ann", 3), BROKEN, extracted("Cleo", 5))
    done = leap("extract", *NAME, *texts, "--errors", "failed.jsonl", "-o", "out.jsonl", "-m", "builtin")
    assert (done.code, done.stdout) == (8, "")
    assert done.stderr == "leap: warning: b.txt: broken\nleap: 1 of 3 failed\n"
    assert (tmp_path / "out.jsonl").read_text() == f"{extracted('Ann', 3)}\n{extracted('Cleo', 5)}\n"
    (failure,) = map(json.loads, (tmp_path / "failed.jsonl").read_text().splitlines())
    assert failure == {"source": "b.txt", "error": "broken", "text": "Bob, 4"}


def test_a_text_without_anything_in_it_fails_by_name(leap, texts, tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    runner = leap.script(extracted("Ann", 3))
    done = leap("extract", *NAME, "a.txt", "empty.txt")
    assert done.code == 8 and "empty.txt: the text is empty" in done.stderr and len(runner.requests) == 1
    assert leap("extract", *NAME, "empty.txt").code == 2
    assert leap("extract", *NAME, stdin="\n").code == 2


def test_a_picture_is_a_document_of_its_own(leap, tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 30), "red").save(tmp_path / "p.jpg")
    runner = leap.script(extracted("Ann", 3))
    done = leap("extract", *NAME, "--image", "p.jpg")
    assert (done.code, json.loads(done.stdout)) == (0, {"name": "Ann", "age": 3})
    (request,) = runner.requests
    assert [part.to_json()["type"] for part in request.messages[-1].content] == ["image_url"]
    assert request.messages[0].text.startswith("Extract the following from the image:\n\nname: string\nage: integer\n")


@pytest.mark.parametrize("command", [("extract", *NAME), ("decide", "is it red?")])
def test_a_model_that_sees_nothing_is_refused_as_a_whole(leap, tmp_path, command):
    """Only where no input has a text: then nothing can be answered."""
    from PIL import Image

    images = ["--image", "p.jpg", "--image", "q.jpg"]
    for name in images[1::2]:
        Image.new("RGB", (40, 30), "red").save(tmp_path / name)
    runner = leap.script(BLIND, BLIND)
    done = leap(*command, *images)
    assert (done.code, done.stdout) == (3, "") and done.stderr.count("reads text only") == 1
    assert len(runner.requests) == 1


def test_texts_are_read_beside_pictures_that_the_model_cannot_see(leap, tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 30), "red").save(tmp_path / "p.jpg")
    (tmp_path / "a.txt").write_text("Ann is 3.")
    leap.script(BLIND, extracted("Ann", 3))
    done = leap("extract", *NAME, "--image", "p.jpg", "a.txt")
    assert done.code == 8 and "Ann" in done.stdout and "it reads text only" in done.stderr


def test_lines_are_named_by_their_numbers(leap):
    leap.script("Eins", BROKEN, "Drei")
    done = leap("translate", "--to", "de", "--lines", stdin="one\n\ntwo\nthree\n")
    assert (done.code, done.stdout) == (8, "Eins\nDrei\n") and "-:3: broken" in done.stderr


def test_only_ends_of_lines_part_lines(leap):
    leap.script("Eins", BROKEN)
    done = leap("translate", "--to", "de", "--lines", stdin="one\x0c\u2028two\r\nthree\n")
    assert (done.code, done.stdout) == (8, "Eins\n") and "-:2: broken" in done.stderr


def test_an_answer_is_printed_as_it_comes_without_space_around_it(leap):
    leap.script(["  Gu", "ten", " ", "Tag", "\n\n"])
    assert leap("translate", "--to", "German", "--from", "en", stdin="Good day").stdout == "Guten Tag\n"
    leap.script([" A", LeapGenerationError("broken")])
    done = leap("summarize", stdin="Good day")
    assert (done.code, done.stdout) == (8, "A\n")


def test_a_cut_answer_is_reported(leap):
    leap.script(["one", "two", "three"])
    done = leap("translate", "--to", "de", "--max-tokens", "2", stdin="x")
    assert done.code == 0 and "cut at --max-tokens" in done.stderr


def test_redaction_comes_back_byte_for_byte(leap, tmp_path):
    for text in ("Ann\r\nis Ann", "\n\nAnn ", "no one", "Ann\n"):
        leap.script('{"human_name": ["Ann"]}')
        masked = leap("redact", "--categories", "human_name", "--map", "map.json", stdin=text)
        assert masked.code == 0 and "Ann" not in masked.stdout
        assert leap("redact", "--restore", "map.json", stdin=masked.stdout).stdout == text
    (tmp_path / "map.json").write_text("[1]")
    assert leap("redact", "--restore", "map.json", stdin="x").code == 2


def test_what_expressions_find_is_masked_whatever_the_model_lists(leap):
    mail = "Write to ann@example.org or call +49 170 1234567. IBAN DE89370400440532013000, https://x.org/a"
    leap.script('{"human_name": ["Ann"]}')
    done = leap("redact", stdin=f"{mail} Ann")
    assert (done.code, done.stdout) == (
        0,
        "Write to [EMAIL_ADDRESS_1] or call [PHONE_NUMBER_1]. IBAN [IBAN_1], [URL_1] [HUMAN_NAME_1]",
    )
    assert "leap: masked 1 email_address, 1 human_name, 1 phone_number, 1 url, 1 iban\n" in done.stderr
    assert done.stderr.count("was not made to find personal data") == 1
    leap.script('{"human_name": []}')
    done = leap("redact", "--option", "patterns=false", stdin=mail)
    assert done.stdout == mail and "leap: warning: nothing was masked" in done.stderr
    leap.script('{"city": ["Rome"]}')
    assert leap("redact", "--categories", "city", stdin="Rome a@b.org Rome").stdout == "[CITY_1] a@b.org [CITY_1]"


@pytest.mark.parametrize("arguments", [("Good morning",), ("Good", "morning"), ("and/or what?",), ("hello",)])
def test_a_text_may_be_an_argument(leap, arguments: tuple[str, ...]):
    runner = leap.script("Guten Morgen")
    done = leap("translate", "--to", "de", *arguments)
    assert (done.code, done.stdout) == (0, "Guten Morgen\n")
    assert f"leap: took {' '.join(arguments)!r} as the text: there is no such file" in done.stderr
    assert runner.requests[0].messages[-1].text == " ".join(arguments)


@pytest.mark.parametrize("arguments", [("letter.txt",), ("texts/letter",), ("a.txt", "Good morning"), ("",)])
def test_a_missing_file_is_not_taken_for_text(leap, texts, arguments: tuple[str, ...]):
    leap.script("x")
    done = leap("translate", "--to", "de", *arguments)
    assert done.code == 2 and done.stdout == ""


def test_evidence_of_what_was_extracted(leap, tmp_path):
    (tmp_path / "a.txt").write_text("Dear\nAnn Lee, 31, of Rome")
    answer = json.dumps({"name": "Ann Lee", "age": 31, "city": "Lima"})
    schema = ("--json-schema", "name, age int, city")
    leap.script(answer)
    done = leap("extract", *schema, "--evidence", "--low-confidence", "doubts.jsonl", "a.txt")
    made = json.loads(done.stdout)
    assert done.code == 0 and made["document"] == json.loads(answer)
    assert [each["how"] for each in made["evidence"]] == ["exact", "exact", "not_in_text"]
    assert made["evidence"][0]["place"] == {"file": "a.txt", "line": 2, "start": 5, "end": 12, "text": "Ann Lee"}
    (doubt,) = map(json.loads, (tmp_path / "doubts.jsonl").read_text().splitlines())
    assert doubt["pointer"] == "/city"
    leap.script(answer)
    assert json.loads(leap("extract", *schema, "--strict-evidence", "absent", "a.txt").stdout).keys() == {"name", "age"}
    leap.script(answer)
    failed = leap("extract", *schema, "--strict-evidence", "fail", "a.txt")
    assert (failed.code, failed.stdout) == (8, "") and "not in the text: /city" in failed.stderr
    leap.script(answer)
    rows = list(csv.reader(io.StringIO(leap("extract", *schema, "--evidence", "--format", "csv", "a.txt").stdout)))
    assert rows[0] == ["name", "name.place", "name.confidence", "age", "age.place", "age.confidence",
                       "city", "city.place", "city.confidence"]  # fmt: skip
    assert rows[1][:2] == ["Ann Lee", "5-12"] and rows[1][7] == "not_in_text"


def test_values_of_a_picture_have_no_place(leap, tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 30), "red").save(tmp_path / "p.png")
    leap.script(extracted("Ann", 3))
    done = leap("extract", *NAME, "--image", "p.png", "--evidence", "--strict-evidence", "absent")
    made = json.loads(done.stdout)
    assert made["document"] == {"name": "Ann", "age": 3}
    assert {each["how"] for each in made["evidence"]} == {"no_place"}


def test_a_text_whose_personal_data_is_not_all_listed_is_printed_and_fails(leap, tmp_path):
    names = [f"Name{n}" for n in range(10, 31)]
    leap.script(json.dumps({"human_name": names[:20]}))
    (tmp_path / "mail.txt").write_text(" ".join(names))
    done = leap("redact", "--categories", "human_name", "mail.txt")
    assert done.code == 8 and done.stdout.endswith("[HUMAN_NAME_20] Name30")
    assert "mail.txt: personal data that only the model would find may be left" in done.stderr


def test_a_dry_run_shows_the_prompt_and_asks_nothing(leap, texts):
    for command in (
        ("extract", *NAME),
        ("translate", "--to", "ja"),
        ("summarize", "--kind", "topics"),
        ("redact",),
        ("classify", "--labels", "x,y"),
        ("decide", "Is it so?"),
    ):
        runner = leap.script()
        done = leap(*command, "--dry-run", "a.txt")
        assert (done.code, runner.requests) == (0, []) and "Ann, 3" in done.stdout
        runner = leap.script('{"address": []}')
        leap(*command, "a.txt")  # classify and decide fail here: this runner knows no probabilities
        assert ScriptedModelRunner().render(runner.requests[0].messages).text + "\n" == done.stdout
        assert f"recipe {command[0]} for" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("extract",), "--json-schema"),
        (("extract", "--json-schema", '{"type": "array"}'), "object"),
        (("extract", "--json-schema", '{"type": "object"}'), "properties"),
        (("extract", *NAME, "nosuch.txt"), "cannot read nosuch.txt"),
        (("extract", *NAME, "--image", "a.txt"), "a.txt"),
        (("extract", *NAME, "binary"), "binary"),
        (("classify", "--labels", "one"), "--labels: give two or more"),
        (("classify", "--labels", "one,one"), "--labels: give two or more"),
        (("classify", "--labels", "a,,b"), "--labels has an empty choice"),
        (("classify", "--labels", '["a", 5]'), "--labels takes a list of strings"),
        (("decide", " "), "question is empty"),
        (("decide", "q", "--score", "9..1"), "--score: '9..1' is no range"),
        (("decide", "q", "--score", "1..5", "--choices", "a,b"), "cannot be combined"),
        (("translate", "--to", "xx"), "--to: 'xx' is no language"),
        (("translate", "--to", "de", "--from", "de"), "--from: German is"),
        (("summarize", "--kind", "poem"), "poem"),
        (("redact", "--categories", "a<b"), "--categories: 'a<b'"),
        (("translate", "--to", "de", "--errors", "no/such"), "--errors no/such"),
        (("translate", "--to", "de", "-o", "no/such"), "no/such"),
        (("redact", "--map", "m", "--background", "a.txt"), "--map cannot be combined"),
        (("extract", *NAME, "--format", "json", "--background", "a.txt"), "--format json cannot be combined"),
        (("translate", "--to", "de", "--temperature", "-1"), "temperature"),
    ],
)
def test_wrong_input_is_refused_before_a_model_is_asked(leap, texts, tmp_path, args, message):
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    runner = leap.script()
    done = leap(*args, stdin="text")
    assert (done.code, done.stdout, runner.requests) == (2, "", [])
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_the_users_recipe_is_asked_and_shown(leap, leap_home):
    own = leap_home / "recipes" / "translate.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[[wording]]\nmodels = ["*"]\nsystem = "In {language}, please"\noptions = {top_k = 3}\n')
    runner = leap.script("Ja")
    assert leap("translate", "--to", "de", stdin="Yes\n").stdout == "Ja\n"
    assert [m.text for m in runner.requests[0].messages] == ["In German, please", "Yes"]
    assert runner.requests[0].options.top_k == 3


def test_a_temperature_for_all_commands_leaves_the_recipes_alone(leap, leap_home):
    leap_home.mkdir(parents=True)
    config = leap_home / "config.toml"

    def temperature(*args: str) -> float | None:
        runner = leap.script("Ja")
        assert leap("translate", "--to", "de", *args, stdin="Yes").code == 0
        return runner.requests[0].options.temperature

    config.write_text("[options]\ntemperature = 0.9\nmax_tokens = 7\n")
    assert temperature() == 0.0 and temperature("--temperature", "0.5") == 0.5
    config.write_text("[options.translate]\ntemperature = 0.8\n")
    assert temperature() == 0.8


def test_recipes_are_added_edited_and_removed(leap, leap_home, tmp_path):
    own = leap_home / "recipes" / "translate.toml"
    shipped = leap("saved", "recipes", "show", "translate").stdout
    assert 'models = ["*ENJP-MT*"]' in shipped
    (tmp_path / "translate.toml").write_text(shipped.replace("Translate the text", "Put the text"))
    assert leap("saved", "recipes", "add", "translate.toml").code == 0 and "Put the text" in own.read_text()
    assert leap("saved", "recipes", "add", "translate.toml").code == 2
    assert leap("saved", "recipes", "add", "translate.toml", "--replace").code == 0
    leap.variables |= {"EDITOR": "sed -i s/Put/Bring/"}
    assert leap("saved", "recipes", "edit", "translate").code == 0 and "Bring the text" in own.read_text()
    rows = json.loads(leap("saved", "recipes", "list", "--format", "json").stdout)
    assert {row["name"]: row["own"] for row in rows} == {
        **dict.fromkeys(["classify", "decide", "extract", "redact", "summarize"], False),
        "translate": True,
    }
    leap.variables |= {"EDITOR": "sed -i s/language/tongue/"}
    done = leap("saved", "recipes", "edit", "translate")
    assert done.code == 2 and "{tongue} is not one of {from}, {language}, {text}" in done.stderr
    assert "what you wrote is kept there" in done.stderr and "tongue" not in own.read_text()
    assert leap("saved", "recipes", "list").code == 0, "a draft that was kept is no recipe"
    assert leap("saved", "recipes", "remove", "translate").code == 0 and not own.exists()
    assert leap("saved", "recipes", "remove", "translate").code == 2
    leap.variables |= {"VISUAL": "true"}
    assert leap("saved", "recipes", "edit", "decide").code == 0 and not (own.parent / "decide.toml").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("poem", '[[wording]]\nmodels = ["*"]\n', "there is no task poem"),
        ("translate", "", "there is no [[wording]]"),
        ("translate", "[[wording]]\nmodels = 5\n", "models is a list of texts"),
        ("translate", '[[wording]]\nmodels = ["*"]\nuser = "no place"\n', "has no {text}"),
        ("translate", '[[wording]]\nmodels = ["*"]\nsistem = "x"\n', "there is no sistem"),
        ("translate", '[[wording]]\nmodels = ["*"]\noptions = {temprature = 1}\n', "temprature"),
        ("translate", '[[wording]]\nmodels = ["*"]\ninput = "smell"\n', "input is one of"),
        ("translate", "[[wording]\n", "is no recipe"),
        ("translate", b"\xff", "cannot read"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_refused(leap, leap_home, tmp_path, name, text, message):
    (tmp_path / f"{name}.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = leap("saved", "recipes", "add", f"{name}.toml")
    assert done.code == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (leap_home / "recipes").exists()
    for command in (("show",), ("edit",), ("remove",)):
        assert leap("saved", "recipes", *command, "nosuch").code == 2


def test_a_broken_recipe_affects_only_its_task(leap, leap_home):
    own = leap_home / "recipes" / "translate.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[[wording]]\nmodels = 5\n")
    done = leap("translate", "--to", "de", stdin="x")
    assert done.code == 2 and "is no recipe" in done.stderr
    leap.script("Ja")
    assert leap("summarize", stdin="x").stdout == "Ja\n"
    done = leap("saved", "recipes", "list", "--format", "quiet")
    assert done.code == 0 and "translate" not in done.stdout.split() and "is no recipe" in done.stderr
    assert leap("saved", "recipes", "show", "translate").stdout == own.read_text()
