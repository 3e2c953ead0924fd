"""Mail: all texts of a message, forwarded messages, attachments; and messages made to take gigabytes."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from email.message import EmailMessage

import pytest

from leap_core.documents.blocks import UnreadableDocumentError
from leap_core.documents.reading import read_document
from tests.support.growth import check_growth

from .here import read_here

HEAD = b"From: Ann <ann@example.org>\nSubject: Trip\nMIME-Version: 1.0\n"
SHOWN = "From: Ann <ann@example.org>\nSubject: Trip\n\n"


def text_of(message: bytes) -> str:
    return read_here("eml", HEAD + message).text


def several(kind: str, *parts: str) -> bytes:
    body = "".join(f"--b\n{part}\n" for part in parts)
    return f'Content-Type: multipart/{kind}; boundary="b"\n\n{body}--b--\n'.encode()


PLAIN, HTML = "Content-Type: text/plain\n\n", "Content-Type: text/html; charset=utf-8\n\n"


def test_a_saved_page_names_its_pictures_and_leaves_styles_out():
    page = f'{HTML}<p>Tea <img alt="a leaf" src="leaf.png"></p>'
    style = "Content-Type: text/css\nContent-Location: https://example.org/a.css\n\np {}"
    picture = "Content-Type: image/png\nContent-Location: https://example.org/leaf.png?size=2\n\n..."
    text = text_of(several("related", page, style, picture))
    assert text == f"{SHOWN}Tea [picture: a leaf]\n\n[attached: leaf.png]"


def test_all_texts_beside_a_picture_are_read():
    picture = 'Content-Type: image/png; name="a.png"\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo='
    text = text_of(several("mixed", f"{PLAIN}First.", picture, f"{PLAIN}Second.", f"{HTML}<p>Third.</p>"))
    assert text == f"{SHOWN}First.\n\n[attached: a.png]\n\nSecond.\n\nThird."


@pytest.mark.parametrize("kind", ["alternative", "mixed"])
def test_html_is_read_beside_an_empty_text(kind):
    assert text_of(several(kind, f"{PLAIN}\n \n", f"{HTML}<p>400 euros.</p>")) == f"{SHOWN}400 euros."


def test_of_alternatives_the_plain_text_is_read_and_what_is_attached_to_the_others_is_named():
    inner = several("mixed", f"{HTML}<b>Rich.</b>", "Content-Type: application/pdf; name=plan.bin\n\nx").decode()
    inner = inner.replace('"b"', '"c"').replace("--b", "--c")
    assert text_of(several("alternative", f"{PLAIN}Plain.", inner)) == f"{SHOWN}Plain.\n\n[attached: plan.bin]"


def test_a_forwarded_message_is_read_with_its_headers():
    inner = "Content-Type: message/rfc822\n\nFrom: carl@example.org\nSubject: the news\n\nThe inner words."
    text = text_of(several("mixed", f"{PLAIN}See below.", inner))
    assert text.endswith(
        "See below.\n\n[forwarded message]\n\nFrom: carl@example.org\nSubject: the news\n\nThe inner words."
    )


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("windows-31j", "cp932"),
        ("windows-874", "cp874"),
        ("x-gbk", "gb18030"),
        ("x-sjis", "cp932"),
        ("cp-850", "cp850"),
        ("utf-16", "utf-16"),
        ("us-ascii", "utf-8"),
        ('"utf-8"', "utf-8"),
    ],
)
def test_charsets_of_message_texts(charset, codec):
    word = {"cp932": "東京①", "cp874": "สวัสดี", "gb18030": "你好"}.get(codec, "Größe")
    body = f"Content-Type: text/plain; charset={charset}\n\n".encode() + word.encode(codec)
    assert text_of(body) == SHOWN + word


def test_utf_8_without_a_charset_is_read_also_in_headers():
    text = read_here("eml", "Subject: Grüße roh\nContent-Type: text/plain\n\nGrüße – é\n".encode()).text
    assert text == "Subject: Grüße roh\n\nGrüße – é"


def test_headers_and_names_in_encoded_words_and_in_pieces():
    message = EmailMessage()
    message["From"], message["Subject"] = "Zoë Ünal <zoe@example.org>", "Ein sehr langer Betreff über Größen " * 4
    message.set_content("Grüße")
    message.add_attachment(
        b"\x00\x01", maintype="application", subtype="octet-stream", filename="Übersicht " * 9 + ".bin"
    )
    text = read_here("eml", bytes(message)).text
    assert "From: Zoë Ünal <zoe@example.org>\n" in text and "über Größen Ein sehr langer" in text
    assert f"[attached: {('Übersicht ' * 9).strip()} .bin]" in text and "\n\nGrüße\n\n" in text


def test_attached_documents_are_read_or_reported():
    message = EmailMessage()
    message["Subject"] = "Files"
    message.set_content("See the files.")
    message.add_attachment("a;b\n1;2\n", filename="table.csv")
    message.add_attachment(b"<p>A page</p>", maintype="text", subtype="html", filename="page.html")
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": "x=1"}]}).encode()
    message.add_attachment(notebook, maintype="application", subtype="json", filename="a.ipynb")
    broken = io.BytesIO()
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("META-INF/container.xml", "<no>")
    message.add_attachment(broken.getvalue(), maintype="application", subtype="zip", filename="book.epub")
    document = read_here("eml", bytes(message))
    for part in (
        "[attached: table.csv]\n\na;b\n1;2",
        "[attached: page.html]\n\nA page",
        "x=1",
        "[attached: book.epub]",
    ):
        assert part in document.text
    assert len(document.notes) == 1 and document.notes[0].startswith("the attached book.epub is not read: ")


def test_an_encrypted_message_is_reported():
    body = several("encrypted", "Content-Type: application/pgp-encrypted\n\nVersion: 1")
    assert read_here("eml", HEAD + body).notes == ("the message is encrypted: its text is not read",)


def test_files_other_than_messages_are_refused():
    with pytest.raises(UnreadableDocumentError, match="a.eml is not a message"):
        read_document(b"no headers here", "a.eml")


TEXT_PLAIN = b"Content-Type: text/plain"
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "a subject of encoded words": lambda count: b"Subject: " + b"=?utf-8?q?abc?= " * count + b"\n\nThe text.",
    "a folded subject": lambda count: b"Subject: x" + b"\n =?utf-8?q?abc?=" * count + b"\n\nThe text.",
    "parameters": lambda count: TEXT_PLAIN + b"".join(b"; a%d=b" % n for n in range(count)) + b"\n\nThe text.",
    "quotes": lambda count: TEXT_PLAIN + b'; a*1="' * count + b"\n\nThe text.",
    "headers": lambda count: b"A: b\n" * count + b"\nThe text.",
    "parts": lambda count: b"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nThe text.\n" + b"--b\n\nx\n" * count,
    "parts in parts": lambda count: b"".join(
        b"Content-Type: multipart/alternative; boundary=b%d\n\n--b%d\n\nThe text.\n--b%d\n" % (n, n, n)
        for n in range(count // 20)
    ),
    "messages in messages": lambda count: b"From: x\nContent-Type: message/rfc822\n\n" * (count // 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_takes_linear_time(name):
    check_growth(lambda count: read_here("eml", HOSTILE[name](count)), 50_000)
    document = read_here("eml", HOSTILE[name](50_000))
    assert "The text." in document.text or name == "messages in messages"
    assert not name.startswith(("parts", "messages")) or "not read" in document.notes[0]


def test_nested_parts_are_read_to_a_depth_and_the_rest_is_reported():
    part = f"{PLAIN}AT THE BOTTOM\n"
    for n in range(30):
        part = f"Content-Type: multipart/mixed; boundary=b{n:02}\n\n--b{n:02}\n{part}\n--b{n:02}--\n"
    document = read_here("eml", HEAD + part.encode())
    assert document.notes == ("the message has more than parts in parts, 20 deep: the rest is not read",)
    assert "BOTTOM" not in document.text
