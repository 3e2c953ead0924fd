"""Regular expressions of JSON Schema (ECMA-262's) in Python's spelling, for the check of finished texts."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

TOKEN = re.compile(
    r"\\p\{(?P<property>[^}]*)\}|\\P\{(?P<other>[^}]*)\}|\\u\{(?P<code>[0-9a-fA-F]+)\}|\\c(?P<control>[A-Za-z])"
    r"|\\(?P<escaped>.)|(?P<group>\(\?<(?![=!]))|(?P<empty>\[\^?\](?=[^\]]*(?:\[|$)))|(?P<plain>.)",
    re.DOTALL,
)
PYTHON_ESCAPES = "dDwWsSbBntrfvuxk0123456789"
FLAGS = re.compile(r"\(\?([imsx]+)\)")
"""Flags at the very beginning: Python's and Java's, not ECMA's, but schemas have them."""

ASCII_CLASSES = {
    "ASCII": r"\x00-\x7f",
    "Alnum": "0-9A-Za-z",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Graph": "!-~",
    "Lower": "a-z",
    "Print": " -~",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r"\t-\r ",
    "Upper": "A-Z",
    "XDigit": "0-9A-Fa-f",
}
"""POSIX's names, as Java knows them."""

CATEGORIES = {
    "Letter": "L",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "Punctuation": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Other": "C",
    "Alphabetic": "L",
}


def python_pattern(pattern: str) -> str:
    """The same expression for Python's ``re``: ``$`` is the very end, ``\\d`` and ``\\w`` are ASCII, Unicode categories
    are spelled out. Raises ValueError for what Python cannot express."""
    if pattern.isascii() and pattern.replace("-", "").replace("_", "").isalnum():
        return pattern
    translated = []
    in_class = False
    flags = FLAGS.match(pattern)
    for match in TOKEN.finditer(pattern, flags.end() if flags else 0):
        kind = match.lastgroup
        text = match[0]
        if kind == "property" or kind == "other":
            ranges = _category(match[kind])
            if in_class and kind == "other":
                raise ValueError(f"{text} within brackets")
            translated.append(ranges if in_class else f"[{'^' if kind == 'other' else ''}{ranges}]")
        elif kind == "code":
            translated.append(re.escape(chr(int(match[kind], 16))))
        elif kind == "control":
            translated.append(f"\\x{ord(match[kind]) % 32:02x}")
        elif kind == "escaped":
            translated.append(_escape(match[kind], in_class))
        elif kind == "group":
            translated.append("(?P<")
        elif kind == "empty" and not in_class:
            translated.append(r"[\s\S]" if "^" in text else r"(?!)")
        elif text == "$" and not in_class:
            translated.append(r"\Z")
        else:
            if text == "[" and in_class:
                text = r"\["
            elif text in "[]":
                in_class = text == "["
            translated.append(text)
    result = f"(?a{flags[1] if flags else ''}:{''.join(translated)})"
    try:
        re.compile(result)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return result


def _escape(char: str, in_class: bool) -> str:
    if char in PYTHON_ESCAPES and char != "k":
        return "\\" + char
    if char == "k":
        raise ValueError("named references are not supported")
    return re.escape(char) if not in_class else "\\" + char if not char.isalnum() else char


@cache
def _category(name: str) -> str:
    """The ranges of characters of a general category, to stand within brackets."""
    name = name.partition("=")[2] or name
    if name in ASCII_CLASSES:
        return ASCII_CLASSES[name]
    wanted = CATEGORIES.get(name, name)
    ranges: list[str] = []
    start: int | None = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(wanted)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    if not ranges:
        raise ValueError(f"the Unicode property {name!r} is not known")
    return "".join(ranges)
