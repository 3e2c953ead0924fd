"""Documents to look over, as a page for a browser: one file that needs nothing else, or the page of a server."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path

from ...documents.kinds import PDF
from ...documents.reading import data_url, pictures_of, read_document
from ...errors import LeapError
from ...schemas.json_values import JsonObject
from ..evidence.evidence import Thresholds, is_doubtful
from .documents import OF_PERSON, ReviewedDocument, is_end

FILES = Path(__file__).parent / "files"
SCRIPTS = ("texts", "kinds", "decisions", "keeping", "views", "editor", "review", "start")
MOST_PICTURES = 48
"""In a page of a review, and of files that are read for them."""
LARGEST_PICTURE = 4 * 1024**2
STARTS = {b"%PDF": PDF, b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""Of files that have something to show."""
UNSAFE = re.compile("[<\u2028\u2029\ud800-\udfff]")
"""What JSON in a page must not have as it is: the end of its element, old ends of lines, half characters."""


def page_data(
    reviews: Sequence[ReviewedDocument], below: float | Thresholds, save_as: str, directory: Path | None = None
) -> JsonObject:
    """What the page shows. A document is kept as the JSON text that is saved again, so that no number changes;
    ``save_as``: the name of the file that it is saved as. ``directory``: where the documents' files are looked for, of
    which pictures are shown beside the texts that were read from them."""
    documents = [_document(each, below) for each in reviews]
    digest = sha256(json.dumps(documents).encode()).hexdigest()[:32]
    pictures = {} if directory is None else _pictures([directory / each.file for each in reviews])
    return {"save_as": save_as, "digest": digest, "documents": documents, "pictures": pictures}


def _pictures(paths: Sequence[Path]) -> JsonObject:
    """By the numbers of documents, from 0 on: their pages that are pictures, by numbers from 1 on. Each PDF counts as a
    picture at least, for it has to be read."""
    found: JsonObject = {}
    left = MOST_PICTURES
    for number, path in enumerate(paths):
        with suppress(OSError, ValueError, LeapError):
            kind = _kind_of(path) if left > 0 else None
            if kind is not None:
                with closing(_pictures_of(path, kind)) as pages:
                    shown = {str(page): url for page, url in islice(pages, left)}
                left -= max(1, len(shown))
                found |= {str(number): shown} if shown else {}
    return found


def _kind_of(path: Path) -> str | None:
    """What a file has to show; None for nothing, and for what is no file, such as a pipe, which would be waited for."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(4)
    return next((kind for start, kind in STARTS.items() if head.startswith(start)), None)


def _pictures_of(path: Path, kind: str) -> Generator[tuple[int, str], None, None]:
    """The pages of a PDF that have no text, or the picture that a file is, as addresses that hold them."""
    if kind == PDF:
        document = read_document(path)
        for number, picture in pictures_of(document, document.blank):
            yield number, data_url(picture, "image/jpeg")
    elif path.stat().st_size <= LARGEST_PICTURE:
        yield 1, data_url(path.read_bytes(), kind)


def page(data: JsonObject | None) -> str:
    """The page with its data; with None one that asks its server for them."""
    style, html = ((FILES / f"review.{kind}").read_text("utf-8") for kind in ("css", "html"))
    script = "\n".join((FILES / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        f"form-action 'none'; img-src data:; connect-src {chr(39) + ('none' if data is not None else 'self') + chr(39)}"
    )
    parts = {
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "style": f"<style>{style}</style>",
        "data": f'<script type="application/json" id="data">{_safe(json.dumps(data, ensure_ascii=False))}</script>',
        "script": f"<script>{script}</script>",
    }
    return re.sub(r"<!--(\w+)-->", lambda match: parts[match[1]], html)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _safe(text: str) -> str:
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _document(review: ReviewedDocument, below: float | Thresholds) -> JsonObject:
    fields = {**review.to_json(), "evidence": []}
    head = json.dumps(fields, ensure_ascii=False).removesuffix("]}")
    return {"file": review.file, "head": head, "entries": [_entry(each, below) for each in review.evidence]}


def _entry(entry: JsonObject, below: float | Thresholds) -> JsonObject:
    found = {name: part for name, part in entry.items() if name not in OF_PERSON}
    shown: JsonObject = {"raw": json.dumps(found, ensure_ascii=False)}
    if isinstance(entry["value"], (int, float)) and not isinstance(entry["value"], bool):
        shown["shown"] = json.dumps(entry["value"])
    if is_doubtful(entry, below):
        shown["doubtful"] = True
    if is_end(entry):
        shown["end"] = True
    if "decision" in entry:
        shown["decision"] = entry["decision"]
    if "corrected" in entry:
        shown["corrected"] = json.dumps(entry["corrected"], ensure_ascii=False)
    return shown
