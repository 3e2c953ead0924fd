"""What of a test runs by default: a short form, or some of its cases; the rest runs in ``pytest -m long``."""

from __future__ import annotations

from collections.abc import Container, Iterable

import pytest


def lengths(short: object, full: object, name: str = "rounds") -> pytest.MarkDecorator:
    """Call the test with ``name=short`` by default, and with ``name=full`` in ``pytest -m long``."""
    values = pytest.param(short, id="short"), pytest.param(full, id="full", marks=pytest.mark.long)
    return pytest.mark.parametrize(name, values)


def usually(usual: Container[object], values: Iterable[object]) -> list[object]:
    """These values for ``parametrize``, of which only the ``usual`` ones run by default."""

    def parameter(value: object) -> object:
        return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)

    return [value if value in usual else parameter(value) for value in values]
