"""What a document may cost: time, memory and size, of one and of all in a request."""

from __future__ import annotations

import threading
import time

import pytest

from leap_core.documents import reading
from leap_core.documents.blocks import UnreadableDocumentError
from leap_core.documents.reading import ReadingBudget, read_document

from .here import read_here
from .office_files import docx, paragraph, xlsx


def waits(_request, _answer) -> None:
    """A task that does not end."""
    time.sleep(60)


def floods(_request, answer) -> None:
    """A task that answers without an end."""
    while True:
        answer({"blocks": [["paragraph", "x" * 100_000, 0, "", 0]]})


@pytest.fixture
def task(monkeypatch):
    """Has the child do another task than reading."""

    def use(name: str) -> None:
        real = reading.child_for

        def child_for(request, **more):
            return real({**request, "task": f"{__name__}:{name}"}, **more)

        monkeypatch.setattr(reading, "child_for", child_for)
        monkeypatch.setattr("leap_core.system.child.packages_directory", lambda: None)

    return use


@pytest.mark.slow
def test_a_child_is_killed_when_its_client_has_left(task):
    task("waits")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    with pytest.raises(UnreadableDocumentError, match="stopped"):
        read_document(docx(paragraph("x")), "a.docx", stop=stop)
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_child_has_so_much_time(task):
    task("waits")
    with pytest.raises(UnreadableDocumentError, match="it takes more than"):
        read_document(docx(paragraph("x")), "a.docx", budget=ReadingBudget(seconds=0.5))


@pytest.mark.slow
def test_the_answer_of_a_child_is_read_under_a_bound(task, monkeypatch):
    task("floods")
    monkeypatch.setattr(reading, "ANSWER_BYTES", 1_000_000)
    with pytest.raises(UnreadableDocumentError, match=r"a\.docx cannot be read: it takes more time or memory"):
        read_document(docx(paragraph("x")), "a.docx")


def test_documents_of_a_request_have_one_budget():
    budget = ReadingBudget(characters=30)
    assert read_document(b"twenty characters...", "a.txt", budget=budget).notes == ()
    second = read_document(b"twenty characters...", "b.txt", budget=budget)
    assert second.text == "twenty cha" and second.notes == ("the rest is cut off at 10 characters",)
    with pytest.raises(UnreadableDocumentError, match=r"c\.txt is not read: the documents of one request"):
        read_document(b"x", "c.txt", budget=budget)
    with pytest.raises(UnreadableDocumentError, match="not read"):
        read_document(b"12345", "d.txt", budget=ReadingBudget(bytes=4))


def test_what_takes_too_long_is_cut_off(monkeypatch):
    from leap_core.documents import output

    monkeypatch.setattr(output.time, "monotonic", iter(range(0, 100_000, 5)).__next__)
    document = read_here("docx", docx("".join(paragraph(f"{n}") for n in range(50))))
    assert document.notes == ("the rest is cut off at 15 seconds",) and document.text.startswith("0\n\n1")


def test_a_text_of_line_ends_is_cut_off():
    document = read_here("text", b"\n" * 2_000_000 + b"x")
    assert document.notes == ("the rest is cut off at 500,000 lines",) and len(document.lines) <= 500_000


def test_a_long_paragraph_is_cut_off():
    document = read_here("docx", docx(paragraph("x" * 3_000_000)), characters=2_000_000)
    assert document.notes == ("the rest is cut off at 2,000,000 characters",)


@pytest.mark.slow
def test_a_shared_string_of_a_sheet_does_not_multiply():
    """In a child, as `leap serve` reads it: 400 million characters are 8 million, and are said."""
    rows = '<row><c t="s"><v>0</v></c></row>' * 12_000
    document = read_document(xlsx(rows, strings=f"<si><t>{'x' * 32_000}</t></si>"), "a.xlsx")
    assert document.notes == ("sheet 1 of 1: the rest is cut off at 8,000,000 characters",)
    assert len(document.text) < 9_000_000
