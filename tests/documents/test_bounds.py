"""What a document may cost: time, memory and size, of one and of all in a request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from leap_core.documents import (
    opendocument,  # noqa: F401 - no bound that a test sets is to be taken over by an import
    reading,
)
from leap_core.documents.blocks import Document, UnreadableDocumentError
from leap_core.documents.places import Places
from leap_core.documents.reading import ReadingBudget, read_document

from .here import read_here
from .office_files import docx, ods, paragraph, xlsx


def waits(_request, _answer) -> None:
    """A task that does not end."""
    time.sleep(600)


def floods(_request, answer) -> None:
    """A task that answers without an end."""
    while True:
        answer({"blocks": [["paragraph", "x" * 100_000, 0, "", 0]]})


@pytest.fixture
def task(monkeypatch):
    """Has the child do another task than reading."""

    def use(name: str, kind: str | None = None) -> None:
        real = reading.child_for

        def child_for(request, **more):
            other = {} if kind not in (None, request["kind"]) else {"task": f"{__name__}:{name}"}
            return real(request | other, **more)

        monkeypatch.setattr(reading, "child_for", child_for)
        monkeypatch.setattr("leap_core.system.child.packages_directory", lambda: None)

    return use


def settled(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so within a minute."""
    end = time.monotonic() + 60
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    return is_so()


def test_a_slow_document_moves_to_a_slow_slot_or_loses_its_slot():
    now = [0.0]
    places = Places(2, 1, 3.0, lambda: now[0])
    with ExitStack() as first, ExitStack() as second, ThreadPoolExecutor(2) as threads:
        one, other = first.enter_context(places.hold(str)), second.enter_context(places.hold(str))
        assert not one.is_lost() and not one.is_slow
        now[0] = 5.0
        assert not one.is_lost() and one.is_slow, "there is a slow place"
        assert not other.is_lost() and not other.is_slow, "nobody waits for its place"
        came, go, slow = threading.Event(), threading.Event(), threading.Event()

        def wait(reached: threading.Event, is_slow: bool) -> None:
            with places.hold(str, is_slow=is_slow):
                reached.set()
                go.wait(60)

        with places.hold(str) as third:
            waits = threads.submit(wait, came, False)
            assert settled(other.is_lost) and not third.is_lost(), "one is quick, and the other is not any more"
            second.close()
            assert came.wait(60), "the place of the lost one"
            again = threads.submit(wait, slow, True)
            assert settled(lambda: bool(places._waiting[True]))
            now[0] = 20.0
            assert not third.is_lost() and not third.is_slow, "one that waits for a slow place is before it"
            first.close()
            assert slow.wait(60)
        go.set()
        waits.result(), again.result()
    assert places._free == {False: 2, True: 1} and not any(places._waiting.values())


def test_waiting_for_a_slot_can_be_stopped():
    places = Places(1, 1, 3.0)

    def check() -> None:
        raise UnreadableDocumentError("stopped")

    with places.hold(str):
        with pytest.raises(UnreadableDocumentError), places.hold(check):
            pass
        assert not any(places._waiting.values())
    with places.hold(check):
        pass


@pytest.mark.slow
def test_slow_documents_do_not_keep_others_waiting(task, monkeypatch):
    """Two that do not end have the only places; others, that are short, are read."""
    task("waits", "docx")
    now = [0.0]
    monkeypatch.setattr(reading, "_places", places := Places(1, 1, 3.0, lambda: now[0]))
    stop = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        hostile = [threads.submit(read_document, docx(paragraph("x")), f"{n}.docx", stop=stop) for n in range(2)]
        try:
            assert settled(lambda: bool(places._waiting[False]))
            now[0] = 5.0
            assert settled(lambda: not (places._free[False] or places._free[True] or places._waiting[False]))
            now[0] = 10.0
            for _ in range(2):
                assert "Hello" in read_document(b"<html><body><p>Hello</p></body></html>", "a.html").text
        finally:
            stop.set()
        for each in hostile:
            with pytest.raises(UnreadableDocumentError, match="stopped"):
                each.result()
    assert places._free == {False: 1, True: 1}


