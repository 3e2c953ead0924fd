"""The definitions of a schema that is put together from schemas which had their own."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
import re
from collections.abc import Container, Mapping
from itertools import chain, count
from typing import Any
from urllib.parse import unquote

from .subschemas import transform, walk

DEFINITION = re.compile(r"#/\$defs/([^/]+)(.*)", re.DOTALL)


class Definitions:
    """The ``$defs`` of a schema that is put together from others: theirs move here, and their references follow."""

    def __init__(self) -> None:
        self.schemas: dict[str, JsonObject] = {}
        self._adopted: dict[str, JsonObject] = {}

    def keyword(self) -> JsonObject:
        """What the root of the whole schema needs."""
        return {"$defs": self.schemas} if self.schemas else {}

    def adopt(self, schema: JsonObject, name: str) -> JsonObject:
        """A schema that stood alone as a part of the whole; one that refers to its root becomes a definition."""
        if "$id" in schema:
            return schema
        text = json.dumps(schema, sort_keys=True, default=str)
        if text not in self._adopted:
            self._adopted[text] = self._moved(schema, name)
        return self._adopted[text]

    def _moved(self, schema: JsonObject, name: str) -> JsonObject:
        own = dict(schema.get("$defs", {}))
        part = {key: value for key, value in schema.items() if key != "$defs"}
        if any(_is_within(inner.get("$ref")) for _, inner in walk(schema)):
            name = unused_name(name, own)
            own[name], part = part, {"$ref": "#"}
        names = self._names(own, name)
        self.schemas |= {names[key]: _redirected(value, names, name) for key, value in own.items()}
        moved: JsonObject = _redirected(part, names, name)
        return moved

    def _names(self, own: Mapping[str, Any], root: str) -> dict[str, str]:
        """What each definition is called here: the same, or with a number where that is something else."""
        names = {name: name for name in own}
        numbers = dict.fromkeys(own, 1)
        while True:
            by_name: dict[str, Any] = dict(self.schemas)
            moved = {name: _redirected(value, names, root) for name, value in own.items()}
            clashes = [name for name in own if by_name.setdefault(names[name], moved[name]) != moved[name]]
            if not clashes:
                return names
            for name in clashes:
                numbers[name] += 1
                names[name] = f"{name}{numbers[name]}"


def unused_name(name: str, used: Container[str]) -> str:
    """The name, with a number if it is used."""
    numbered = (f"{name}{number}" for number in count(2))
    return next(new for new in chain([name], numbered) if new not in used)


def reference_to(name: str) -> str:
    """Where a definition is in the whole schema."""
    return "#/$defs/" + name.replace("~", "~0").replace("/", "~1").replace("%", "%25")


def _is_within(reference: object) -> bool:
    """Whether a reference leads into the schema itself, and not to one of its definitions."""
    if not isinstance(reference, str) or DEFINITION.fullmatch(reference):
        return False
    return reference == "#" or reference.startswith("#/")


def _redirected(schema: Any, names: Mapping[str, str], root: str) -> Any:
    """A schema with its references to definitions under their new names; ``root``: the definition that was the root."""

    def redirect(part: JsonObject) -> JsonObject:
        target = part.get("$ref")
        if _is_within(target):
            return {**part, "$ref": reference_to(names[root]) + part["$ref"][1:]}
        definition = DEFINITION.fullmatch(target) if isinstance(target, str) else None
        if definition is None:
            return part
        name = unquote(definition[1]).replace("~1", "/").replace("~0", "~")
        return {**part, "$ref": reference_to(names[name]) + definition[2]} if name in names else part

    return transform(schema, redirect)
