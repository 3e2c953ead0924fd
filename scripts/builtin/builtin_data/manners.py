"""How people write: politely, carelessly, in capitals."""

from __future__ import annotations

import re

from builtin_data.phrasing import expand, fill
from builtin_data.values import Values

POLITE = "[||||||please |hey, |hi, |ok, |could you |can you |can you please |I need you to |now ]"
THANKS = "[|||||| please|, please| for me| now|, thanks]"


def roughen(values: Values, template: str) -> str:
    """Lower case, shouting, a missing or changed full stop: applied to the wording, never to the slots.

    Training hears more shouting than it is asked about, since each word looks new in capitals.
    """
    rng, shouting = values.rng, 0.04 if values.split == "eval" else 0.09
    if rng.random() < 0.35:
        template = template.rstrip("?.!")
    style = rng.random()
    if style < 0.3:
        return template.lower()
    if style < 0.3 + shouting:
        return re.sub(r"\{\w+\}|[^{}]+", lambda m: m.group(0) if m.group(0)[0] == "{" else m.group(0).upper(), template)
    return template


def say(values: Values, template: str, **slots: object) -> str:
    """One careless wording of a template."""
    return fill(roughen(values, expand(values.rng, template)), **slots)