@pytest.mark.slow
def test_a_document_that_lost_its_slot_is_read_again_with_its_full_time(monkeypatch):
    monkeypatch.setattr(reading, "_places", places := Places(1, 1, 0.0))
    judged = iter([True])
    monkeypatch.setattr(places, "judge", lambda _place, _seconds: next(judged, False))
    budget = ReadingBudget()
    assert read_document(docx(paragraph("x")), "a.docx", budget=budget).text == "x"
    assert budget.seconds <= reading.SECONDS and places._free == {False: 1, True: 1}


@pytest.mark.slow
def test_a_child_is_killed_when_its_client_has_left(task):
    task("waits")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(UnreadableDocumentError, match="stopped"):
        read_document(docx(paragraph("x")), "a.docx", stop=stop)


@pytest.mark.slow
def test_a_child_has_limited_time(task):
    task("waits")
    with pytest.raises(UnreadableDocumentError, match="it takes more than"):
        read_document(docx(paragraph("x")), "a.docx", budget=ReadingBudget(seconds=0.5))


@pytest.mark.slow
def test_the_output_of_a_child_is_bounded(task, monkeypatch):
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


def test_reading_that_takes_too_long_is_stopped(monkeypatch):
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


def sheet(kind: str, rows: list[tuple[str, int]]) -> Document:
    """A sheet whose rows have one cell each: a text, and how often it is repeated (ods) or in which column it is."""
    if kind == "ods":
        cells = (f'<t:table-cell t:number-columns-repeated="{n}"><x:p>{text}</x:p></t:table-cell>' for text, n in rows)
        return read_here("ods", ods("".join(f"<t:table-row>{cell}</t:table-row>" for cell in cells)))
    office = "urn:schemas-microsoft-com:office:spreadsheet"
    cells = (f'<Row><Cell ss:Index="{n}"><Data ss:Type="String">{text}</Data></Cell></Row>' for text, n in rows)
    book = f'<Workbook xmlns="{office}" xmlns:ss="{office}"><Worksheet ss:Name="R"><Table>{"".join(cells)}</Table>'
    return read_here("excel xml", f"{book}</Worksheet></Workbook>".encode())


@pytest.mark.parametrize("kind", ["ods", "excel xml"])
def test_a_large_sheet_gives_its_beginning(kind, monkeypatch):
    monkeypatch.setattr("leap_core.documents.output.CELLS", 20)
    document = sheet(kind, [(f"cell {n}", 1) for n in range(50)])
    assert "cell 0" in document.text and "cell 19" in document.text and "cell 40" not in document.text
    assert document.notes == ("sheet 1: the rest is cut off at 20 cells",)
    monkeypatch.setattr("leap_core.documents.output.COLLECTING", -1e9)  # the time is over at once
    document = sheet(kind, [(f"cell {n}", 1) for n in range(9)])
    assert "cell 0" in document.text and "cell 1" not in document.text
    assert document.notes == ("sheet 1: the rest is cut off at 15 seconds",)


def test_a_cell_that_is_too_long_is_cut_off():
    document = read_here("ods", ods(f"<t:table-row><t:table-cell><x:p>{'a ' * 500}</x:p></t:table-cell></t:table-row>"))
    assert not document.notes
    row = f"<t:table-row><t:table-cell><x:p>{'a ' * 500}</x:p></t:table-cell></t:table-row>"
    document = read_here("ods", ods(row), characters=101)
    assert document.text.count("a") == 50 and document.notes == ("sheet 1: the rest is cut off at 101 characters",)


def test_repeated_cells_are_cut_off_at_the_limit(monkeypatch):
    monkeypatch.setattr("leap_core.documents.output.CELLS", 500)
    document = sheet("ods", [("a", 200)] * 40)
    assert document.notes == ("sheet 1: the rest is cut off at 500 cells",) and document.text.count("a") == 400


def test_impossible_columns_are_skipped():
    document = sheet("excel xml", [("kept", 3), *((f"far {n}", 20_000 + 10**9 * n) for n in range(500))])
    assert "kept" in document.text and "far" not in document.text
