"""What retrieval models want to read before a text, by which they distinguish questions from documents."""

from __future__ import annotations

from dataclasses import dataclass

from ...llama.model import LlamaModel
from ...runner.embedding import EmbeddingKind

QUERY_KEY, DOCUMENT_KEY = "leap.embedding.query_prefix", "leap.embedding.document_prefix"
"""Keys of a GGUF's header by which a file says it itself."""
QUERY_MARKER, DOCUMENT_MARKER = "[Q] ", "[D] "
"""Tokens of ColBERT models, read after the opening token."""


@dataclass(frozen=True)
class Prefixes:
    """Text before a query and before a document; "" for none."""

    query: str = ""
    document: str = ""

    def of(self, kind: EmbeddingKind) -> str:
        """The prefix of a kind of text."""
        return self.query if kind is EmbeddingKind.QUERY else self.document


BY_NAME = (
    ("lfm2.5-embedding", Prefixes("query: ", "document: ")),
    ("embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
    ("nomic-embed-text", Prefixes("search_query: ", "search_document: ")),
    ("multilingual-e5", Prefixes("query: ", "passage: ")),
    ("e5-", Prefixes("query: ", "passage: ")),
    ("mxbai-embed", Prefixes("Represent this sentence for searching relevant passages: ", "")),
    ("qwen3-embedding", Prefixes("Instruct: Given a web search query, retrieve relevant passages\nQuery: ", "")),
)
"""By a part of the model's name, as the cards of the models say. The first that fits counts."""


def prefixes_of(model: LlamaModel) -> Prefixes:
    """What the file's header says, else what is known by the model's name, else none."""
    query, document = model.metadata(QUERY_KEY), model.metadata(DOCUMENT_KEY)
    if query is not None or document is not None:
        return Prefixes(query or "", document or "")
    names = f"{model.metadata('general.name') or ''} {model.path.name}".lower().replace(" ", "-")
    return next((prefixes for part, prefixes in BY_NAME if part in names), Prefixes())
