"""The models that this machine has, for a worker that shares a server with workers that have others."""

from __future__ import annotations

from leap_core.models.references.digest_names import ModelDigests

from ..configuration import JobsConfiguration


class ModelsAtHand:
    """``names``: the models by SHA-256, as references of this machine. ``origins``: where they came from."""

    def __init__(self, configuration: JobsConfiguration) -> None:
        self._digests = ModelDigests(configuration.directories)
        self.names: dict[str, str] = {}
        self.origins: dict[str, str] = {}

    @property
    def digests(self) -> frozenset[str]:
        return frozenset(self.names)

    def look(self) -> bool:
        """Look again what is installed. True when something has changed."""
        names, origins = self._digests.installed(), self._digests.origins()
        changed = (names, origins) != (self.names, self.origins)
        self.names, self.origins = names, origins
        return changed

    def reference_of(self, digest: str) -> str | None:
        """What the model of this SHA-256 is called here."""
        return self.names.get(digest)
