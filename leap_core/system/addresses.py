"""Addresses of servers: which are public, and how they may be shown, without the passwords in them, also where they are
malformed."""

from __future__ import annotations

import re

NOT_PUBLIC = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24
    192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    2001::/23 2001:db8::/32 2002::/16 3fff::/20
"""
"""IANA's special addresses, and 6to4, whose relays lead anywhere. Versions of Python know different ones."""
PUBLIC_V6, NAT64 = "2000::/3", "64:ff9b::/96"
"""What of IPv6 is given out to the public, and the addresses that represent one of IPv4."""


def is_public(text: str) -> bool:
    """Whether an IP address belongs to the internet, and not to this machine, its networks or a special use."""
    from ipaddress import IPv4Address, ip_address, ip_network  # here, because every start of a command would pay for it

    address = ip_address(text.partition("%")[0])
    if address in ip_network(NAT64):
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    elif address.version == 6 and address not in ip_network(PUBLIC_V6):
        return False
    return not any(address in ip_network(special) for special in NOT_PUBLIC.split())


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
