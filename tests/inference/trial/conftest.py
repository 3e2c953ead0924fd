"""The hub and the downloads of the tests of models."""

from __future__ import annotations

from tests.models.conftest import download, hub, variables

__all__ = ["download", "hub", "variables"]
