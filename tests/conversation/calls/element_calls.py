"""Calls as models write them whose arguments are elements, and values as they are written in these."""

from __future__ import annotations

import json
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def bare(value: object) -> str:
    """A value of an XML element, which has no quotes."""
    return value if isinstance(value, str) else compact(value)


def objects(calls: Calls, key: str = "arguments") -> str:
    return ", ".join(f'{{"name": "{name}", "{key}": {compact(arguments)}}}' for name, arguments in calls)


def elements(calls: Calls, head: str, key: str, close: str, tail: str) -> str:
    """Calls of elements; ``{type}`` in ``key`` is for a text or another value."""
    texts = []
    for n, (name, given) in enumerate(calls, 1):
        parts = [
            key.format(key=each, text=str(isinstance(value, str)).lower(), type=KINDS.get(type(value), "object"))
            + bare(value)
            + close
            for each, value in given.items()
        ]
        texts.append(head.format(name=name, index=n) + "".join(parts) + tail)
    return "".join(texts)


KINDS = {str: "string", int: "number", float: "number", bool: "boolean", list: "array"}


def deepseek_dsml(calls: Calls, section: str) -> str:
    written = elements(
        *(calls, '<｜DSML｜invoke name="{name}">\n', '<｜DSML｜parameter name="{key}" string="{text}">'),
        *("</｜DSML｜parameter>\n", "</｜DSML｜invoke>\n"),
    )
    return f"<｜DSML｜{section}>\n{written}</｜DSML｜{section}>"


def kimi_k3(calls: Calls) -> str:
    written = elements(
        *(calls, '<|open|>call tool="{name}" index="{index}"<|sep|>'),
        '<|open|>argument key="{key}" type="{type}"<|sep|>',
        *("<|close|>argument<|sep|>", "<|close|>call<|sep|>"),
    )
    return f"<|open|>tools<|sep|>{written}<|close|>tools<|sep|>"


def minimax_m3(calls: Calls) -> str:
    mark = "]<]minimax[>["

    def spelled(value: object) -> str:
        if isinstance(value, dict):
            return "".join(f"{mark}<{key}>{spelled(each)}{mark}</{key}>" for key, each in value.items())
        if isinstance(value, list):
            return "".join(f"{mark}<item>{spelled(each)}{mark}</item>" for each in value)
        return bare(value)

    invoked = (f'{mark}<invoke name="{name}">{spelled(given)}{mark}</invoke>\n' for name, given in calls)
    return f"{mark}<tool_call>\n{''.join(invoked)}{mark}</tool_call>"
