"""Documents of any kind as blocks with places, and pages of scans as pictures.

``reading`` is the entry: it asks a child process to read a document, and returns a ``blocks.Document``. Each format has
a module with one function ``read(file, out)``, which runs in the child and writes to an ``output.Output``.
"""

OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
PDF_WITHIN = 1024
"""The first bytes, which hold the mark of a PDF."""


def is_address(name: str) -> bool:
    """Whether a name is a web address, not a file."""
    return name.lower().startswith(("http://", "https://"))


def is_document(data: bytes) -> bool:
    """Whether bytes begin like a document that is not text."""
    return data.startswith((b"PK\x03\x04", b"{\\rtf", OLD_OFFICE)) or b"%PDF-" in data[:PDF_WITHIN]
