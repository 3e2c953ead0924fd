"""Documents within requests, as the official clients send them."""

from __future__ import annotations

import base64

import openai
import pytest

from tests.pdf_bytes import pdf_bytes
from tests.tasks.test_reading_documents import docx_bytes


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
    anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key=server.token).messages.create(
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
