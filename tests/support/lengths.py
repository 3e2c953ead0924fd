"""Tests with two lengths: a short one in the default run, the full one in ``pytest -m long``."""

from __future__ import annotations

import pytest


def lengths(short: object, full: object, name: str = "rounds") -> pytest.MarkDecorator:
    """Call the test with ``name=short`` by default, and with ``name=full`` in ``pytest -m long``."""
    values = pytest.param(short, id="short"), pytest.param(full, id="full", marks=pytest.mark.long)
    return pytest.mark.parametrize(name, values)
