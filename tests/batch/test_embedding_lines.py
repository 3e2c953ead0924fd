"""Lines that ask for vectors: answered, journalled and resumed like those that ask for text."""

from __future__ import annotations

import base64
import csv
import json

import numpy as np
import pytest

from leap_core.batch.input.lines import RequestReader, key_of
from leap_core.batch.output.file_formats import VectorFile
from leap_core.errors import LeapUnavailableError
from leap_core.protocols.openai.embeddings import encoded
from tests.support.hashed_words import HashedWordsRunner

MODEL = ("-m", "some-model.gguf")
WORDS = HashedWordsRunner(name="some-model.gguf")


@pytest.fixture
def embed(leap, tmp_path, monkeypatch):
    """Write lines to a file and run ``leap batch`` on it."""
    monkeypatch.setattr("leap_core.batch.checking.fingerprint_of", lambda *_args, **_more: "one model")

    def run(lines, *args, output="out.jsonl"):
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return leap("batch", "in.jsonl", "-o", output, *MODEL, *args)

    return run


def openai_line(n: int, text: object, **body: object) -> dict:
    body = {"model": "m", "input": text, **body}
    return {"custom_id": f"id-{n}", "method": "POST", "url": "/v1/embeddings", "body": body}


def test_openai_lines_get_openai_results(embed, results):
    lines = [openai_line(1, "one two"), openai_line(2, ["three", "four"], encoding_format="base64", dimensions=8)]
    assert embed(lines).code == 0
    first, second = (line["response"]["body"] for line in results())
    assert first["object"] == "list" and first["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    np.testing.assert_array_equal(np.array(first["data"][0]["embedding"], np.float32), WORDS.embed(["one two"])[0])
    rows = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in second["data"]]
    np.testing.assert_array_equal(rows, WORDS.embed(["three", "four"], dimensions=8))
    assert [each["index"] for each in second["data"]] == [0, 1]


def test_short_lines_keep_their_fields_and_fit_into_tables(embed, results, tmp_path):
    lines = [{"id": "a", "input": "one", "topic": "x"}, {"input": ["two", "three"], "topic": "y"}]
    assert embed(lines, "--format", "plain", "--keep-fields").code == 0
    first, second = results()
    assert (first["custom_id"], first["topic"], first["prompt_tokens"]) == ("a", "x", 3)
    np.testing.assert_array_equal(np.array(second["embeddings"], np.float32), WORDS.embed(["two", "three"]))
    assert embed(lines, "--keep-fields", output="out.csv").code == 0
    table = (tmp_path / "out.csv").read_text().splitlines()
    assert table[0] == "custom_id,topic,answer,error"
    custom_id, topic, answer, error = next(csv.reader(table[1:]))
    assert (custom_id, topic, error) == ("a", "x", "") and json.loads(answer)


def test_an_array_has_a_row_of_nan_for_a_line_that_failed(embed, tmp_path, results):
    lines = [{"input": "word " * 600}, {"input": "one"}, {"input": ["two", "three"]}]
    assert embed(lines, "--errors", "bad.jsonl", output="out.npy").code == 8
    (bad,) = results("bad.jsonl")
    assert bad["error"]["code"] == "invalid_value" and bad["line"] == 1
    array = np.load(tmp_path / "out.npy")
    assert array.dtype == np.float32 and np.isnan(array[0]).all()
    np.testing.assert_array_equal(array[1:], WORDS.embed(["one", "two", "three"]))
    lines[0] = {"input": "short"}
    again = embed(lines, output="out.npy")
    assert again.code == 0 and "2 of them before" in again.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[0], WORDS.embed(["short"])[0])
    assert embed(lines, "--unordered", "--replace", output="x.npy").code == 2
    assert not [path.name for path in tmp_path.glob(".*")]


def test_a_text_that_is_too_long_fails_alone_or_is_cut(embed, results):
    lines = [{"input": "one"}, {"input": "word " * 600}, {"input": "word " * 600, "too_long": "cut"}]
    assert embed(lines, "--format", "plain").code == 8
    assert ["error" in line for line in results()] == [False, True, False]
    assert results()[2]["prompt_tokens"] == 512


def test_the_same_command_resumes_where_it_ended(embed, results, tmp_path):
    lines = [{"input": f"text {n}"} for n in range(100)]
    assert embed(lines, "--format", "plain").code == 0
    whole, journal = results(), tmp_path / "out.jsonl.journal"
    journal.write_bytes(journal.read_bytes()[:-5000])
    done = embed(lines, "--format", "plain")
    assert done.code == 0 and results() == whole
    before = int(done.stderr.split(" of them before")[0].rpartition("(")[2])
    assert 50 < before < 100
    assert "1 answered" in embed([{"input": "text 0", "dimensions": 3}], "--format", "plain").stderr


def test_lines_and_outputs_that_exclude_each_other_are_refused(embed, leap, tmp_path):
    done = embed([{"input": "a"}, {"prompt": "b"}])
    assert done.code == 2 and "some lines ask for vectors and some for answers" in done.stderr
    done = embed([{"prompt": "b"}], output="x.npy")
    assert done.code == 2 and "only vectors go into an array" in done.stderr
    assert embed([{"input": "b"}], "--speak", "sounds").code == 2
    assert embed([{"input": "b"}], "--format", "text", "--replace").code == 2


def test_keys_of_journals_do_not_change():
    line = RequestReader().read(json.dumps(openai_line(1, "Grüß Gott", dimensions=4)).encode())
    digest = line.digest("id-1")
    assert (digest, key_of(digest, "{}")) == GOLDEN
    short = RequestReader().read('{"input": "Grüß Gott", "dimensions": 4}'.encode())
    assert short.digest("id-1") == digest, "the form of a line does not matter"


GOLDEN = ("cce2d47019abd0639b11d800d1aa427f", "d0347cbd0df8cd3f349630530dd88709")


def test_a_second_writer_of_one_array_is_refused(tmp_path):
    one, two = VectorFile(tmp_path / "v.npy", 1), VectorFile(tmp_path / "v.npy", 1)
    one.open(lambda: iter(()))
    with pytest.raises(LeapUnavailableError, match="another batch"):
        two.open(lambda: iter(()))
    one.close()
    assert list(tmp_path.iterdir()) == [], "what is not whole is not there"
    two.open(lambda: iter([encoded(np.ones(3, np.float32))]))
    two.close()
    assert np.load(tmp_path / "v.npy").tolist() == [[1, 1, 1]]
