"""Addresses of servers as they may be shown: without the passwords in them, also where they are malformed."""

from __future__ import annotations

import re

SECRET_FIELDS = re.compile(r"(?i)((?:ssl)?password|passwd|pwd)(\s*=\s*)('[^']*'|[^&\s]+)")
NO_PORT = re.compile(r"(//[^/:?[]*:)(?!\d+(?:[/?,]|$))([^/?]+)")
"""The text in a port's place that is none: perhaps a password whose host was left out."""
PARAMETERS = re.compile(r"(\w://[^\s?]*)\?[^\s'\")]+")
SHORTEST_PIECE = 3
"""Characters of a piece of a password that is masked by itself: shorter ones are in every message."""


def masked(address: str) -> str:
    """A URL, or libpq's ``name=value`` text, with ``***`` for its passwords. The text before the last ``@`` is a
    user and a password, however it is written."""
    before, at, after = address.rpartition("@")
    if at:
        scheme, slashes, credentials = before.partition("//")
        user, colon, _ = credentials.partition(":")
        if not slashes:  # no URL: perhaps a password alone
            before = "***"
        elif colon:
            before = f"{scheme}//{user}:***"
    else:
        after = NO_PORT.sub(r"\1***", after)
    return SECRET_FIELDS.sub(r"\1\2***", before + at + after)


def shown(url: str) -> str:
    """A URL as messages show it: no password, and no parameters, which may be a signature; a path as it is. Of a chain
    (``filecache::s3://…``) each part is shown so."""
    if "::" in url and "://" in url:
        return "::".join(shown(part) for part in url.split("::"))
    place, mark, _ = url.partition("?")
    return url if "://" not in url else f"{masked(place)}?…" if mark else masked(place)


def as_shown(url: str, message: str) -> str:
    """A message about a URL without the URL's secrets, however it quotes them."""
    place, _, parameters = url.partition("?")
    message = message.replace(url, shown(url))
    if len(parameters) >= SHORTEST_PIECE:
        message = message.replace(parameters, "…")
    return without_secrets_of(place, PARAMETERS.sub(r"\1?…", message))


def without_secrets_of(address: str, message: str) -> str:
    """A message about an address without any piece of the address's passwords: a driver quotes what it could not
    read."""
    for secret in sorted(_secrets(address), key=len, reverse=True):
        message = message.replace(secret, "***")
    message = re.sub(r"(\w://[^\s:/@]*):[^\s@]*@", r"\1:***@", message)
    return SECRET_FIELDS.sub(r"\1\2***", message)


def _secrets(address: str) -> set[str]:
    """The passwords of an address, and the pieces into which a reader may have cut them."""
    credentials = address.rpartition("@")[0].partition("//")[2]
    lonely = NO_PORT.search(address) if "@" not in address else None
    passwords = [
        credentials.partition(":")[2],
        lonely[2] if lonely else "",
        *(match[3].strip("'") for match in SECRET_FIELDS.finditer(address)),
    ]
    pieces = {piece for password in passwords for piece in re.split(r"[:@/?#%&\s]", password)}
    return {piece for piece in (*passwords, *pieces) if len(piece) >= SHORTEST_PIECE}
