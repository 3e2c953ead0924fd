"""Where the results of a journal lie: a key, a place and the hash of a name for each, some thirty bytes a result."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from typing import IO, Any

from ...errors import LeapError
from .line_result import Result

KEY_BYTES = 16
NOWHERE = -1

USUAL = re.compile(
    rb'\{"key":"([0-9a-f]{32})","custom_id":("(?:[^"\\]|\\.)*"),"model":"(?:[^"\\]|\\.)*","created":\d+,'
    rb'"(response|embedding|error)":\{[^\0]*\}\}?\n'
)
"""A line as journals are written, which needs no parsing to be found; the others are parsed."""


class JournalIndex:
    """The results of a journal in the order in which they were written."""

    def __init__(self) -> None:
        self._keys = bytearray()
        self._places = array("q")
        self._names = array("q")
        self._succeeded = bytearray()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, key: str, place: int, custom_id: str, succeeded: bool) -> None:
        """Note a result; a later one of the same key replaces it."""
        self._keys += bytes.fromhex(key)
        self._places.append(place)
        self._names.append(hash(custom_id))
        self._succeeded.append(succeeded)

    def places_of(self, keys: bytes, *, also_failed: bool = False) -> array[int]:
        """Where the newest result of each key (16 bytes each) is, if that succeeded; -1 for the others.
        ``also_failed``: also if it did not."""
        import numpy

        count = len(keys) // KEY_BYTES
        if not len(self) or not count:
            return array("q", [NOWHERE]) * count
        kind = numpy.dtype([("high", ">u8"), ("low", ">u8")])
        rows = numpy.frombuffer(self._keys, kind)
        order = numpy.lexsort((numpy.arange(len(self)), rows["low"], rows["high"]))
        ordered = rows[order]
        high = ordered["high"].astype(numpy.uint64)
        targets = numpy.frombuffer(keys, kind)
        last = numpy.searchsorted(high, targets["high"].astype(numpy.uint64), side="right") - 1  # the newest of its key
        at = numpy.clip(last, 0, None)
        same = (ordered["high"][at] == targets["high"]) & (ordered["low"][at] == targets["low"]) & (last >= 0)
        good = same & (also_failed | (numpy.frombuffer(self._succeeded, numpy.uint8)[order][at] == 1))
        places = numpy.where(good, numpy.frombuffer(self._places, numpy.int64)[order][at], NOWHERE)
        return array("q", places.astype(numpy.int64).tobytes())

    def count_without(self, names: Sequence[int]) -> int:
        """How many succeeded results, one a key, have a name that is not among these hashes."""
        import numpy

        if not len(self):
            return 0
        names_here = numpy.frombuffer(self._names, numpy.int64)
        foreign = ~numpy.isin(names_here, numpy.asarray(names, numpy.int64))
        raw = numpy.frombuffer(self._keys, numpy.uint8).reshape(-1, KEY_BYTES)
        good = foreign & (numpy.frombuffer(self._succeeded, numpy.uint8) == 1)
        return len({bytes(row) for row in raw[good]})


def read_index(file: IO[bytes], offset: int, begun_field: str) -> tuple[str | None, JournalIndex, int]:
    """Read the results from ``offset`` on: who began the journal, where each is, and where the last whole line
    ends."""
    index, begun_by = JournalIndex(), None
    for line in file:
        if not line.endswith(b"\n"):
            break
        place, offset = offset, offset + len(line)
        usual = USUAL.fullmatch(line)
        if usual is not None:
            index.add(usual[1].decode(), place, json.loads(usual[2]), usual[3] != b"error")
            continue
        try:
            value: Any = json.loads(line)
            if begun_field in value:
                begun_by = value[begun_field]
                continue
            result = Result.from_json(value)
            index.add(result.key, place, result.custom_id, result.succeeded)
        except (ValueError, TypeError, KeyError, LeapError):
            continue  # a hole that a power failure left: this line is done again
    return begun_by, index, offset
