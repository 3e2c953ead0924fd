"""Rows of tables as records: which row names the columns, in sheets and in tables of other documents."""

from __future__ import annotations

import pytest

from leap_core.documents.blocks import named_rows

from .here import read_here

SHEETS = [
    ([["item", "price"], ["Tea", "3.5"]], [(1, "item: Tea\nprice: 3.5")]),
    ([["Orders of 2025"], ["as of 1 May"], [], ["item", "price"], ["Tea", "3.5"]], [(4, "item: Tea\nprice: 3.5")]),
    (
        [["", "2024", "2024", "2025", "2025"], ["item", "min", "max", "min", "max"], ["Tea", "1", "2", "3", "4"]],
        [(2, "item: Tea\n2024 min: 1\n2024 max: 2\n2025 min: 3\n2025 max: 4")],
    ),
    (
        [["item", "2024", "", "2025", ""], ["item", "min", "max", "min", "max"], ["Tea", "1", "2", "3", "4"]],
        [(2, "item: Tea\n2024 min: 1\n2024 max: 2\n2025 min: 3\n2025 max: 4")],
    ),
    (
        [["name", "", "sum"], ["Ann", "x", "7"], ["Ann", "x", "8"]],
        [(1, "name: Ann\nx\nsum: 7"), (2, "name: Ann\nx\nsum: 8")],
    ),
    ([["", "sum"], ["Ann", "7"]], [(1, "Ann\nsum: 7")]),
    ([["names", ""], ["Ann", "7"]], [(1, "names: Ann\n7")]),
    ([["word"], ["one"], ["two"]], [(1, "word: one"), (2, "word: two")]),
    ([], []),
    ([["", ""]], []),
]


@pytest.mark.parametrize(("rows", "records"), SHEETS)
def test_the_header_row_of_a_sheet_is_found(rows, records):
    assert list(named_rows(rows, is_sheet=True)) == records


TABLES = [
    ([["Name", "Sum"], ["Ann", "7"]], [(1, "Name: Ann\nSum: 7")]),
    ([["Fees"], ["Name", "Sum"], ["Ann", "7"]], [(0, "Fees"), (2, "Name: Ann\nSum: 7")]),
    ([["Rent", "900 €"], ["Heating", "120 €"]], [(0, "Rent | 900 €"), (1, "Heating | 120 €")]),
    ([["one line"]], [(0, "one line")]),
]


@pytest.mark.parametrize(("rows", "records"), TABLES)
def test_a_first_row_of_words_names_the_columns_of_a_table(rows, records):
    assert list(named_rows(rows)) == records


def test_lines_outside_a_table_are_rows_too():
    page = b"<h1>Fees</h1><p>one<br>two</p><table><tr><th>Name<th>Sum<tr><td>Ann<td>7<tr><td>Bo<td>8</table><p>end"
    document = read_here("html", page)
    numbered = {n: line for n, line in enumerate(document.text.split("\n"), 1) if line}
    rows = document.rows
    assert [text for _, text in rows] == ["# Fees", "one", "two", "Name: Ann\nSum: 7", "Name: Bo\nSum: 8", "end"]
    assert all(text.split("\n")[0].rpartition(": ")[2] in numbered[int(place)] for place, text in rows)
    assert read_here("html", b"<p>no table").rows == []
