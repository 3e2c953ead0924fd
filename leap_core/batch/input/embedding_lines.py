"""Lines of a batch that ask for vectors: OpenAI's bodies of ``/v1/embeddings``, or the same fields as a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...openai.embeddings import EmbeddingRequest, read_embedding_request
from ...openai.fields import REFUSE
from .line_digests import canonical, digest_of


@dataclass(frozen=True)
class EmbeddingLine:
    """``custom_id`` is None when the line has none."""

    custom_id: str | None
    request: EmbeddingRequest

    @property
    def model(self) -> str | None:
        """What the line names."""
        return self.request.model

    def digest(self, custom_id: str) -> str:
        """A name for this request, as ``lines.Request`` has one. Journals keep it."""
        asked = {name: value for name, value in asdict(self.request).items() if name not in ("model", "keep_alive")}
        return digest_of(f'{{"custom_id":{canonical(custom_id)},"embedding":{canonical(asked)}}}')


def read_embedding_line(fields: Mapping[str, Any], custom_id: str | None) -> EmbeddingLine:
    """Raises LeapSerializationError, also for a field that does not belong there."""
    return EmbeddingLine(custom_id, read_embedding_request(dict(fields), REFUSE))
