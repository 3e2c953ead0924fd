"""Spreadsheets: values as they are shown, places that are right, and what is said of what is not shown."""

from __future__ import annotations

import zlib
from base64 import b85decode
from datetime import datetime

import pytest

from leap_core.documents import output
from leap_core.documents.blocks import UnreadableDocumentError
from leap_core.documents.number_formats import shown
from leap_core.documents.reading import read_document

from .here import read_here
from .office_files import ods, xlsx

EPOCH = datetime(1899, 12, 30)


def cell(place: str, value: object, style: int = 0) -> str:
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{place}" s="{style}"><v>{value}</v></c>'


def row(number: int, *values: object, attributes: str = "") -> str:
    cells = "".join(cell(f"{chr(65 + n)}{number}", value) for n, value in enumerate(values) if value is not None)
    return f'<row r="{number}" {attributes}>{cells}</row>'


def lines(document) -> list[str]:
    return document.text.strip("\n\f").split("\n")[2:]


SHOWN = [
    ("0.125", "0.0%", "12.5%"),
    ("0.07000000000000001", "0%", "7%"),
    ("1234.5", '#,##0.00 "€"', "1,234.50 €"),
    ("1234.5", '"€"#,##0.00', "€1,234.50"),
    ("1234.5", "[$£-809]#,##0", "£1,235"),
    ("-0.5", "$#,##0.00", "-$0.50"),
    ("-42", "#,##0;[Red](#,##0)", "(42)"),
    ("0", '0.00;-0.00;"none"', "none"),
    ("1067", "00000", "01067"),
    ("123456789", "000-00-0000", "123-45-6789"),
    ("5", '"No. "0', "No. 5"),
    ("1500000", '0.0,,"M"', "1.5M"),
    ("0.5", "# ?/?", "1/2"),
    ("1.5e-07", "0.00E+00", "1.50E-07"),
    ("3", 'General" kg"', "3 kg"),
    ("46085", "dd.mm.yyyy", "2026-03-04"),
    ("46085.2125", "yyyy-mm-dd hh:mm", "2026-03-04 05:06"),
    ("0.3125", "h:mm AM/PM", "07:30"),
    ("1.2534722222222223", "[h]:mm", "30:05"),
    ("1.2534722222222223", "[h]:mm:ss", "30:05:00"),
    ("0.30000000000000004", "General", "0.3"),
    ("4111111111111111", "0", "4111111111111111"),
    ("4111111111111111", "General", "4111111111111111"),
    ("1.0", "General", "1"),
    ("-0", "General", "0"),
    ("12.50", "General", "12.5"),
    ("1e+21", "General", "1E+21"),
    ("nothing", "0.00", "nothing"),
]


@pytest.mark.parametrize(("value", "code", "text"), SHOWN)
def test_numbers_are_shown_in_their_formats(value, code, text):
    assert shown(value, code, EPOCH) == text


def test_dates_use_the_epoch_of_the_workbook():
    assert shown("44623", "yyyy-mm-dd", datetime(1904, 1, 1)) == "2026-03-04"
    assert shown("1", "yyyy-mm-dd", EPOCH) == "1900-01-01"
    days = [shown(day, "yyyy-mm-dd", EPOCH) for day in ("59", "60", "61")]  # the 60th is one that 1900 did not have
    assert days == ["1900-02-28", "1900-02-28", "1900-03-01"]


def test_styles_of_cells_are_read():
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="00000"/></numFmts><cellStyleXfs><xf numFmtId="9"/></cellStyleXfs>'
    )
    styles += '<cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="10"/></cellXfs>'
    rows = (
        f'<row r="1">{cell("A1", 1067, 1)}{cell("B1", 0.125, 2)}{cell("C1", 0.125)}<c r="D1" t="b"><v>1</v></c></row>'
    )
    assert lines(read_here("xlsx", xlsx(rows, styles=styles))) == ["01067 | 12.50% | 0.125 | TRUE"]


