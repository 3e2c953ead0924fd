"""Pages that are pictures beside pages of text: what a message holds, and what a model that reads text only gets."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import pytest

from leap_core.conversation.messages import ChatMessage, ChatMessageContent, Image, PagePicture, Text
from leap_core.conversation.page_pictures import left_out, without_pages
from leap_core.documents.blocks import Document, UnreadableDocumentError
from leap_core.documents.reading import MOST_PICTURES, check_has_text, notes_of, parts_of, read_document
from leap_core.errors import LeapSerializationError

pytest.importorskip("pypdfium2")
reportlab = pytest.importorskip("reportlab")

TEXT, RULE, LOGO, EMPTY, STAMPED, ROTATED = "text", "rule", "logo", "empty", "stamped", "rotated"


def pdf(*pages: str) -> bytes:
    """A PDF of pages of these kinds."""
    from PIL import Image as pillow
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    data = io.BytesIO()
    canvas = Canvas(data, (400, 300), invariant=True)
    picture = ImageReader(pillow.new("RGB", (80, 60), "white"))
    for number, kind in enumerate(pages, 1):
        if kind == TEXT:
            canvas.drawString(30, 200, f"The fee of page {number} is 42 euros.")
        if kind == RULE:
            canvas.line(30, 150, 370, 150)
        if kind == LOGO:
            canvas.drawImage(picture, 150, 100, 80, 60)
        if kind in (STAMPED, ROTATED):
            canvas.drawImage(picture, 0, 0, 400, 300)
        if kind == STAMPED:
            canvas.drawString(30, 20, f"page {number}")
        if kind == ROTATED:
            canvas.setPageRotation(90)
        canvas.showPage()
        canvas.setPageRotation(0)
    canvas.save()
    return data.getvalue()


def message_of(document: Document, name: str) -> ChatMessage:
    return ChatMessage("user", [ChatMessageContent.from_json(part) for part in parts_of(document, name)])


DOCUMENTS: list[tuple[Sequence[str], list[int], str]] = [
    ((RULE, TEXT), [1], "[page 1 is a picture]\n\nThe fee of page 2 is 42 euros."),
    ((LOGO, TEXT, RULE), [1, 3], "[page 1 is a picture]\n\nThe fee of page 2 is 42 euros.\n\n[page 3 is a picture]"),
    ((TEXT, EMPTY), [], "The fee of page 1 is 42 euros."),
    ((STAMPED, STAMPED), [1, 2], "[page 1 is a picture]\n\npage 1\n\n[page 2 is a picture]\n\npage 2"),
    ((ROTATED, TEXT), [1], "[page 1 is a picture]\n\nThe fee of page 2 is 42 euros."),
]


@pytest.mark.slow
@pytest.mark.parametrize(("pages", "pictures", "text"), DOCUMENTS)
def test_a_model_that_reads_text_gets_the_rest_of_a_document(pages, pictures, text):
    """With a marker in the place of each page that is a picture, and a sentence that names them."""
    message = message_of(read_document(pdf(*pages), "fees.pdf"), "fees.pdf")
    assert [part.page for part in message.content if isinstance(part, PagePicture)] == pictures
    (kept,), notes = without_pages([message])
    assert kept.content == (Text(f"fees.pdf:\n{text}\n"),)
    assert notes == ((left_out("fees.pdf", pictures),) if pictures else ())


@pytest.mark.slow
def test_pages_of_a_document_without_text_are_not_left_out():
    document = read_document(pdf(RULE, ROTATED), "scan.pdf")
    message = message_of(document, "scan.pdf")
    assert without_pages([message]) == ([message], ())
    assert [part.page for part in message.content if isinstance(part, Image)] == [1, 2]
    with pytest.raises(UnreadableDocumentError, match="scan.pdf has no text"):
        check_has_text(document, "scan.pdf")


@pytest.mark.slow
def test_pages_above_the_limit_are_reported():
    document = read_document(pdf(*[RULE] * (MOST_PICTURES + 2), TEXT), "long.pdf")
    pictures = [part for part in message_of(document, "long.pdf").content if isinstance(part, PagePicture)]
    assert len(pictures) == MOST_PICTURES
    assert notes_of(document) == ["pages 17 and 18: left out, for at most 16 pages are sent as pictures"]


def test_pages_are_named_in_one_sentence():
    assert left_out("a.pdf", [1]) == "page 1 of a.pdf is a picture and was left out"
    assert left_out("a.pdf", [1, 2]) == "pages 1 and 2 of a.pdf are pictures and were left out"
    assert left_out("a.pdf", [9, 3, 4, 5, 7]) == "pages 3 to 5, 7 and 9 of a.pdf are pictures and were left out"


def test_a_page_keeps_its_position_in_json():
    jpeg = io.BytesIO()
    from PIL import Image as pillow

    pillow.new("RGB", (8, 8)).save(jpeg, "JPEG")
    page = PagePicture(jpeg.getvalue(), "a.pdf", 3, is_needed=True)
    assert ChatMessageContent.from_json(page.to_json()) == page
    plain = {"type": "image_url", "image_url": {"url": f"data:;base64,{base64.b64encode(page.data).decode()}"}}
    assert ChatMessageContent.from_json(plain) == Image(page.data)
    with pytest.raises(LeapSerializationError, match="page.number"):
        ChatMessageContent.from_json(plain | {"page": {"file": "a.pdf", "number": "x"}})
