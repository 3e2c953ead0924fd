"""How much a server keeps loaded, and which models failed lately."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import LeapError, LeapModelLoadingError
from .loaded_model import LoadedModel

MOST_ON_DEMAND = 2
"""Models that requests had loaded stay, as many as these, where no bound is given."""
FAILURE_SECONDS = 30.0
"""A file that could not be loaded is not tried again for so long, unless it changes."""


@dataclass(frozen=True)
class Bounds:
    """The most models, and bytes of memory, at once; with neither, MOST_ON_DEMAND beside those that stay."""

    models: int | None = None
    memory: int | None = None

    def __bool__(self) -> bool:
        return self.models is not None or self.memory is not None

    def allow(self, present: Sequence[LoadedModel], coming: int | None = None) -> bool:
        """Whether these models may be loaded together, and one more that takes ``coming`` bytes."""
        more = coming is not None
        if not self:
            return sum(model.on_demand for model in present) + more <= MOST_ON_DEMAND
        if self.models is not None and len(present) + more > self.models:
            return False
        return self.memory is None or sum(model.memory or 0 for model in present) + (coming or 0) <= self.memory

    def check(self, staying: Sequence[LoadedModel], model: LoadedModel, size: int) -> None:
        """Raises LeapModelLoadingError for a model that has no room beside those that stay."""
        if not self or self.allow(staying, size):
            return
        if self.memory is not None and size > self.memory:
            raise LeapModelLoadingError(
                f"{model.name} takes {size / 1e6:.0f} MB, and the server may use {self.memory / 1e6:.0f} MB",
                hint="start it with a larger --max-memory",
            )
        raise LeapModelLoadingError(
            f"{model.name} has no room beside {', '.join(each.name for each in staying)}",
            hint="start the server with fewer pinned models, or with larger bounds",
        )


class RecentFailures:
    """Models that could not be loaded, so that nobody's model is let go of for another attempt."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[object, float, LeapError]] = {}

    def check(self, model: LoadedModel) -> None:
        """Raises the error with which this file failed a moment ago."""
        version, until, error = self._failed.get(str(model.local.path), (None, 0.0, None))
        if error is not None and version == model.version and time.monotonic() < until:
            raise error.with_traceback(None)

    def note(self, model: LoadedModel, error: BaseException) -> None:
        """Remember why a model could not be loaded."""
        if isinstance(error, LeapModelLoadingError):
            self._failed[str(model.local.path)] = model.version, time.monotonic() + FAILURE_SECONDS, error