def test_a_wrong_declared_size_is_ignored():
    data = xlsx(row(1, "Part", "Qty") + row(2, "bolt", 4), before='<dimension ref="A1"/>')
    assert lines(read_here("xlsx", data)) == ["Part | Qty", "bolt | 4"]


def test_cells_with_separators_and_line_ends_stay_one_cell():
    document = read_here("xlsx", xlsx(row(1, "cmd", "meaning") + row(2, "a | b", "pipe") + row(3, "two\nlines", None)))
    assert document.rows == [("Sheet!2", "cmd: a | b\nmeaning: pipe"), ("Sheet!3", "cmd: two\nlines")]


def test_strings_are_shared_rich_and_escaped():
    strings = "<si><t>a &amp; b_x000A_c</t></si><si><r><t>ri</t></r><r><t>ch</t></r><rPh><t>read</t></rPh></si>"
    rows = '<row><c t="s"><v>0</v></c><c t="s"><v>1</v></c></row>'
    assert lines(read_here("xlsx", xlsx(rows, strings=strings))) == ["a & b c | rich"]


def test_names_with_a_prefix_are_read():
    data = xlsx('<x:row r="3"><x:c r="B3" t="n"><x:v>7</x:v></x:c></x:row>')
    (block,) = read_here("xlsx", data).sections[0].blocks[1:]
    assert (block.rows, block.numbers) == ((("", "7"),), (3,))


def test_merged_cells_keep_their_value_and_a_title_is_not_repeated():
    rows = row(1, "Title over all") + row(2, "Region", "Q1") + row(3, "North", 1) + row(4, None, 2)
    merged = '<mergeCells><mergeCell ref="A1:B1"/><mergeCell ref="A3:A4"/></mergeCells>'
    assert lines(read_here("xlsx", xlsx(rows, after=merged))) == [
        "Title over all",
        "Region | Q1",
        "North | 1",
        "North | 2",
    ]


def test_merged_ranges_beyond_the_limit_are_reported(monkeypatch):
    monkeypatch.setattr("leap_core.documents.sheets.MOST_MERGED", 2)
    rows = "".join(row(n, f"a{n}" if n % 2 else None, n) for n in range(1, 9))
    merged = "".join(f'<mergeCell ref="A{n}:A{n + 1}"/>' for n in (1, 3, 5, 7))
    document = read_here("xlsx", xlsx(rows, after=f"<mergeCells>{merged}</mergeCells>"))
    assert lines(document)[:6] == ["a1 | 1", "a1 | 2", "a3 | 3", "a3 | 4", "a5 | 5", " | 6"]
    said = "sheet Sheet: merged cells behind the first 2, and large ones, have their value in the first cell only"
    assert document.notes == (said,)
    large = read_here("xlsx", xlsx(rows, after='<mergeCells><mergeCell ref="A1:A3"/></mergeCells>'))
    assert large.notes == (said,)
    title = '<mergeCells><mergeCell ref="A1:D1"/></mergeCells>'
    assert read_here("xlsx", xlsx(row(1, "T"), after=title)).notes == ()


def test_formulas_without_a_result_are_shown_and_reported():
    rows = (
        '<row r="1"><c r="A1"><f>B1+C1</f><v></v></c><c r="B1"><f>1+1</f><v>2</v></c><c r="C1"><f>D&amp;E</f></c></row>'
    )
    document = read_here("xlsx", xlsx(rows))
    assert lines(document) == ["=B1+C1 | 2 | =D&E"]
    assert document.notes == ("sheet Sheet: 2 formulas without a stored result are shown as formulas",)


def test_a_far_cell_takes_no_memory():
    document = read_here("xlsx", xlsx(row(1, "a", "b") + f'<row r="1048576">{cell("XFD1048576", "end")}</row>'))
    table = document.sections[0].blocks[1]
    assert table.rows == (("a", "b"), ("", "", "end")) and table.numbers == (1, 1048576)


