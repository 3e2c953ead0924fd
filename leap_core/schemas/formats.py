"""Formats of strings that JSON Schema defines, checked without further packages.

Sources: RFC 3339 (dates and times), RFC 5321 (mail), RFC 1123 (host names), RFC 3986 and 3987 (URIs and IRIs), RFC 6570
(URI templates), RFC 6901 (JSON pointers), ISO 8601 as in RFC 3339's appendix A (durations).
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

from .bounded_matching import compiled

if TYPE_CHECKING:
    from jsonschema import FormatChecker

TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(\.\d+)?(z|([+-])([01]\d|2[0-3]):([0-5]\d))", re.I | re.A)
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.A)
DURATION = re.compile(r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)", re.A)
LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
LOCAL_PART = re.compile(r"""[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*|"([^"\\]|\\.)*\"""", re.A)
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
JSON_POINTER = re.compile(r"(/([^~/]|~[01])*)*")
RELATIVE_POINTER = re.compile(r"(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)")
URI_CHARACTERS = re.compile(r"([A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
IRI_CHARACTERS = re.compile(r"([^\x00-\x20\x7f-\xa0<>\"{}|\\^`%]|%[0-9A-Fa-f]{2})*")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
TEMPLATE = re.compile(
    r"([^\x00-\x20\"'%<>\\^`{|}]|%[0-9A-Fa-f]{2}|\{[+#./;?&=,!@|]?[\w.%]+(:\d+|\*)?(,[\w.%]+(:\d+|\*)?)*\})*"
)


@cache
def format_checker() -> FormatChecker:
    """Knows every format that is checked; other formats pass."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    checker.checkers = {name: (_of_strings(check), (ValueError,)) for name, check in CHECKS.items()}
    return checker


@cache
def regex_checker() -> FormatChecker:
    """Knows regular expressions alone: what a meta-schema is checked with."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    checker.checkers = {"regex": (_of_strings(_is_regex), (ValueError,))}
    return checker


def _of_strings(check: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: check(value) if isinstance(value, str) else True


def _is_date(text: str) -> bool:
    return DATE.fullmatch(text) is not None and bool(datetime.date.fromisoformat(text))


def _is_time(text: str) -> bool:
    match = TIME.fullmatch(text)
    if match is None:
        return False
    if match[3] != "60":
        return True
    minutes = int(match[1]) * 60 + int(match[2])  # a leap second comes at midnight UTC
    if match[6]:
        offset = int(match[7]) * 60 + int(match[8])
        minutes += offset if match[6] == "-" else -offset
    return minutes % 1440 == 23 * 60 + 59


def _is_date_time(text: str) -> bool:
    return len(text) > 10 and text[10] in "Tt" and _is_date(text[:10]) and _is_time(text[11:])


def _is_hostname(text: str) -> bool:
    return len(text) <= 253 and all(LABEL.fullmatch(label) for label in text.removesuffix(".").split("."))


def _is_idn_hostname(text: str) -> bool:
    if not text or any(char.isspace() for char in text):
        return False
    return _is_hostname(text.replace("\u3002", ".").encode("idna").decode("ascii"))


def _is_email(text: str, hostname: Callable[[str], bool] = _is_hostname, local: re.Pattern[str] = LOCAL_PART) -> bool:
    name, at, domain = text.rpartition("@")
    if not at or not local.fullmatch(name):
        return False
    if domain.startswith("[") and domain.endswith("]"):
        literal = domain[1:-1]
        version6 = literal.lower().startswith("ipv6:")
        return bool(ipaddress.IPv6Address(literal[5:]) if version6 else ipaddress.IPv4Address(literal))
    return hostname(domain)


def _is_ipv4(text: str) -> bool:
    return text.isascii() and ipaddress.IPv4Address(text) is not None


def _is_ipv6(text: str) -> bool:
    return "%" not in text and ipaddress.IPv6Address(text) is not None


def _is_uri(text: str, characters: re.Pattern[str] = URI_CHARACTERS, *, relative: bool = False) -> bool:
    if not characters.fullmatch(text):
        return False
    scheme = SCHEME.match(text)
    if scheme is None and not relative:
        return False
    rest = text[scheme.end() :] if scheme else text
    if scheme is None and ":" in re.split("[/?#]", rest, maxsplit=1)[0]:
        return False
    head, _, fragment = rest.partition("#")
    if "#" in fragment:
        return False
    if not head.startswith("//"):
        return "[" not in rest and "]" not in rest
    authority = re.split("[/?]", head[2:], maxsplit=1)[0]
    return _is_authority(authority) and not set("[]") & set(head[2 + len(authority) :] + fragment)


def _is_authority(text: str) -> bool:
    host = text.rpartition("@")[2]
    if host.startswith("["):
        inner, closed, port = host[1:].partition("]")
        literal = inner.lower().startswith("v") or bool(ipaddress.IPv6Address(inner))
        return bool(closed) and literal and re.fullmatch(r"(:[0-9]*)?", port) is not None
    _, colon, port = host.partition(":")
    return not set("[]") & set(text) and (not colon or re.fullmatch("[0-9]*", port) is not None)


def _is_regex(text: str) -> bool:
    return compiled(text) is not None


CHECKS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": _is_date_time,
    "duration": lambda text: DURATION.fullmatch(text) is not None,
    "email": _is_email,
    "idn-email": partial(_is_email, hostname=_is_idn_hostname, local=re.compile(r"[^\s@]+")),
    "hostname": _is_hostname,
    "idn-hostname": _is_idn_hostname,
    "ipv4": _is_ipv4,
    "ip-address": _is_ipv4,
    "ipv6": _is_ipv6,
    "uuid": lambda text: UUID.fullmatch(text) is not None,
    "uri": _is_uri,
    "uri-reference": partial(_is_uri, relative=True),
    "iri": partial(_is_uri, characters=IRI_CHARACTERS),
    "iri-reference": partial(_is_uri, characters=IRI_CHARACTERS, relative=True),
    "uri-template": lambda text: TEMPLATE.fullmatch(text) is not None,
    "json-pointer": lambda text: JSON_POINTER.fullmatch(text) is not None,
    "relative-json-pointer": lambda text: RELATIVE_POINTER.fullmatch(text) is not None,
    "regex": _is_regex,
}
"""Every check says whether a string has the format; ValueError means no."""
