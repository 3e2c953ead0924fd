"""Documents of any kind as text with places, and their pages as pictures."""

OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
PDF_WITHIN = 1024
"""A PDF begins in its first bytes."""


def is_address(name: str) -> bool:
    """Whether a name is an address of the web, and none of a file."""
    return name.lower().startswith(("http://", "https://"))


def is_document(data: bytes) -> bool:
    """Whether bytes begin like a document that is no text."""
    return data.startswith((b"PK\x03\x04", b"{\\rtf", OLD_OFFICE)) or b"%PDF-" in data[:PDF_WITHIN]
