"""JSON as every answer sends it: in ASCII, since texts of clients and names of files may hold what is no Unicode."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


class AsciiJSON(JSONResponse):
    """A value as JSON. Half a character, which JSON can spell, is spelled again."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
