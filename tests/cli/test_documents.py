"""Documents on the command line: one reader in every command, and what it could not read is said."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from leap_core.documents.kinds import KINDS, LIBRARIES, MOST_MEMBERS, UNITS
from leap_core.documents.output import CELLS, CHARACTERS, LINES, SECTIONS
from leap_core.documents.reading import LARGEST_DOCUMENT, LARGEST_TEXT, SECONDS

from ..documents.test_books import book, chapter

PAGE = "<html><head><style>p {}</style></head><body><h1>Plan</h1><table><tr><td>a<td>b</table></body></html>"
READ = "# Plan\n\na | b"


def asked(runner) -> str:
    return runner.requests[-1].messages[-1].text


@pytest.mark.parametrize("command", ["generate", "summarize"])
def test_a_page_is_converted_in_every_command(leap, tmp_path, command):
    (tmp_path / "plan.html").write_text(PAGE)
    runner = leap.script("ok")
    file = ["-f", "plan.html", "Go."] if command == "generate" else ["plan.html"]
    assert leap(command, "-m", "some", *file).code == 0
    assert READ in asked(runner) and "<table" not in asked(runner)
    runner = leap.script("ok")
    assert leap(command, "-m", "some", stdin=PAGE).code == 0
    assert READ in asked(runner) and "<table" not in asked(runner)


@pytest.mark.parametrize("charset", ["cp1252", "utf-16", "utf-8-sig", "utf-16-le"])
def test_texts_of_any_charset_are_read_and_a_guess_is_reported(leap, tmp_path, charset):
    text = "Die größeren Änderungen – auch „kleine“ – kosten 20 €.\n"
    (tmp_path / "a.txt").write_bytes(text.encode(charset))
    for args, stdin in (
        (("generate", "-m", "some", "-f", "a.txt", "Go."), b""),
        (("summarize", "-m", "some", "a.txt"), b""),
        (("summarize", "-m", "some"), text.encode(charset)),
    ):
        runner = leap.script("ok")
        done = leap(*args, stdin=stdin)
        assert done.code == 0 and text.strip() in asked(runner)
        assert (f"no charset is declared: {charset} is a guess" in done.stderr) == (charset in ("cp1252", "utf-16-le"))


def test_unread_parts_are_reported_once_and_in_json(leap, tmp_path):
    (tmp_path / "a.epub").write_bytes(book({"a.xhtml": chapter("One")}, missing=("b.xhtml",)))
    note = "chapter 2 of 2: b.xhtml is missing from the book"
    leap.script("ok")
    done = leap("generate", "-m", "some", "-f", "a.epub", "Go.")
    assert done.code == 0 and done.stderr.count(f"a.epub: {note}") == 1
    leap.script('{"name": "One"}')
    done = leap("extract", "-m", "some", "--json-schema", "name", "--evidence", "a.epub")
    assert done.stderr.count(f"a.epub: {note}") == 1 and json.loads(done.stdout)["notes"] == [note]


def test_an_index_reports_unread_parts(leap, tmp_path, server):
    (tmp_path / "a.txt").write_bytes("Die größeren Änderungen kosten 20 €.\n".encode("cp1252"))
    done = leap("index", "make", "notes", "a.txt", f"{server}/plan.html", "--keywords-only")
    assert done.code == 0 and done.stderr.count("no charset is declared: cp1252 is a guess") == 1
    assert "größeren" in leap("search", "notes", "größeren").stdout
    assert "a | b" in leap("search", "notes", "Plan").stdout


def test_rows_of_a_table_are_the_lines_of_a_task(leap, tmp_path):
    (tmp_path / "orders.csv").write_text('Item;Note\nTea;"two\nlines"\nCups;\n')
    runner = leap.script('{"item": "Tea"}', '{"item": "Cups"}')
    assert leap("extract", "-m", "some", "--json-schema", "item", "--lines", "orders.csv").code == 0
    first, second = (request.messages[-1].text for request in runner.requests)
    assert "Item: Tea\nNote: two\nlines" in first and "Item: Cups" in second and "Note:" not in second


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/plan.html" else 404)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_typed_address_may_be_private_and_an_error_gives_the_reason(leap, server):
    runner = leap.script("ok")
    assert leap("generate", "-m", "some", "-f", f"{server}/plan.html", "Go.").code == 0
    assert READ in asked(runner)
    runner = leap.script("ok")
    assert leap("summarize", "-m", "some", f"{server}/plan.html").code == 0
    assert READ in asked(runner)
    done = leap("generate", "-m", "some", "-f", f"{server}/none.html", "Go.")
    assert done.code == 2 and f"cannot fetch {server}/none.html: the server answers 404" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_documents_page_lists_each_kind_and_the_limits():
    page = (Path(__file__).parents[2] / "docs" / "documents-and-ocr.md").read_text("utf-8")
    table = page.partition("| kind |")[2].partition("\n\n")[0].splitlines()[2:]
    listed = {kind: line for line in table for kind in line.split("|")[1].strip().split(", ")}
    assert set(listed) == set(KINDS)
    for kind, line in listed.items():
        *_, pages, needs, _ = (cell.strip() for cell in line.split("|"))
        assert UNITS.get(kind, "") in pages, kind
        assert bool(needs) == (kind in LIBRARIES), kind
    for limit in (CHARACTERS, CELLS, LINES, SECTIONS, MOST_MEMBERS):
        assert f"{limit:,} " in page
    for size in (f"{LARGEST_DOCUMENT // 1024**2} MiB;", f"{LARGEST_TEXT // 1024**2} MiB |", f"{SECONDS:.0f} seconds"):
        assert size in page
