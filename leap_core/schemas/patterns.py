"""Regular expressions of JSON Schema (ECMA-262's) in the spelling of the ``regex`` package, for the check of texts."""

from __future__ import annotations

import re

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


RANGES = {
    "d": "0-9",
    "D": r"\x00-/:-\U0010ffff",
    "w": "0-9A-Za-z_",
    "W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    "s": r"\t-\r ",
    "S": r"\x00-\x08\x0e-\x1f!-\U0010ffff",
}
"""ECMA's classes of ASCII. They are spelled out, because the engine's ASCII mode cuts Unicode's properties down too."""


def portable_pattern(pattern: str) -> str:
    """The same expression for ``regex``: ``$`` is the very end, ``\\d`` and ``\\w`` are ASCII, POSIX's names are
    spelled out. Raises ValueError for what it cannot express."""
    if pattern.isascii() and pattern.replace("-", "").replace("_", "").isalnum():
        return pattern
    translated = []
    in_class = False
    flags = FLAGS.match(pattern)
    for match in TOKEN.finditer(pattern, flags.end() if flags else 0):
        kind = match.lastgroup
        text = match[0]
        if kind == "property" or kind == "other":
            translated.append(_property(match[kind], kind == "other", in_class))
        elif kind == "code":
            translated.append(_character(match[kind]))
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
    return f"(?{flags[1] if flags else ''}:{''.join(translated)})"


def _character(code: str) -> str:
    """What ``\\u{…}`` means."""
    if len(code) > 8 or int(code, 16) > 0x10FFFF:
        raise ValueError(f"\\u{{{code[:20]}}} is no character")
    return re.escape(chr(int(code, 16)))


def _property(name: str, is_other: bool, in_class: bool) -> str:
    """A class of characters by its Unicode property, or by POSIX's name as Java knows it."""
    ranges = ASCII_CLASSES.get(name)
    if ranges is None:
        return f"\\{'P' if is_other else 'p'}{{{name}}}"
    if in_class and is_other:
        raise ValueError(f"\\P{{{name}}} within brackets")
    return ranges if in_class else f"[{'^' if is_other else ''}{ranges}]"


def _escape(char: str, in_class: bool) -> str:
    if char in RANGES:
        return RANGES[char] if in_class else f"[{RANGES[char]}]"
    if char in "bB" and not in_class:
        return f"(?a:\\{char})"
    if char in PYTHON_ESCAPES and char != "k":
        return "\\" + char
    if char == "k":
        raise ValueError("named references are not supported")
    return re.escape(char) if not in_class else "\\" + char if not char.isalnum() else char
