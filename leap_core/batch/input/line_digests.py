"""Names for what lines ask: equal names, equal work."""

from __future__ import annotations

import hashlib
import json

KEY_CHARACTERS = 32


def digest_of(text: str) -> str:
    """A name for a text: 32 hexadecimal digits. Raises UnicodeEncodeError for half of a surrogate pair."""
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_CHARACTERS]


def key_of(digest: str, fingerprint: str) -> str:
    """A name for what a line asks of a model with this fingerprint: equal means same work. Journals keep it."""
    return digest_of(digest + fingerprint)


def canonical(value: object) -> str:
    """A JSON text that is equal for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
