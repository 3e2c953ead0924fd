"""Texts of any charset: with a mark, declared, UTF-8 with a bad byte, and guessed."""

from __future__ import annotations

import pytest

from leap_core.documents.blocks import UnreadableDocumentError
from leap_core.documents.reading import read_document
from leap_core.documents.text import charset_of, decode, table_rows

from .here import read_here

RUSSIAN = "Эти данные показывают, что расходы выросли. Просим подтвердить участие до конца недели.\n"
JAPANESE = "昨年の暖房費は増加しました。カタログをご覧ください。\n"
GUESSED = {
    "cp1251": RUSSIAN,
    "koi8-r": RUSSIAN,
    "cp1252": "Die größeren Änderungen – auch „kleine“ – kosten 20 €.\nCafé\n",
    "cp1250": "Dziękuję bardzo za szybką odpowiedź. Łukasz przyjdzie później.\n",
    "iso8859-2": "Szanowni Państwo, w załączeniu przesyłam sprawozdanie.\n",
    "cp932": JAPANESE,
    "euc-jp": JAPANESE,
    "iso2022-jp": JAPANESE,
    "gb18030": "尊敬的客户,请查收附件。我们在三月四日的会议上讨论。\n",
    "big5hkscs": "親愛的客戶,請查收附件。我們在三月四日的會議上討論。\n",
    "cp949": "안녕하십니까, 첨부 파일을 확인해 주세요.\n",
    "cp874": "เรียนลูกค้าทุกท่าน กรุณาตรวจสอบเอกสารแนบ\n",
    "iso8859-7": "Αγαπητοί συνεργάτες, επισυνάπτω την έκθεση.\n",
    "iso8859-5": RUSSIAN,
    "mac-cyrillic": RUSSIAN,
    "cp855": RUSSIAN,
    "cp866": RUSSIAN,
    "cp1255": "לקוחות יקרים, הדוח מצורף.\n",
    "cp1256": "عزيزي العميل، التقرير مرفق.\n",
    "utf-16-le": "Grüße, Welt\n",
    "utf-16-be": RUSSIAN,
}


@pytest.mark.parametrize("charset", GUESSED)
def test_the_charset_of_a_text_is_guessed_and_reported(charset):
    document = read_here("text", GUESSED[charset].encode(charset))
    assert document.text == GUESSED[charset].rstrip("\n")
    assert document.notes == (f"no charset is declared: {charset} is a guess",)


@pytest.mark.parametrize(
    "word",
    [
        "café",
        "El niño",
        "naïve",
        "Ångström",
        "Größe: 5 m²",
        "Preis: 20 €",
        "Grüße",
        "It’s a “test”…",
        "100 °C ± 5 µm",
        "Le cœur",
        "São Paulo",
    ],
)
def test_short_western_texts_are_guessed_right(word):
    assert decode(word.encode("cp1252"))[0] == word


@pytest.mark.parametrize("charset", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides(charset):
    assert read_here("text", "Grüße BOM\n".encode(charset)) == read_here("text", "Grüße BOM\n".encode())


def test_one_bad_byte_does_not_garble_a_text_in_utf_8():
    data = "Grüße, Äpfel und Öl\n".encode() + b"broken \xff here\n" + "Straße\n".encode()
    document = read_here("text", data)
    assert document.text == "Grüße, Äpfel und Öl\nbroken \ufffd here\nStraße"
    assert document.notes == ("1 byte is not utf-8: replaced",)


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("windows-31j", "cp932"),
        ("windows-874", "cp874"),
        ("x-gbk", "gb18030"),
        ("x-sjis", "cp932"),
        ("cp-850", "cp850"),
        ("ISO-8859-1", "cp1252"),
        ("x-mac-cyrillic", "mac-cyrillic"),
        ("utf8", "utf-8"),
        ("rot13", None),
        ("unicode_escape", None),
        ("nonsense", None),
    ],
)
def test_charset_labels_mean_what_they_mean_to_browsers(label, codec):
    assert charset_of(label) == codec


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("iso8859-5", '<?xml version="1.0" encoding="iso-8859-5"?>\n<a>Привет, мир</a>'),
        ("cp1252", "# -*- coding: latin-1 -*-\nname = 'Grüße, Zoë, García, Ångström'"),
        ("cp1250", '@charset "windows-1250";\n.a:before { content: "Łódź, Kraków, Gdańsk" }'),
        ("utf-8", '<?xml version="1.0" encoding="utf-16"?>\n<a>Grüße</a>'),
        ("utf-8", "# coding: nonsense\nGrüße"),
        ("utf-8", "# Text encoding: koi8-r and others\n\nGrüße"),
        ("utf-8", '<?xml version="1.0" encoding="windows-1251"?>\n<a>Grüße, Привет</a>'),
    ],
)
def test_a_text_that_names_its_charset_is_read_in_it(charset, text):
    document = read_here("code", text.encode(charset))
    assert (document.text, document.notes) == (text, ())


@pytest.mark.parametrize("charset", ["utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be", "iso2022-kr"])
def test_utf_16_and_utf_32_without_a_byte_order_mark(charset):
    text = "안녕하십니까, 첨부 파일을 확인해 주세요. The total is 42 euros."
    assert decode(text.encode(charset))[0] == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", [bytes(range(128, 256)), b"\xe4 ", b"a\xe4", b"\x1b$", b"\x81\x40", b"\xff", b"\0\x01"]
)
def test_guessing_reads_only_a_sample(unit, monkeypatch):
    import chardet

    sizes = []
    real = chardet.detect
    monkeypatch.setattr(chardet, "detect", lambda data, **more: sizes.append(len(data)) or real(data, **more))
    decode(unit * (1_000_000 // len(unit)))
    assert max(sizes, default=0) <= 200_000


def test_an_unknown_label_is_reported():
    text, note = decode("Привет, мир. Это текст.".encode("cp1251"), "x-nonsense")
    assert text == "Привет, мир. Это текст." and note == "the charset 'x-nonsense' is unknown: cp1251 is a guess"


def test_binary_data_is_refused():
    for data in (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 20, bytes(1000)):
        with pytest.raises(UnreadableDocumentError, match="picture.txt is not text"):
            read_document(data, "picture.txt")


@pytest.mark.slow
def test_a_large_text_is_cut_off_with_a_note():
    document = read_document(b"x\n" * 600_000, "long.txt")
    assert document.text.count("\n") <= 500_000 and "cut off" in document.notes[0]


def test_rows_of_a_table_in_csv():
    rows = table_rows('Name;Note;Price\nTea;"two\nlines; quoted";3,50\n\nCups;;4,20\n')
    assert list(rows) == [
        (2, "Name: Tea\nNote: two\nlines; quoted\nPrice: 3,50"),
        (5, "Name: Cups\nPrice: 4,20"),
    ]
    assert list(table_rows("a,b\n1,2,3\n")) == [(2, "a: 1\nb: 2\n3")]
    assert list(table_rows("word\none\ntwo\n")) == [(2, "word: one"), (3, "word: two")]
