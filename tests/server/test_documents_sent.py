"""Documents within requests, as the official clients send them."""

from __future__ import annotations

import base64

import openai
import pytest

from tests.documents.test_page_pictures import RULE, TEXT, pdf
from tests.documents.test_reading import docx_bytes
from tests.pdf_bytes import pdf_bytes


def test_file_parts_of_three_protocols(serve):
    import anthropic

    server = serve("Forty-two.", "Forty-two.", "Forty-two.")
    client, data = server.client(), base64.b64encode(docx_bytes()).decode()
    url = f"data:application/vnd.openxmlformats-officedocument.wordprocessingml.document;base64,{data}"
    file = {"type": "file", "file": {"filename": "a.docx", "file_data": url}}
    client.chat.completions.create(
        model="builtin", messages=[{"role": "user", "content": [file, {"type": "text", "text": "The total?"}]}]
    )
    client.responses.create(
        model="builtin",
        input=[{"role": "user", "content": [{"type": "input_file", "filename": "a.docx", "file_data": url}]}],
    )
    pdf = base64.b64encode(pdf_bytes(["The total is 42 euros."])).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": pdf}
    with anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key=server.token) as other:
        other.messages.create(
            model="builtin",
            max_tokens=9,
            messages=[{"role": "user", "content": [{"type": "document", "source": source, "title": "a"}]}],
        )
    for request in server.runner.requests:
        assert "The total is 42 euros." in request.messages[0].text
    assert server.runner.requests[0].messages[0].text.startswith("a.docx:\n")
    broken = {"type": "file", "file": {"filename": "a.pdf", "file_data": base64.b64encode(b"%PDF-1.4 no").decode()}}
    for part in (broken, {"type": "file", "file": {"file_id": "file-1"}}):
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="builtin", messages=[{"role": "user", "content": [part]}])


def test_unread_parts_are_reported_in_the_answer(serve):
    """And the documents of one request have one budget."""
    import anthropic

    from tests.documents.office_files import xlsx

    server = serve("One.", "Two.", "Three.", "Four.")
    data = base64.b64encode(xlsx('<row r="1"><c r="A1"><f>1+1</f></c></row>')).decode()
    file = {"type": "file", "file": {"filename": "sum.xlsx", "file_data": data}}
    answer = server.client().chat.completions.create(model="builtin", messages=[{"role": "user", "content": [file]}])
    assert "=1+1" in server.runner.requests[0].messages[0].text
    note = "sum.xlsx: sheet Sheet: 1 formulas without a stored result are shown as formulas"
    assert answer.model_dump()["leap"]["notes"] == [note]
    url = f"data:application/octet-stream;base64,{data}"
    content = [{"type": "input_file", "filename": "sum.xlsx", "file_data": url}]
    response = server.client().responses.create(model="builtin", input=[{"role": "user", "content": content}])
    assert response.model_dump()["leap"]["notes"] == [note]
    stream = server.client().chat.completions.create(
        model="builtin", messages=[{"role": "user", "content": [file]}], stream=True
    )
    assert [each.leap["notes"] for each in stream if getattr(each, "leap", None)] == [[note]]
    source = {"type": "base64", "media_type": "application/octet-stream", "data": data}
    with anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key=server.token) as other:
        message = other.messages.create(
            model="builtin",
            max_tokens=9,
            messages=[{"role": "user", "content": [{"type": "document", "source": source, "title": "sum.xlsx"}]}],
        )
    assert message.model_dump()["leap"]["notes"] == [note]


@pytest.mark.slow
def test_pages_that_are_pictures_are_named_in_the_notes(serve, tmp_path):
    """By the real engine: a model that reads text only answers from the pages that have text."""
    from leap_core import ModelLoadingOptions
    from leap_core.inference.runner import InProcessRunner
    from tests.support.random_models import TINY_LFM2, write_random_model

    model = write_random_model(tmp_path / "tiny.gguf", TINY_LFM2, "f32")
    runner = InProcessRunner(model, "builtin", ModelLoadingOptions())
    server = serve(runner=runner)
    note = "page 1 of fees.pdf is a picture and was left out"
    client, data = server.client(), base64.b64encode(pdf(RULE, TEXT)).decode()
    part = {"type": "file", "file": {"filename": "fees.pdf", "file_data": data}}
    messages = [{"role": "user", "content": [part]}]
    whole = client.chat.completions.create(model="builtin", messages=messages, max_tokens=2)
    assert whole.model_dump()["leap"]["notes"] == [note]
    *_, last = client.chat.completions.create(model="builtin", messages=messages, max_tokens=2, stream=True)
    assert last.model_dump()["leap"]["notes"] == [note]
    content = [{"type": "input_file", "filename": "fees.pdf", "file_data": f"data:;base64,{data}"}]
    asked = [{"role": "user", "content": content}]
    response = client.responses.create(model="builtin", input=asked, max_output_tokens=2)
    assert response.model_dump()["leap"]["notes"] == [note]
    scan = {"type": "file", "file": {"filename": "scan.pdf", "file_data": base64.b64encode(pdf(RULE)).decode()}}
    with pytest.raises(openai.BadRequestError, match="pages of scan.pdf are pictures"):
        client.chat.completions.create(model="builtin", messages=[{"role": "user", "content": [scan]}])