def test_hidden_cells_are_left_out_and_reported():
    rows = row(1, "Name", "Secret", "Price") + row(2, "lamp", 0.77, 10, attributes='hidden="1"') + row(3, "desk", 1, 30)
    document = read_here("xlsx", xlsx(rows, before='<cols><col min="2" max="2" hidden="1"/></cols>', state="hidden"))
    assert lines(document) == ["Name | Price", "", "desk | 30"]
    assert document.notes == (
        "sheet Sheet: what is hidden is left out (rows: 1, columns: 1)",
        "hidden sheets are left out: Second",
    )


def ods_row(*cells: str, attributes: str = "") -> str:
    return f"<t:table-row {attributes}>{''.join(cells)}</t:table-row>"


def ods_cell(text: str = "", attributes: str = "") -> str:
    return f"<t:table-cell {attributes}>{f'<x:p>{text}</x:p>' if text else ''}</t:table-cell>"


def test_repeated_rows_are_expanded_with_their_numbers():
    rows = ods_row(ods_cell("Name")) + ods_row(ods_cell("same"), attributes='t:number-rows-repeated="1500"')
    table = read_here("ods", ods(rows + ods_row(ods_cell("last")))).sections[0].blocks[1]
    assert len(table.rows) == 1502 and table.numbers[-1] == 1502 and table.rows[-1] == ("last",)


def test_cells_of_ods():
    rows = ods_row(
        ods_cell("12.5 %"), ods_cell("", 't:formula="of:=A1"'), ods_cell("two", 't:number-columns-repeated="2"')
    )
    rows += ods_row(ods_cell("gone"), attributes='t:visibility="collapse"')
    rows += ods_row(ods_cell("V", 't:number-rows-spanned="2"'), ods_cell("b")) + ods_row(
        "<t:covered-table-cell/>", ods_cell("c")
    )
    document = read_here("ods", ods(rows))
    assert lines(document) == ["12.5 % | =A1 | two | two", "", "V | b", "V | c"]
    assert document.notes == (
        "sheet R: what is hidden is left out (rows: 1, columns: 0)",
        "sheet R: 1 formulas without a stored result are shown as formulas",
    )


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("ods", ods(ods_row(ods_cell("a"), attributes='t:number-rows-repeated="10000000"'))),
        (
            "ods",
            ods(
                ods_row(
                    ods_cell("a", 't:number-columns-repeated="16000"'), attributes='t:number-rows-repeated="99999999"'
                )
            ),
        ),
        ("xlsx", xlsx('<row><c t="s"><v>0</v></c></row>' * 2000, strings=f"<si><t>{'x' * 1000}</t></si>")),
        ("xlsx", xlsx(f"<row>{'<c><v>1</v></c>' * 2000}</row>" * 5)),
        ("xlsx", xlsx(row(1, "a"), after='<mergeCell ref="A1:XFD1048576"/>' * 20_000)),
    ],
)
def test_limits_hold_in_the_child(monkeypatch, kind, data):
    monkeypatch.setattr("leap_core.documents.sheets.CELLS", 5000)
    monkeypatch.setattr("leap_core.documents.sheets.CHARACTERS", 50_000)
    for name, most in (("CELLS", 5000), ("LINES", 5000)):
        monkeypatch.setattr(output, name, most)
    document = read_here(kind, data, characters=50_000)
    rows = [each for block in document.sections[0].blocks for each in block.rows]
    assert sum(map(len, rows)) <= 5000 and len(document.text) <= 60_000
    assert "rest is cut off" in "".join(document.notes) or len(rows) == 1


