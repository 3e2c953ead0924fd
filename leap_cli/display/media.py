"""What can be given to a model, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leap_core.models.references.resolving import LocalModel


def media_taken(model: LocalModel) -> list[str]:
    """What can be given to a model beside text, by its projector's header."""
    if model.mm_proj_path is None:
        return ["text"]
    from leap_core.errors import LeapModelLoadingError
    from leap_core.media.audio import MOST_SECONDS
    from leap_core.models.maintenance.inspection import projector_or_error

    projector = projector_or_error(model.mm_proj_path)
    if isinstance(projector, LeapModelLoadingError):
        return ["text", f"nothing else: {projector.message}"]
    seconds = min(projector.longest_seconds, MOST_SECONDS)
    sound = [f"sound of up to {seconds:g} s"] if projector.hears else []
    return ["text", *(["pictures"] if projector.sees else []), *sound]
