"""ARCHITECTURE.md names a test for each failure of docs/reliability.md, and the tests exist."""

from __future__ import annotations

import re

from .torture import ROOT


def test_every_failure_names_a_test_that_exists():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    section = page.partition("## Tests of reliability")[2].partition("\n## ")[0]
    claims = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| failure")]
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(claims) > 25
    for claim in claims:
        (name,) = re.findall(r"`(test_\w+)` \|$", claim)
        assert f"def {name}(" in tests, name
