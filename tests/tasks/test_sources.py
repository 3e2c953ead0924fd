"""PDF and HTML as texts of tasks: what is read, where values stand in it, and what cannot be read."""

from __future__ import annotations

import io
import json

import pytest

from tests.pdf_bytes import pdf_bytes

PAGES = [[f"Page {n} of the file"] for n in range(1, 7)] + [["The client is Tim (the tall).", "He is 19 years old."]]
NAME = ("--json-schema", "name, age int")
ANSWER = json.dumps({"name": "Tim", "age": 19})


@pytest.fixture
def pypdf():
    return pytest.importorskip("pypdf")


def test_a_value_on_a_page_has_its_number_and_its_offsets_in_the_kept_text(leap, tmp_path, pypdf):
    (tmp_path / "a.pdf").write_bytes(pdf_bytes(*PAGES))
    (tmp_path / "one.pdf").write_bytes(pdf_bytes(["Ann, 31"]))
    runner = leap.script(ANSWER, json.dumps({"name": "Ann"}))
    done = leap("extract", *NAME, "--evidence", "a.pdf", "one.pdf")
    assert done.code == 0, done
    made, one = map(json.loads, done.stdout.splitlines())
    name, age = (each["place"] for each in made["evidence"])
    assert (name["file"], name["page"], age["page"], age["text"]) == ("a.pdf", 7, 7, "19")
    assert name["line"] - 1 == made["source_text"][: name["start"]].count("\n")
    assert [made["source_text"][place["start"] : place["end"]] for place in (name, age)] == ["Tim", "19"]
    assert one["evidence"][0]["place"]["page"] == 1 and one["source_text"] == "Ann, 31\n\f"
    assert "\f" not in runner.requests[0].messages[-1].text


def test_values_of_html_are_placed_in_its_text(leap, tmp_path):
    page = '<meta charset="Shift_JIS"><style>p {}</style><h1>東京</h1><p>ティム &amp; Tim,<br>19</p>'
    (tmp_path / "p.html").write_bytes(page.encode("cp932"))
    leap.script(ANSWER)
    made = json.loads(leap("extract", *NAME, "--evidence", "p.html").stdout)
    name, age = (each["place"] for each in made["evidence"])
    assert made["source_text"] == "# 東京\n\nティム & Tim,\n19" and "page" not in name
    assert made["source_text"][name["start"] : name["end"]] == "Tim" and (name["line"], age["line"]) == (3, 4)


@pytest.mark.slow
def test_documents_that_cannot_be_read_are_named_and_the_rest_is_done(leap, tmp_path, pypdf):
    blank = pypdf.PdfWriter()
    blank.add_blank_page(100, 100)
    blank.write(tmp_path / "scan.pdf")
    locked = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(pdf_bytes(["x"]))))
    locked.encrypt("secret", algorithm="RC4-128")
    locked.write(tmp_path / "locked.pdf")
    (tmp_path / "broken.pdf").write_bytes(pdf_bytes(["x"])[:300])
    (tmp_path / "none.pdf").write_text("no such thing")
    (tmp_path / "code.html").write_text("<script>1</script>")
    (tmp_path / "a.txt").write_text("Tim, 19")
    names = ["scan.pdf", "locked.pdf", "broken.pdf", "none.pdf", "code.html"]
    leap.script(ANSWER)
    done = leap("extract", *NAME, *names, "a.txt", "--errors", "failed.jsonl")
    assert (done.code, done.stdout) == (8, ANSWER + "\n") and "5 of 6 failed" in done.stderr
    kept = [json.loads(line) for line in (tmp_path / "failed.jsonl").read_text().splitlines()]
    assert [each["source"] for each in kept] == names and all(set(each) == {"source", "error"} for each in kept)
    for each, why in zip(kept, ("no text", "encrypted", "cannot be read", "is not PDF", "no text"), strict=True):
        assert why in each["error"] and done.stderr.count(each["error"]) == 1
    runner = leap.script(ANSWER)
    assert leap("extract", *NAME, "none.pdf").code == 8 and runner.requests == []
    assert leap("extract", *NAME, "gone.pdf").code == 2 and leap("extract", *NAME, "--dry-run", *names).code == 8


def test_a_pdf_without_the_library_says_what_to_install(leap, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    (tmp_path / "a.pdf").write_bytes(pdf_bytes(*PAGES))
    done = leap("summarize", "a.pdf")
    assert done.code == 8 and "a.pdf: pdf needs the library pypdfium2 (pip install leap-edge[pdf])" in done.stderr


def test_redaction_takes_pages_as_they_are(leap, tmp_path):
    (tmp_path / "p.html").write_text("<p>Tim</p>\n")
    leap.script(json.dumps({"city": []}))
    assert leap("redact", "--categories", "city", "p.html").stdout == "<p>Tim</p>\n"