XLS = zlib.decompress(
    b85decode(
        r"""c-rk)O-NKx6#njeZ+_Ep`~?j}1g%WNsD%XfDk^J{S_w%%)aZMp*o^U<MFy2+E{mX5(MGVMjn$?fil|*gpw%J>0?k^r3JhAP)46Bf"""
        r"""o75(7zy#%;;huZXx#ygF?z!jw%o`oa9UFXDGLCt$6)I*D0eENe1eJh8ghBm@glsyspGv}oWd#90Eu`0jXW4Ikat-Brk3+!&?G<6*"""
        r"""3zefdjmGYnS+<0*gMEky=|jEHDEAcHq7p(e`<2JIopC<n`z-sM@iyjMVO&qLW8yGI^v0?>JC9qHa_$Qe7I@4$pO~`|g?KIV_`)@j"""
        r"""l=Wb{)fqXp;yX&UEDV8?puvopmZSr?4GpN>P+L)|<=_s2KrcZ}G+JXArP?aomHBd{<JgvHbPNSV4B=;@448CIiI-(Ae`)yw#Q!yy"""
        r"""@B0VePYaxmAE32P#}Cqi&*xuPC`I~^I3eU#8lWxpMoS(fO_pI=J(APvlX>RFo=(FsV^e72YeW_j-5WQf9^ha{#4?H88HvlPr88>M"""
        r"""er)RULbSj{1l2U~yK|JYXDH{QrghRZsL^A#TV^~c&GAVVo^z6A^Zw2vY#@i*xxCB6H1(-_Ki=<aYu1l5r;l&1<Q-Qbr-TG9N)1vD"""
        r"""agQg3t5{<_<4bIHHMdI`7my6qmCc2AV|PExT;|?N8fO#32Yt<~_F8HWeBb}1bYMbXNA2N;@v{ZPAN4_$Q=kmem%n~gi)wN6hJ>fO"""
        r"""Qw#ev{LHxcuanWQgl*pw_C=n9X}OsRav3Kn86A<L6gyT)N+n87Q5sR2ZCRwTEZDM)l}gc*p659Uqn}rTe46K@XjHNLRf^izx~mg)"""
        r"""p-J7N_=%&jFVeokzRb0+uzjy>Ke?`(?MO-;HI0tSIx;n+2P*4$?Kx=k<X_MVXm)g@w8qkM=HGaBD)-VWNy)<_=?vXCe_$!HQKay4"""
        r"""%|?+n8~sjHkuIt(xZr{dF1X;rVu0Y65BPPY+3#EVR`J>2b*8DzxSvT@EF3^L{o?fBY8PTuTj<Rwe~RD{jxDi39p`(YghMpCg)X$Q"""
        r"""A6*&eFTFLz?D;HMF}!$NDAVz0GV$|2kN+F!2QsG"""
    )
)
"""Made by xlwt: text, 12.5 %, a date, 30:05 h, noise of a fraction, a merged cell, a hidden sheet."""


def test_workbooks_of_old_programs_are_read():
    pytest.importorskip("python_calamine")
    document = read_document(XLS, "orders.xls")
    assert (document.kind, lines(document)) == (
        "xls",
        [
            "Item | Share | Date | Time | Ok",
            "Tea, 緑 | 0.125 | 2026-03-04 | 30:05:00 | TRUE",
            "x | 0.3",
            "merged | 1",
            "merged | 2",
        ],
    )
    assert "hidden sheets are left out: Hidden" in document.notes and "formats of xls" in document.notes[0]


def test_a_kind_without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UnreadableDocumentError, match="orders.xls: xls needs the library python-calamine") as caught:
        read_document(XLS, "orders.xls")
    assert caught.value.hint == "pip install leap-edge[documents]"
    letter = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "WordDocument\0".encode("utf-16-le")
    with pytest.raises(UnreadableDocumentError, match="doc needs the library office-oxide") as caught:
        read_document(letter, "letter.doc")
    assert "glibc 2.34" in caught.value.hint


@pytest.mark.parametrize(("stream", "why"), [("EncryptedPackage", "encrypted"), ("__properties", "compound file")])
def test_other_compound_files_are_refused_by_type(stream, why):
    with pytest.raises(UnreadableDocumentError, match=why):
        read_document(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + f"{stream}\0".encode("utf-16-le"), "letter.doc")
