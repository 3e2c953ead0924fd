"""docs/reliability.md names tests that exist."""

from __future__ import annotations

import re

from .torture import ROOT


def test_every_claim_names_a_test_that_exists():
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    rows = page.split("| bound |")[0].splitlines()
    claims = [line for line in rows if line.startswith("| ") and not line.startswith("| failure")]
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(claims) > 25
    for claim in claims:
        (name,) = re.findall(r"`(test_\w+)` \|$", claim)
        assert f"def {name}(" in tests, name
